"""Any noise in Opacus's optimizers, by one mixin, and everything that binds a step to its plan.

A step clips and sums, counts itself, adds the noise to the sum, divides by the expected batch size and
calls the wrapped optimizer. It raises instead, before anything is released, unless

- its rows are one whole batch that the engine's sampler drew (`draws`);
- its gradients came from a loss that is a sum over examples, through the module that the engine watches (`watch`);
- the budget has a step left, over all optimizers that the engine has made.

What makes up the mechanism (noise, clip, dimension, generator) is fixed when the optimizer is made; without a plan, a
schedule may change the widths of noise and clip between steps (`schedulers`). Nothing without noise is ever on the
parameters, which may be copied and saved at any time. Noise is added once, by the process of rank 0 (or by each to its
share of the parameters, `sharded`), before any division.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any

import torch
from opacus.optimizers import DistributedDPOptimizer, DPOptimizer

from plrvo.accounting import Clipping
from plrvo.noise import GridNoise, Noise
from plrvo.noise.stretches import pieces
from plrvo.training.accountant import CertifiedAccountant
from plrvo.training.adaptive import AdaptiveMixin
from plrvo.training.averaging import WeightAverage
from plrvo.training.clipping import BookkeepingMixin, SamplesMixin, check_clip, shares_of
from plrvo.training.draws import BudgetExhausted, Draws
from plrvo.training.exact import ExactMixin
from plrvo.training.loss_form import NotASum
from plrvo.training.schedulers import Schedule
from plrvo.training.score import postprocessor
from plrvo.training.sharded_optimizer import ShardedMixin
from plrvo.training.strides import lay_out
from plrvo.training.together import agreed
from plrvo.training.watch import Watch
from plrvo.validate import InvalidArgument

# Opacus's classes have no types; a checker sees the mixin's neighbours as Any.
_Base: Any = object

# What the account rests on. Anything else, such as learning rates, is the user's.
_FIXED = {"noise", "noise_multiplier", "dimension", "generator", "max_grad_norm", "clipping", "clips", "loss_reduction"}
_FIXED |= {"accountant", "sample_rate", "draws", "watch", "most_steps", "step_hook", "rank", "world_size"}
_FIXED |= {"schedules", "first", "has_plan"}
_SCHEDULE = dict.fromkeys(
    ("noise", "noise_multiplier", "max_grad_norm"), "; schedules are in plrvo.training.schedulers"
)


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
        has_plan: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(optimizer, noise_multiplier=0.0, max_grad_norm=clip, generator=generator, **kwargs)
        self.dimension, self.clipping = dimension, clipping
        self.first, self.has_plan = (noise, clip), has_plan
        self.schedules: dict[str, Schedule] = {}
        self._factors_of = {"noise": 1.0, "clip": 1.0}
        self.accountant, self.sample_rate, self.most_steps = accountant, sample_rate, most_steps
        self.draws, self.watch = draws, watch
        watch.draws = draws
        self._begun: Any = None  # noise of the step under way, being drawn
        self.postprocess = postprocess
        self._use(noise, clip)
        self._hooks: list[Callable[[Any], None]] = []
        self._is_stepping = False
        self.average: WeightAverage | None = None  # of these weights, where one is kept
        self.around: Callable[[], AbstractContextManager[Any]] = nullcontext  # what each step is taken within
        optimizer.register_step_pre_hook(self._refuse_other_callers)
        self._is_sealed = True

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _FIXED and getattr(self, "_is_sealed", False):
            raise InvalidArgument(
                name, value, f"no change after make_private: the plan's account rests on it{_SCHEDULE.get(name, '')}"
            )
        super().__setattr__(name, value)

    def _use(self, noise: Noise, clip: float) -> None:
        """Noise and clip of the steps to come, and what follows from them."""
        check_clip(clip, self.clipping)
        clips = shares_of(clip, self.params) if self.clipping == "per_layer" else {}
        for name, value in {"noise": noise, "max_grad_norm": clip, "clips": clips}.items():
            super().__setattr__(name, value)
        self._after_noise = postprocessor(self.postprocess, noise)

    def follow(self, schedule: Schedule) -> None:
        """Take a schedule of the noise or of the clip, one of each."""
        known = type(schedule).__name__
        if self.has_plan:
            raise InvalidArgument(
                "optimizer", known, "one of an engine without a plan: a plan's certificate is for one noise and clip"
            )
        if schedule.what in self.schedules:
            raise InvalidArgument("optimizer", known, f"one schedule of the {schedule.what}; it has one")
        self.schedules[schedule.what] = schedule

    def rescale(self, *, noise: float | None = None, clip: float | None = None) -> None:
        """Widths from the next step on, for a schedule: multiplier and clip by these factors of the first ones."""
        if self.sums is not None:
            raise InvalidArgument("schedule", "step", "a step between batches, not between the parts of one")
        given = {name: value for name, value in (("noise", noise), ("clip", clip)) if value is not None}
        if any(name not in self.schedules for name in given):
            raise InvalidArgument("rescale", given, "a schedule (plrvo.training.schedulers), which says it in advance")
        factors = self._factors_of | given
        self._use(*self.rescaled(**factors))
        self._factors_of = factors

    def rescaled(self, noise: float, clip: float) -> tuple[Noise, float]:
        """Noise and clip by these factors; a grid stays as it is."""
        first, widest = self.first
        wider = first.before_rounding.scaled(noise * clip)
        return GridNoise(wider, first.cell) if first.cell else wider, widest * clip

    def __deepcopy__(self, memo: Any) -> Any:
        raise TypeError("a private optimizer is not copied: the copy would repeat its noise")

    def __reduce__(self) -> Any:
        raise TypeError("a private optimizer is not pickled: engine.save_checkpoint keeps its state")

    @property
    def noise_multiplier(self) -> float:
        """Opacus's parameter of Gaussian noise, to be read; of another noise there is none."""
        noise, clip = self.charged
        sigma = noise.before_rounding.gaussian_sigma
        if sigma is None:
            raise InvalidArgument(
                "noise_multiplier", None, "`optimizer.noise`: a multiplier, and a schedule of it, is Gaussian"
            )
        return float(sigma) / clip

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
    def charged(self) -> tuple[Noise, float]:
        """Noise and clip that a step is entered with: those that it has, or equivalent ones in other units."""
        return self.noise, self.clip

    @property
    def adapted(self) -> dict[str, float] | None:
        """Settings and present clip of adaptive clipping; None for another."""
        return None

    @property
    def steps_taken(self) -> int:
        """The steps in the engine's ledger."""
        return len(self.accountant)

    def attach_step_hook(self, fn: Callable[[Any], None]) -> None:
        """Call `fn` after each step's noise, besides the account, which no hook replaces."""
        self._hooks.append(fn)

    def draw_ahead(self) -> None:
        """Begin the noise of this step while gradients are clipped, where a core may have nothing to do.

        Not before: while gradients are computed, memory is at its peak. Of a step that fails the next one takes it.
        """
        is_ours = type(self).add_noise is NoiseMixin.add_noise and not hasattr(self, "world_size")
        if is_ours and self._begun is None:
            self._begun = self.noise.begin(self.params, self.generator)

    def add_noise(self) -> None:
        """p.grad = clipped sum + noise, at sum scale; the noise is added into the buffer of the sum.

        Sums of several processes are added up here, before anybody can see them: only the first one's has noise.
        """
        if getattr(self, "rank", 0) == 0:
            begun, self._begun = self._begun, None  # whatever happens, none of it is used again
            more = () if begun is None else (begun,)  # noise of one's own need not know of it
            self.noise.add_to(self.sums, self.generator, *more)
        if getattr(self, "world_size", 1) > 1:
            for total in self.sums:
                torch.distributed.all_reduce(total)
        self._hand_out()

    def _hand_out(self) -> None:
        for p, total in zip(self.params, self.sums, strict=True):
            p.grad = total.view_as(p)

    def scale_grad(self) -> None:
        """Divide by the expected batch size: all parameters in one call."""
        if self.loss_reduction == "mean":
            torch._foreach_div_([p.grad for p in self.params], self._divisor())

    def reduce_gradients(self) -> None:
        """Opacus's, for who calls it: they are added up already."""

    def zero_grad(self, set_to_none: bool = True) -> None:
        """As torch's: the last gradient is let go, whose memory the next pass has a use for."""
        super().zero_grad(set_to_none)
        self.watch.forget_gradients()
        if not self._is_last_step_skipped:
            self.draws.forget_part()

    def pre_step(self, closure: Callable[[], float] | None = None) -> bool:
        """Everything up to the noisy gradient in `p.grad`; False for a part of a batch that others follow."""
        try:
            last = not self._check_skip_next_step(pop_next=False)
            self._settle(last)
            if last:
                self.draw_ahead()
            self.clip_and_accumulate()
            self._check_skip_next_step()
            self._is_last_step_skipped = not last
            if not last:
                self._hear_again()
                return False
            # Counted before it is released: what fails in between is counted, and not the other way round.
            with agreed(self) if getattr(self, "world_size", 1) > 1 else nullcontext():
                self._count()
            self.add_noise()
        except BaseException:
            self._forget()
            raise
        self._forget()
        lay_out(self.params)
        self.scale_grad()
        for hook in self._hooks:
            hook(self)
        self._hear_again()
        return True

    def _count(self) -> None:
        noise, clip = self.charged
        self.accountant.step(
            noise=noise,
            sample_rate=self.sample_rate,
            clip=clip,
            dimension=self.dimension,
            layered=self.clipping.layered,
        )

    def _settle(self, last: bool) -> None:
        """Refuse a step that the account does not cover, or that would be lost."""
        if self.average is not None:
            self.average.refuse_in_place("optimizer.step")
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
        self.watch.new_step(last)

    def _forget(self) -> None:
        """Keep nothing that has no noise."""
        self.sums = None
        self.book.clear()

    def step(self, closure: Callable[[], float] | None = None) -> Any:
        if closure is not None:
            with torch.enable_grad():
                closure()
        with self.around():
            if not self.pre_step():
                return None
            self._use_released()
            self.watch.pause()
            self._is_stepping = True
            try:
                return self.original_optimizer.step()
            finally:
                self._is_stepping = False
                self._hear_again()

    def _hear_again(self) -> None:
        """What the loop makes of the module's outputs after the step; after the last one nothing comes of it."""
        if self.most_steps is None or self.steps_taken < self.most_steps:
            self.watch.go_on()
        else:
            self.watch.draws = None

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
            for piece in pieces(self._here(p.grad)):
                piece.copy_(self._after_noise(piece * divisor) / divisor)

    def _here(self, gradient: Any) -> Any:
        """What of a gradient is in this process."""
        return gradient

    def _divisor(self) -> float:
        if self.loss_reduction == "sum":
            return 1.0
        return float(self.expected_batch_size) * getattr(self, "world_size", 1)


@cache
def optimizer_class(
    distributed: bool, grad_sample_mode: str, exact: bool = False, adaptive: bool = False, sharded: bool = False
) -> type[DPOptimizer]:
    """Opacus's optimizer with the mixins in front of it."""
    base = DistributedDPOptimizer if distributed else DPOptimizer
    clips = BookkeepingMixin if grad_sample_mode == "bookkeeping" else SamplesMixin
    # Exact sums are of flat clipping: there is no more than one in front.
    front = (ExactMixin,) if exact else (AdaptiveMixin,) if adaptive else (ShardedMixin,) if sharded else ()
    return type(f"Noisy{base.__name__}", (*front, NoiseMixin, clips, base), {})
