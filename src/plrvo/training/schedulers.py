"""Schedules of noise and clip: Opacus's, by their names and call forms, with every step entered as it was taken.

    scheduler = ExponentialNoise(optimizer, gamma=0.99)
    for ...: optimizer.step(); scheduler.step()

After k calls of `scheduler.step()` the noise multiplier (the clip) is what `make_private` was given times `factor(k)`.
As in Opacus the multiplier is that of the clip, so a smaller clip has its noise made narrower with it; and any noise
has a schedule here, since `noise.scaled(factor)` is its shape with another width. The optimizer clips to, adds and
enters in the ledger the one pair (noise, clip) that it has at that step, so that nothing can be charged that was not
used. The ledger composes steps of different kinds, and a receipt has them all (`Plan.stages`).

**What has to be true.** Steps of fixed kinds compose to what the ledger computes. Kinds that are chosen by looking at
earlier releases do not: which noise comes next would be part of what is released. So a factor is a number that depends
on k alone, and when `step()` is called depends on counts of steps or epochs alone, not on a metric. Nobody can check
that from inside. (A clip that follows the data at a fixed multiplier is `clipping="adaptive"`.)

A plan has one noise and, with a budget, one certificate: schedules are for engines without a plan.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from plrvo.validate import InvalidArgument, positive, positive_integer


class Schedule:
    """Sets one of the optimizer's factors, "noise" or "clip", now and in each `step()`.

    `last_epoch` is how many steps it has taken, less one, as in PyTorch.
    """

    what: ClassVar[str]

    def __init__(self, optimizer: Any, *, last_epoch: int = -1) -> None:
        if not hasattr(optimizer, "follow"):
            raise InvalidArgument("optimizer", type(optimizer).__name__, "the one that make_private returned")
        if type(last_epoch) is not int or last_epoch < -1:
            raise InvalidArgument("last_epoch", last_epoch, "-1, or the number of steps that it has taken before")
        self.optimizer = optimizer
        self.last_epoch = last_epoch
        self.checked_factor(last_epoch + 1)  # before anybody knows of it
        optimizer.follow(self)
        self.step()

    def factor(self, epoch: int) -> float:
        """What the first value is multiplied by after so many steps."""
        raise NotImplementedError

    def step(self) -> None:
        """Go on by one."""
        self._go_to(self.last_epoch + 1)

    def _go_to(self, epoch: int) -> None:
        self.optimizer.rescale(**{self.what: self.checked_factor(epoch)})
        self.last_epoch = epoch

    def checked_factor(self, epoch: int) -> float:
        """`factor`, a number above zero."""
        value = self.factor(epoch)
        positive(**{f"{self.what}_factor": value})
        return float(value)

    def described(self) -> dict[str, Any]:
        """What it does, as far as plain data can say it: to be compared."""
        return {"schedule": type(self).__name__}

    def state_dict(self) -> dict[str, Any]:
        """Plain data; a function of one's own is not in it."""
        return {**self.described(), "last_epoch": self.last_epoch}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go on where `state_dict` was called; the factor of that step is set at once."""
        epoch = state_dict.get("last_epoch")
        if dict(state_dict) != {**self.described(), "last_epoch": epoch} or type(epoch) is not int or epoch < 0:
            raise InvalidArgument("state_dict", dict(state_dict), f"one of {self.described()}")
        self._go_to(epoch)


class _Exponential(Schedule):
    """Multiplied by gamma in every step."""

    def __init__(self, optimizer: Any, *, gamma: float, last_epoch: int = -1) -> None:
        positive(gamma=gamma)
        self.gamma = gamma
        super().__init__(optimizer, last_epoch=last_epoch)

    def factor(self, epoch: int) -> float:
        return self.gamma**epoch

    def described(self) -> dict[str, Any]:
        return {**super().described(), "gamma": self.gamma}


class _Step(_Exponential):
    """Multiplied by gamma in every step whose number is a multiple of `step_size`."""

    def __init__(self, optimizer: Any, *, step_size: int, gamma: float, last_epoch: int = -1) -> None:
        positive_integer(step_size=step_size)
        self.step_size = step_size
        super().__init__(optimizer, gamma=gamma, last_epoch=last_epoch)

    def factor(self, epoch: int) -> float:
        return super().factor(epoch // self.step_size)

    def described(self) -> dict[str, Any]:
        return {**super().described(), "step_size": self.step_size}


class ExponentialNoise(_Exponential):
    """The noise multiplier times gamma in every step."""

    what = "noise"


class StepNoise(_Step):
    """The noise multiplier times gamma in every `step_size`-th step."""

    what = "noise"


class LambdaNoise(Schedule):
    """The first noise multiplier times `noise_lambda(k)` after k steps; the factors do not accumulate."""

    what = "noise"

    def __init__(self, optimizer: Any, *, noise_lambda: Callable[[int], float], last_epoch: int = -1) -> None:
        self.noise_lambda = noise_lambda
        super().__init__(optimizer, last_epoch=last_epoch)

    def factor(self, epoch: int) -> float:
        return self.noise_lambda(epoch)


class ExponentialGradClip(_Exponential):
    """The clip times gamma in every step, and the noise with it."""

    what = "clip"


class StepGradClip(_Step):
    """The clip times gamma in every `step_size`-th step, and the noise with it."""

    what = "clip"


class LambdaGradClip(Schedule):
    """The first clip times `scheduler_function(k)` after k steps, and the noise with it."""

    what = "clip"

    def __init__(self, optimizer: Any, *, scheduler_function: Callable[[int], float], last_epoch: int = -1) -> None:
        self.scheduler_function = scheduler_function
        super().__init__(optimizer, last_epoch=last_epoch)

    def factor(self, epoch: int) -> float:
        return self.scheduler_function(epoch)
