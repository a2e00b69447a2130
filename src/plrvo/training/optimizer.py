"""Any noise in Opacus's optimizers, by one mixin, and everything that binds a step to its plan.

A step clips and sums, counts itself, adds the noise to the sum, divides by the expected batch size and
calls the wrapped optimizer. It raises instead, before anything is released, unless

- its rows are one whole batch that the engine's sampler drew (`draws`);
- its gradients came from a loss that is a sum over examples, through the module that the engine watches (`watch`);
- the budget has a step left, over all optimizers that the engine has made.

What makes up the mechanism (noise, clip, dimension, generator) is fixed when the optimizer is made. Nothing without
noise is ever on the parameters, which may be copied and saved at any time. Noise is added once, by the process of rank
0, before any division.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from opacus.optimizers import DistributedDPOptimizer, DPOptimizer

from plrvo.accounting import Clipping
from plrvo.noise import Noise
from plrvo.training.accountant import CertifiedAccountant
from plrvo.training.clipping import BookkeepingMixin, SamplesMixin, check_clip, shares_of
from plrvo.training.draws import BudgetExhausted, Draws
from plrvo.training.exact import ExactMixin
from plrvo.training.loss_form import NotASum
from plrvo.training.score import postprocessor
from plrvo.training.watch import Watch
from plrvo.validate import InvalidArgument

# Opacus's classes have no types; a checker sees the mixin's neighbours as Any.
_Base: Any = object

# What the account rests on. Anything else, such as learning rates, is the user's.
_FIXED = {"noise", "noise_multiplier", "dimension", "generator", "max_grad_norm", "clipping", "clips", "loss_reduction"}
_FIXED |= {"accountant", "sample_rate", "draws", "watch", "most_steps", "step_hook", "rank", "world_size"}


class NoiseMixin(_Base):
    """Goes in front of an Opacus optimizer class; see the module's docstring."""

    sums: Any  # what the mixin behind this one has clipped

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        *,
        noise: Noise,
        dimension: int,
        generator: Any,
        clipping: Clipping,
        clip: float,
        accountant: CertifiedAccountant,
        sample_rate: float,
        draws: Draws,
        watch: Watch,
        postprocess: str | None = None,
        most_steps: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(optimizer, noise_multiplier=0.0, max_grad_norm=clip, generator=generator, **kwargs)
        self.noise, self.dimension, self.clipping = noise, dimension, clipping
        check_clip(clip)
        self.clips = shares_of(clip, self.params) if clipping == "per_layer" else {}
        self.accountant, self.sample_rate, self.most_steps = accountant, sample_rate, most_steps
        self.draws, self.watch = draws, watch
        self.postprocess = postprocess
        self._after_noise = postprocessor(postprocess, noise)
        self._hooks: list[Callable[[Any], None]] = []
        self._is_stepping = False
        optimizer.register_step_pre_hook(self._refuse_other_callers)
        self._is_sealed = True

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _FIXED and getattr(self, "_is_sealed", False):
            raise InvalidArgument(name, value, "no change after make_private: the plan's account rests on it")
        super().__setattr__(name, value)

    def __deepcopy__(self, memo: Any) -> Any:
        raise TypeError("a private optimizer is not copied: the copy would repeat its noise")

    def __reduce__(self) -> Any:
        raise TypeError("a private optimizer is not pickled: engine.save_checkpoint keeps its state")

    @property
    def noise_multiplier(self) -> float:
        """Opacus's parameter of Gaussian noise, to be read; of another noise there is none."""
        sigma = self.noise.before_rounding.gaussian_sigma
        if sigma is None:
            raise InvalidArgument(
                "noise_multiplier", None, "`optimizer.noise`: a multiplier, and a schedule of it, is Gaussian"
            )
        return float(sigma) / self.clip

    @noise_multiplier.setter
    def noise_multiplier(self, value: float) -> None:
        """Opacus's constructor sets it; afterwards `__setattr__` refuses."""

    @property
    def _step_supports_amp_scaling(self) -> bool:
        raise InvalidArgument(
            "GradScaler",
            "step",
            "loss.backward() and optimizer.step(): a scaler skips steps by gradients before the noise",
        )

    @property
    def clip(self) -> float:
        """The l2 norm (l1, where that is clipped) that no example's gradient exceeds."""
        return float(self.max_grad_norm)

    @property
    def steps_taken(self) -> int:
        """The steps in the engine's ledger."""
        return len(self.accountant)

    def attach_step_hook(self, fn: Callable[[Any], None]) -> None:
        """Call `fn` after each step's noise, besides the account, which no hook replaces."""
        self._hooks.append(fn)

    def add_noise(self) -> None:
        """p.grad = clipped sum + noise, at sum scale; the noise is added into the buffer of the sum."""
        if getattr(self, "rank", 0) == 0:
            self.noise.add_to(self.sums, self.generator)
        for p, total in zip(self.params, self.sums, strict=True):
            p.grad = total.view_as(p)

    def scale_grad(self) -> None:
        """Divide by the expected batch size: all parameters in one call."""
        if self.loss_reduction == "mean":
            torch._foreach_div_([p.grad for p in self.params], self.expected_batch_size)

    def zero_grad(self, set_to_none: bool = False) -> None:
        super().zero_grad(set_to_none)
        self.watch.forget_gradients()
        if not self._is_last_step_skipped:
            self.draws.forget_part()

    def pre_step(self, closure: Callable[[], float] | None = None) -> bool:
        """Everything up to the noisy gradient in `p.grad`; False for a part of a batch that others follow."""
        try:
            last = not self._check_skip_next_step(pop_next=False)
            self._settle(last)
            self.clip_and_accumulate()
            self._check_skip_next_step()
            self._is_last_step_skipped = not last
            if not last:
                return False
            # Counted before it is released: what fails in between is counted, and not the other way round.
            self.accountant.step(
                noise=self.noise,
                sample_rate=self.sample_rate,
                clip=self.clip,
                dimension=self.dimension,
                layered=self.clipping.layered,
            )
            self.add_noise()
        except BaseException:
            self._forget()
            raise
        self._forget()
        self.scale_grad()
        for hook in self._hooks:
            hook(self)
        return True

    def _settle(self, last: bool) -> None:
        """Refuse a step that the account does not cover."""
        if last and self.most_steps is not None and self.steps_taken >= self.most_steps:
            raise BudgetExhausted(
                f"steps={self.steps_taken + 1}: expected at most {self.most_steps}, which the plan's budget covers; "
                "make a plan with more steps"
            )
        rows = self.rows
        if self.draws.is_at_a_batch:
            self.sums = None  # of parts that were left behind, whose batch has come again
        self.draws.part(rows, last=last)
        if rows and not self.watch.seen_loss:
            raise NotASum("a step whose loss was not seen: expected loss.backward() before optimizer.step()")
        if self.watch.learned_before:
            raise NotASum(
                "a step whose gradients went on to parameters in front of the module (an encoder, a prompt), which "
                "would learn without noise: expected inputs that nothing is learned from; make them part of the "
                "module, or detach() its inputs"
            )
        self.watch.new_step()

    def _forget(self) -> None:
        """Keep nothing that has no noise."""
        self.sums = None
        self.book.clear()

    def step(self, closure: Callable[[], float] | None = None) -> Any:
        if closure is not None:
            with torch.enable_grad():
                closure()
        if not self.pre_step():
            return None
        if hasattr(self, "reduce_gradients"):
            self.reduce_gradients()
        self._use_released()
        self._is_stepping = True
        try:
            return self.original_optimizer.step()
        finally:
            self._is_stepping = False

    def _refuse_other_callers(self, *_: Any) -> None:
        if not self._is_stepping:
            raise InvalidArgument(
                "optimizer", "step", "the optimizer that make_private returned; a step of the original one has no noise"
            )

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


@cache
def optimizer_class(distributed: bool, grad_sample_mode: str, exact: bool = False) -> type[DPOptimizer]:
    """Opacus's optimizer with the mixins in front of it."""
    base = DistributedDPOptimizer if distributed else DPOptimizer
    clips = BookkeepingMixin if grad_sample_mode == "bookkeeping" else SamplesMixin
    mixins = (ExactMixin, NoiseMixin, clips) if exact else (NoiseMixin, clips)
    return type(f"Noisy{base.__name__}", (*mixins, base), {})
