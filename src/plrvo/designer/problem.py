"""What is asked of the designer: a task, a budget, a range for the clip, and the box in which noises are sought."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from plrvo import validate
from plrvo.accounting import Workload


class Accountant(StrEnum):
    """Which epsilon has to meet the budget: the proved bound, or the paper's formula (which is not a bound)."""

    certified = "certified"
    published = "published"


@dataclass(frozen=True)
class Point:
    """A candidate (k, theta, C)."""

    k: float
    theta: float
    clip: float

    @property
    def snr(self) -> float:
        """J = C (k-1) theta, the clip over E|z|."""
        return self.clip * (self.k - 1) * self.theta


@dataclass(frozen=True)
class Limits:
    """The box around the search.

    Attributes:
        tail: the largest P(u < 1/widest) that c1 allows: how often a coordinate's Laplace scale may exceed `widest`.
        widest: the largest E|z| that c4 allows, in the units of the clip.
        k_max: the largest k. J grows with k towards its Laplace limit in all but low dimensions, losing about 1/k of
            it, so that without a bound there is no optimum; at the default the loss is a millionth.
    """

    tail: float = 1e-3
    widest: float = 10.0
    k_max: float = 1e6

    def __post_init__(self) -> None:
        validate.probability(tail=self.tail)
        validate.positive(widest=self.widest, k_max=self.k_max)
        if self.k_max <= K_MIN:
            raise validate.InvalidArgument("k_max", self.k_max, f"more than {K_MIN}")


# c3 asks for k > 1; E|z| = 1/((k-1) theta) is already meaningless this close to it.
K_MIN = 1.001
LARGEST_CLIP = 1e50  # moments have powers of it


@dataclass(frozen=True)
class Problem:
    """Maximise J over (k, theta, C). `work.clip` is the smallest clip, `clip_max` the largest."""

    work: Workload
    clip_max: float
    epsilon: float
    delta: float
    accountant: Accountant = Accountant.certified
    limits: Limits = Limits()

    def __post_init__(self) -> None:
        validate.positive(epsilon=self.epsilon, clip_max=self.clip_max)
        for name, clip in (("clip", self.work.clip), ("clip_max", self.clip_max)):
            check_clip(name, clip)
        validate.probability(delta=self.delta)
        if self.clip_max < self.work.clip:
            raise validate.InvalidArgument("clip_max", self.clip_max, f"at least `clip_min`, {self.work.clip:g}")

    @property
    def clip_min(self) -> float:
        return self.work.clip

    def work_at(self, clip: float) -> Workload:
        return replace(self.work, clip=clip)


def check_clip(name: str, clip: float) -> None:
    """Refuse what a search, or the numbers of a model, have no room for."""
    if not 1 / LARGEST_CLIP <= clip <= LARGEST_CLIP:
        expected = f"from {1 / LARGEST_CLIP:g} to {LARGEST_CLIP:g}: clip and noise in other units"
        raise validate.InvalidArgument(name, clip, expected)


def read_accountant(name: str) -> Accountant:
    """The accountant of that name."""
    try:
        return Accountant(name)
    except ValueError:
        raise validate.InvalidArgument("accountant", name, "certified or published") from None
