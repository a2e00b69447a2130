"""Any noise in any of Opacus's optimizers, by one mixin.

Opacus clips and sums (`summed_grad`), then calls `add_noise`, divides by the expected batch size, calls the step hook
(the accountant) and the wrapped optimizer. The mixin replaces `add_noise` and nothing before it, so that per-example
hooks, ghost clipping and their distributed forms all release the same thing: the clipped sum plus `noise`.

Noise is added once, by the process of rank 0, to the sum, before any division. A step beyond the budget is refused
before anything is released.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from opacus.optimizers import DPOptimizer, get_optimizer_class
from opacus.optimizers.optimizer import _check_processed_flag, _mark_as_processed

from plrvo.noise import Noise
from plrvo.training.clipping import BookkeepingMixin
from plrvo.training.exact import ExactMixin
from plrvo.training.score import postprocessor
from plrvo.validate import InvalidArgument

# Opacus's classes have no types; a checker sees the mixin's neighbours as Any.
_Base: Any = object


class BudgetExhausted(RuntimeError):
    """The plan's steps have been taken; one more would exceed its budget."""


class NoiseMixin(_Base):
    """Goes in front of an Opacus optimizer class; see the module's docstring."""

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        *,
        noise: Noise,
        dimension: int,
        generator: torch.Generator,
        postprocess: str | None = None,
        most_steps: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(optimizer, noise_multiplier=0.0, generator=generator, **kwargs)
        self.noise, self.dimension = noise, dimension
        self.postprocess = postprocess
        self._after_noise = postprocessor(postprocess, noise)
        self.most_steps, self.steps_taken = most_steps, 0

    @property
    def noise_multiplier(self) -> float:
        """Opacus's parameter of Gaussian noise, which the noise object replaces: nothing may read or schedule it."""
        raise InvalidArgument(
            "noise_multiplier", None, "`optimizer.noise`: a multiplier, and a schedule of it, is Gaussian"
        )

    @noise_multiplier.setter
    def noise_multiplier(self, value: float) -> None:
        if hasattr(self, "noise"):
            raise InvalidArgument("noise_multiplier", value, "no change: make a plan with another noise")

    @property
    def clip(self) -> float:
        """The l2 norm (l1, where that is clipped) that no example's gradient exceeds."""
        layers: list[float] | None = getattr(self, "max_grad_norms", None)
        return float(self.max_grad_norm) if layers is None else math.hypot(*layers)

    def add_noise(self) -> None:
        """p.grad = clipped sum + noise, at sum scale; the noise is added into the buffer of the sum."""
        parameters: list[Any] = self.params
        for p in parameters:
            _check_processed_flag(p.summed_grad)
        if getattr(self, "rank", 0) == 0:
            self.noise.add_to([p.summed_grad for p in parameters], self.generator)
        for p in parameters:
            p.grad = p.summed_grad.view_as(p)
            _mark_as_processed(p.summed_grad)

    def scale_grad(self) -> None:
        """Divide by the expected batch size: all parameters in one call."""
        if self.loss_reduction == "mean":
            torch._foreach_div_([p.grad for p in self.params], self.expected_batch_size * self.accumulated_iterations)

    def pre_step(self, closure: Callable[[], float] | None = None) -> Any:
        last_of_batch = not self._check_skip_next_step(pop_next=False)
        if last_of_batch and self.most_steps is not None and self.steps_taken >= self.most_steps:
            raise BudgetExhausted(
                f"steps={self.steps_taken + 1}: expected at most {self.most_steps}, which the plan's budget covers; "
                "make a plan with more steps"
            )
        if not super().pre_step(closure):
            return False
        self.steps_taken += 1
        return True

    def step(self, closure: Callable[[], float] | None = None) -> Any:
        if closure is not None:
            with torch.enable_grad():
                closure()
        if not self.pre_step():
            return None
        if hasattr(self, "reduce_gradients"):
            self.reduce_gradients()
        self._use_released()
        return self.original_optimizer.step()

    def _use_released(self) -> None:
        """Post-processing works at sum scale, on the sum over all processes."""
        if self._after_noise is None:
            return
        divisor = self._divisor()
        for p in self.params:
            p.grad = self._after_noise(p.grad * divisor) / divisor

    def _divisor(self) -> float:
        if self.loss_reduction == "sum":
            return 1.0
        return float(self.expected_batch_size) * getattr(self, "world_size", 1)


class L1ClippingMixin(_Base):
    """Clips each example's gradient to l1 norm `max_grad_norm`: the classical Laplace mechanism."""

    def clip_and_accumulate(self) -> None:
        samples: list[torch.Tensor] = self.grad_samples
        norms = torch.stack([g.reshape(len(g), -1).abs().sum(dim=1) for g in samples], dim=1).sum(dim=1)
        factors = (self.max_grad_norm / (norms + 1e-12)).clamp(max=1.0)
        for p, sample in zip(self.params, samples, strict=True):
            _check_processed_flag(p.grad_sample)
            total = torch.einsum("i,i...", factors.to(sample), sample).to(p.dtype)
            p.summed_grad = total if p.summed_grad is None else p.summed_grad + total
            _mark_as_processed(p.grad_sample)


@cache
def optimizer_class(clipping: str, distributed: bool, grad_sample_mode: str, exact: bool = False) -> type[DPOptimizer]:
    """Opacus's optimizer for this mode with the mixin in front of it."""
    if clipping == "adaptive":
        raise InvalidArgument("clipping", clipping, "flat: adaptive clipping splits a Gaussian noise multiplier")
    if grad_sample_mode == "ghost_fsdp":
        raise InvalidArgument("grad_sample_mode", grad_sample_mode, "ghost: under FSDP every rank adds its own noise")
    mixins: tuple[type, ...] = (ExactMixin, NoiseMixin) if exact else (NoiseMixin,)
    if grad_sample_mode == "bookkeeping":
        grad_sample_mode, mixins = "hooks", (NoiseMixin, BookkeepingMixin)
    if clipping == "l1":
        if grad_sample_mode == "ghost":
            raise InvalidArgument("grad_sample_mode", grad_sample_mode, "hooks: ghost clipping knows l2 norms only")
        clipping, mixins = "flat", (NoiseMixin, L1ClippingMixin)
    try:
        base = get_optimizer_class(clipping=clipping, distributed=distributed, grad_sample_mode=grad_sample_mode)
    except ValueError as error:
        raise InvalidArgument("clipping", clipping, f"flat, per_layer or l1 in a mode that has it ({error})") from None
    return type(f"Noisy{base.__name__}", (*mixins, base), {})
