"""Opacus's per-example gradients, under the same watch as book-keeping: the fallback for layers without a rule."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from opacus.grad_sample import GradSampleModule, register_grad_sampler
from opacus.grad_sample.embedding import compute_embedding_grad_sample
from torch import Tensor, nn

from plrvo.training.unwrap import unwrapped
from plrvo.training.watch import Watch
from plrvo.validate import InvalidArgument


class SamplesModule(GradSampleModule):
    """Wraps a module; every parameter gets its per-example gradients in `grad_sample`, and no other gradient.

    Autograd's own gradient is the batch's, without clip and noise. It is let go at once, so that no optimizer but the
    engine's finds anything to step with.
    """

    def __init__(
        self,
        m: nn.Module,
        *,
        batch_first: bool = True,
        loss_reduction: str = "mean",
        public_loss_weights: bool = False,
    ) -> None:
        _refuse_eval(m)
        with self._naming_parameters(m):
            super().__init__(m, batch_first=batch_first, loss_reduction=loss_reduction)
        self.watch = Watch(
            unwrapped(m),
            reduction=loss_reduction,
            per_example=self._gradients,
            dimension=0 if batch_first else 1,
            public_weights=public_loss_weights,
            on_try=self._pause,
        )
        self.watch.see_outputs()
        self.forbid_grad_accumulation()
        parameters: list[Any] = [p for p in m.parameters() if p.requires_grad]
        self._dropping = [p.register_post_accumulate_grad_hook(_drop) for p in parameters]

    def remove_hooks(self) -> None:
        self.watch.remove()
        while self._dropping:
            self._dropping.pop().remove()
        super().remove_hooks()

    def _pause(self, trying: bool) -> None:
        if trying:
            self.disable_hooks()
        else:
            self.enable_hooks()

    def _gradients(self, score: Callable[[], Tensor], rows: int) -> dict[nn.Parameter, Tensor]:
        parameters: list[Any] = [p for p in self._module.parameters() if p.requires_grad]
        self.enable_hooks()
        try:
            loss: Any = score() / rows if self.loss_reduction == "mean" else score()
            with self._naming_parameters(self._module):
                loss.backward()
            return {p: p.grad_sample for p in parameters if p.grad_sample is not None}
        finally:
            self.disable_hooks()
            for p in parameters:
                p.grad_sample = None

    @contextmanager
    def _naming_parameters(self, module: nn.Module) -> Iterator[None]:
        """Opacus computes a module with a parameter of its own anew, with all that is in it: not every one can be."""
        try:
            yield
        except (TypeError, RuntimeError, LookupError, NotImplementedError) as error:
            for name, m in module.named_modules():
                own = [n for n, p in m.named_parameters(name, recurse=False) if p.requires_grad]
                if own and any(m.children()) and type(m) not in self.GRAD_SAMPLERS:
                    raise InvalidArgument(
                        "module",
                        own[0],
                        "a small module of its own for this parameter, called with one tensor: beside other layers all "
                        f"of {type(m).__name__} is computed by example, which other inputs, dropout or buffers prevent",
                    ) from error
            raise


def _refuse_eval(module: nn.Module) -> None:
    for name, m in module.named_modules():
        if not m.training and any(p.requires_grad for p in m.parameters(recurse=False)):
            raise InvalidArgument(
                "module",
                f"{name} in eval mode",
                "training mode: call module.train() (layers without trainable parameters may stay in eval mode)",
            )


def _drop(parameter: Tensor) -> None:
    parameter.grad = None


@register_grad_sampler(nn.Embedding)  # type: ignore[untyped-decorator]
def _embedding(layer: nn.Embedding, activations: list[Tensor], backprops: Tensor) -> dict[Any, Tensor]:
    """Opacus's rule, but for the row of padding, which does not learn: its gradient is zero in autograd."""
    gradients: dict[Any, Tensor] = compute_embedding_grad_sample(layer, activations, backprops)
    if layer.padding_idx is not None and layer.weight in gradients:
        gradients[layer.weight][:, layer.padding_idx] = 0
    return gradients
