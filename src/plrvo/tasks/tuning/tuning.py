"""A search, as it is asked for: a job, what varies in it, how many trials there are, and what it may cost."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from plrvo.accounting.selection import Count, NegativeBinomial, PoissonCount
from plrvo.noise import Keystream
from plrvo.tasks.job import NO_NOISE, Job, check_momentum
from plrvo.tasks.tuning.space import Values, vary_from_dict
from plrvo.validate import InvalidArgument, number, positive, probability, truth_value

if TYPE_CHECKING:
    from plrvo.tasks.tuning.run import Outcome

HELD_OUT = 0.1
_MOST_COMBINATIONS = 4096
# What has no proof together with a search, or makes no sense in one.
_REFUSED = ("plan", "correlation", "audit", "exact", "grid", "views", "unsafe_diagnostics")


class Distribution(StrEnum):
    """The law of the number of trials."""

    geometric = "geometric"
    poisson = "poisson"
    tnb = "tnb"


@dataclass(frozen=True)
class Tuning:
    """A job whose epsilon is that of the whole search, and the settings that every trial draws.

    `held_out` is the share of the private training data that trials are scored on, with noise. `eta` belongs to `tnb`:
    -1 to 0 has many searches of few trials and few of very many, 1 is geometric, more comes nearer to a fixed number.
    `keep_trials` releases all trials, and costs the sum of them.
    """

    job: Job
    vary: Mapping[str, Values]
    trials_mean: float = 10.0
    distribution: Distribution = Distribution.geometric
    eta: float | None = None
    held_out: float = HELD_OUT
    keep_trials: bool = False
    _count: Count = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "vary", MappingProxyType(dict(self.vary)))
        object.__setattr__(self, "distribution", Distribution(self.distribution))
        probability(held_out=self.held_out)
        truth_value(keep_trials=self.keep_trials)
        self._check_job()
        object.__setattr__(self, "_count", self._count_of())
        self._check_vary()
        if self.keep_trials and self.job.budget is not None:
            raise InvalidArgument(
                "keep_trials", True, "no value beside `budget`: the sum of the trials is not reserved"
            )

    @property
    def count(self) -> Count:
        """The law of the number of trials."""
        return self._count

    @property
    def epsilon(self) -> float:
        """What the whole search may cost."""
        if self.job.epsilon is None:
            raise InvalidArgument("epsilon", None, "the epsilon that the whole search may cost")
        return self.job.epsilon

    def run(
        self, out: Path, *, jobs: int = 1, engine: str = "loky", watch: Callable[[], None] | None = None
    ) -> Outcome:
        """Search, and release the best trial into `out`. `watch` is called when a trial is done."""
        from plrvo.tasks.tuning.run import begin, finish  # torch comes with it

        begin(self, out)
        return finish(out, jobs=jobs, engine=engine, watch=watch)

    def drawn(self, keystream: Keystream) -> dict[str, Any]:
        """The settings of one trial."""
        return {name: values.draw(keystream) for name, values in self.vary.items()}

    def _check_job(self) -> None:
        if not isinstance(self.job, Job):
            raise InvalidArgument("job", self.job, "a Job")
        if self.job.noise == NO_NOISE:
            raise InvalidArgument("noise", NO_NOISE, "a noise: without one there is nothing to pay for")
        for name in _REFUSED:
            if name in self.job.asked:
                raise InvalidArgument(name, self.job.asked[name], "no value in a search")
        positive(epsilon=self.epsilon)

    def _count_of(self) -> Count:
        number(trials_mean=self.trials_mean)
        if self.eta is not None and self.distribution is not Distribution.tnb:
            raise InvalidArgument("eta", self.eta, "`distribution` tnb beside it")
        if self.trials_mean < 1:  # below, the chance that nothing is released would be what pays for the rest
            raise InvalidArgument("trials_mean", self.trials_mean, "at least 1 trial on average")
        try:
            if self.distribution is Distribution.poisson:
                return PoissonCount(float(self.trials_mean))
            return NegativeBinomial.of_mean(float(self.trials_mean), 1.0 if self.eta is None else self.eta)
        except InvalidArgument as error:
            if error.argument in ("mean", "mu"):
                raise InvalidArgument("trials_mean", self.trials_mean, error.expected) from None
            raise

    def _check_vary(self) -> None:
        """Refuse, before anything is drawn, a search of which some trial could not be asked for."""
        if not self.vary:
            raise InvalidArgument("vary", None, "at least one setting with its values, such as lr=0.1:10:log")
        asked = self.job.asked
        for name in self.vary:
            if name in asked:
                raise InvalidArgument(name, asked[name], "no value beside `vary`, which draws it")
        ends = [values.ends for values in self.vary.values()]
        combinations = 1
        for values in ends:
            combinations *= len(values)
        if combinations > _MOST_COMBINATIONS:
            raise InvalidArgument("vary", combinations, f"at most {_MOST_COMBINATIONS} combinations of listed values")
        for chosen in itertools.product(*ends):
            settings = dict(zip(self.vary, chosen, strict=True))
            check_momentum(settings.get("optimizer", self.job.optimizer), asked | settings)
            replace(self.job, **settings)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, which `Tuning.from_dict` turns back."""
        return {
            "job": self.job.to_dict(),
            "vary": {name: values.to_dict() for name, values in self.vary.items()},
            "trials_mean": self.trials_mean,
            "distribution": str(self.distribution),
            "eta": self.eta,
            "held_out": self.held_out,
            "keep_trials": self.keep_trials,
        }

    @staticmethod
    def from_dict(description: Mapping[str, Any]) -> Tuning:
        """The search that `to_dict` described."""
        given = dict(description)
        return Tuning(Job.read(given.pop("job")), vary_from_dict(given.pop("vary")), **given)
