"""A module that records, in one backward pass, what the per-example gradients of its parameters consist of."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from opacus.grad_sample import AbstractGradSampleModule
from torch import Tensor, nn

from plrvo.training.clipping.contributions import Contribution, in_full_precision, wide
from plrvo.training.clipping.layers import Rule, rule_of
from plrvo.training.unwrap import unwrapped
from plrvo.training.watch import Watch


def unsupported_layers(module: nn.Module) -> list[str]:
    """The names of layers that own trainable parameters and have no rule; empty where book-keeping works."""
    return [f"{name or 'module'} ({type(m).__name__})" for name, m in _owners(module) if rule_of(m) is None]


def _owners(module: nn.Module) -> list[tuple[str, nn.Module]]:
    return [
        (name, m) for name, m in module.named_modules() if any(p.requires_grad for p in m.parameters(recurse=False))
    ]


class Book:
    """Contributions by parameter, of the batch whose forward pass came last. Copies and pickles of it are empty."""

    def __init__(self) -> None:
        self.batch_size = 0
        self._contributions: dict[nn.Parameter, list[Contribution]] = defaultdict(list)

    def __reduce__(self) -> Any:
        return Book, ()

    def add(self, parameter: nn.Parameter, contribution: Contribution) -> None:
        self._contributions[parameter].append(contribution)

    def contributions(self, parameter: nn.Parameter) -> list[Contribution]:
        """Empty for a parameter that the loss does not depend on."""
        return self._contributions.get(parameter, [])

    def release(self, parameter: nn.Parameter) -> list[Contribution]:
        """The contributions, which the book lets go of."""
        return self._contributions.pop(parameter, [])

    def clear(self) -> None:
        self._contributions.clear()

    @property
    def kept(self) -> list[nn.Parameter]:
        """The parameters that have contributions."""
        return list(self._contributions)

    @property
    def is_empty(self) -> bool:
        return not self._contributions


class _Tap(torch.autograd.Function):
    """Hands on a layer's output unchanged; shows its gradient, with the layer's input, on the way back.

    `handle` requires a gradient and gets none: it makes the pass reach the layers whose input requires none. The
    output is marked as written to, which hands on the very tensor, so that it may be changed in place afterwards.
    """

    @staticmethod
    def forward(ctx: Any, output: Tensor, handle: Tensor, x: Tensor, show: Any) -> Tensor:
        ctx.show = show
        ctx.save_for_backward(x)
        ctx.mark_dirty(output)
        return output

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, None, None, None]:
        (x,) = ctx.saved_tensors
        ctx.show(x, gradient)
        return gradient if ctx.needs_input_grad[0] else None, None, None, None


class BookkeepingModule(AbstractGradSampleModule):
    """Wraps a module whose layers all have a rule.

    While a layer computes its output its parameters are detached, so that autograd computes no weight gradient. A
    parameter that is used in another way (not by calling its layer) would get an unclipped gradient: the backward
    pass is stopped with an error. All hooks are on the module itself, so that it does not matter whether the wrapper
    or the module is called.
    """

    def __init__(
        self,
        m: nn.Module,
        *,
        batch_first: bool = True,
        loss_reduction: str = "mean",
        public_loss_weights: bool = False,
    ) -> None:
        super().__init__(m, batch_first=batch_first, loss_reduction=loss_reduction)
        self.book = Book()
        self._is_comparing = False
        self._handle = torch.zeros((), requires_grad=True)
        self._hooks: list[Any] = []
        self._attached: dict[nn.Module, dict[str, Any]] = {}
        names = {p: name for name, p in m.named_parameters()}
        # Rules are tried out on their layers, so they come before any hook; the watch is to see a pass first.
        rules = [(name, layer, rule_of(layer)) for name, layer in _owners(m)]
        self.watch = Watch(
            unwrapped(m),
            reduction=loss_reduction,
            per_example=self._gradients,
            public_weights=public_loss_weights,
            on_rows=self._open_book,
        )
        for name, layer, rule in rules:
            if rule is None:
                raise NotImplementedError(f"{name} ({type(layer).__name__}) has no rule for book-keeping")
            self._watch(name, layer, rule)
        self.watch.see_outputs()
        parameters: list[Any] = [p for p in m.parameters() if p.requires_grad]
        for p in parameters:
            self._hooks.append(p.register_post_accumulate_grad_hook(partial(_refuse, names[p])))

    def _open_book(self, rows: int) -> None:
        if not self.book.is_empty:
            raise ValueError(
                "a second pass before optimizer.step() or zero_grad(): gradients of two batches must not mix; "
                "use BatchMemoryManager for batches that do not fit into memory"
            )
        self.book.batch_size = rows

    def _gradients(self, score: Callable[[], Tensor], rows: int) -> dict[nn.Parameter, Tensor]:
        """What the book holds of a few rows, in full: for comparison with autograd."""
        self._is_comparing, batch_size = True, self.book.batch_size
        try:
            self.book.batch_size = rows
            total: Any = score()
            total.backward()
            return {p: torch.stack([c.per_example() for c in self.book.release(p)]).sum(dim=0) for p in self.book.kept}
        finally:
            self._is_comparing, self.book.batch_size = False, batch_size
            self.book.clear()

    def zero_grad(self, set_to_none: bool = False) -> None:
        self.book.clear()
        super().zero_grad(set_to_none)

    def remove_hooks(self) -> None:
        self.watch.remove()
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()

    def _watch(self, name: str, layer: nn.Module, rule: Rule) -> None:
        self._hooks += [
            layer.register_forward_pre_hook(self._detach_parameters, with_kwargs=True),
            layer.register_forward_hook(partial(self._tap, name, rule), with_kwargs=True, always_call=True),
        ]

    def _detach_parameters(self, layer: nn.Module, args: Any, kwargs: Any) -> Any:
        if not self._is_recording():
            return None
        self._attached[layer] = dict(layer._parameters)
        for name, p in self._attached[layer].items():
            if p is not None:
                layer._parameters[name] = p.detach()
        if isinstance(layer, nn.Embedding) and args and len(args[0]) == 1 < self.book.batch_size:
            # Position numbers come once for all examples; each example needs its own gradient of them.
            return (args[0].expand(self.book.batch_size, *args[0].shape[1:]), *args[1:]), kwargs
        return None

    def _tap(self, name: str, rule: Rule, layer: nn.Module, args: Any, kwargs: Any, output: Any) -> Any:
        attached = self._attached.pop(layer, None)
        if attached is None:
            return None
        layer._parameters.update(attached)
        if not isinstance(output, Tensor):  # the layer failed; its own error is under way
            return None
        x = args[0] if args else next(iter(kwargs.values()))

        @in_full_precision
        def show(x: Tensor, gradient: Tensor) -> None:
            if self.book.batch_size == 0:
                return  # no examples, no contributions, whatever the module works on in their place
            if not (self.watch.in_backward or self._is_comparing):
                return  # a gradient for something else than the step, such as that of an input
            if len(gradient) != self.book.batch_size:
                raise RuntimeError(
                    f"{name}: {len(gradient)} rows in a batch of {self.book.batch_size} examples; "
                    "book-keeping needs the example as the first dimension of every layer"
                )
            # Halves are widened before anything is multiplied: clipping and sums have singles at least.
            for parameter, contribution in rule(layer, wide(x.detach()), wide(gradient)):
                self.book.add(parameter, contribution)

        tap: Any = _Tap.apply
        return tap(output, self._handle, x, show)

    def _is_recording(self) -> bool:
        """Not while the module is tried out, except for the pass that is compared."""
        return torch.is_grad_enabled() and self.training and (self._is_comparing or not self.watch.is_trying)


def _refuse(name: str, parameter: Tensor) -> None:
    parameter.grad = None
    raise RuntimeError(
        f"{name} got a gradient that is not clipped: it is used without calling its layer "
        "(grad_sample_mode='hooks' may do), or the model is not in training mode (call train())"
    )
