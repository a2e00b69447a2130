"""The bracket of epsilons, and what every ledger can be asked for."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from plrvo.accounting.certified import Certificate
from plrvo.accounting.printed import rounded_down, rounded_up
from plrvo.accounting.workload import Workload
from plrvo.noise.base import Noise
from plrvo.validate import native


@dataclass(frozen=True)
class Epsilon:
    """An epsilon as a bracket, never a bare number that could be mistaken for another.

    Attributes:
        certified: a proved upper bound, which a guarantee may rest on.
        lower: what an attacker provably reaches; no valid epsilon is below it.
        published: the paper's formula, which is not a bound; None where it does not apply.
        delta: the delta at which all three hold.
        method: which proof gave `certified`: "rdp", "pure", "pld", "exact" (Gaussian noise without sampling), or for
            other noise "gdp" (by Gaussian steps that show at least as much), "gift" (by Gaussian steps of the same
            energy and one for the whole run) or "profile" (by a pair that dominates every gradient).
        order: the moment order of `certified` (None unless by "rdp").
    """

    certified: float
    lower: float
    published: float | None
    delta: float
    method: str
    order: int | None

    def __post_init__(self) -> None:
        native(self)

    def __str__(self) -> str:
        """Three digits of each, rounded to the side on which they stay true."""
        published = "" if self.published is None else f", published {self.published:.3g}"
        found = f"certified {rounded_up(self.certified, 3)}, lower {rounded_down(self.lower, 3)}"
        return f"{found}{published} (delta {self.delta:g})"

    @property
    def published_is_refuted(self) -> bool:
        """Whether an attack provably exceeds the published figure."""
        return self.published is not None and self.published < self.lower


class AnyLedger(ABC):
    """What has been released, and what it costs."""

    entries: Any  # noises with their workloads, a field of one kind and computed by another: tuple[Entry, ...]
    correlation: Any  # how the noise of different steps hangs together, None if it does not
    layered: Any  # a field: whether parts of a gradient have clips of their own, within the clip that is charged

    @property
    def steps(self) -> int:
        return sum(work.steps for _, work in self.entries)

    @abstractmethod
    def plus(self, noise: Noise, work: Workload) -> AnyLedger:
        """A ledger with so many more steps."""

    @abstractmethod
    def after(self, steps: int) -> AnyLedger | None:
        """The ledger as it was after so many steps; None where steps of several kinds came in an unknown order."""

    @abstractmethod
    def certified(self, delta: float) -> Certificate:
        """The certified epsilon alone: the smallest of all methods."""

    @abstractmethod
    def quick(self, delta: float) -> Certificate:
        """A certified epsilon in milliseconds, which may be larger: for searches, which end on `checked`."""

    def certified_by(self, method: str, delta: float) -> Certificate:
        """A certified epsilon, by this method if another one takes long: for searches near where it was the best."""
        return self.certified(delta)

    @abstractmethod
    def attacked(self, delta: float) -> float:
        """What the worst gradient within the clip that we know gives away; for a ledger with steps in it."""

    def lower(self, delta: float) -> float:
        """What an attacker provably reaches; for a ledger with steps in it.

        Where parts have their own clips (layers), gradients of the length of the whole clip have a share in each. For
        Gaussian noise that is as good as any other; for other noise it depends on parts that a ledger does not know.
        """
        unknown = self.layered and any(noise.gaussian_sigma is None for noise, _ in self.entries)
        return 0.0 if unknown else self.attacked(delta)

    @abstractmethod
    def published(self, delta: float) -> float | None:
        """The paper's formula, None where it does not apply; for a ledger with steps in it."""

    @abstractmethod
    def to_list(self) -> list[dict[str, Any]]:
        """Plain data, which `plrvo.accounting.correlated.read_ledger` turns back into an equal ledger."""

    def checked(self, delta: float) -> Certificate:
        """The certified epsilon, after the lower bound has not refuted it."""
        return self._checked(delta)[0]

    def epsilon(self, delta: float) -> Epsilon:
        """The whole bracket."""
        upper, lower = self._checked(delta)
        if not self.steps:
            return Epsilon(0.0, 0.0, 0.0, delta, upper.method, None)
        with np.errstate(over="ignore"):
            published = self.published(delta)
        return Epsilon(upper.value, lower, published, delta, upper.method, upper.order)

    def _checked(self, delta: float) -> tuple[Certificate, float]:
        upper = self.certified(delta)
        with np.errstate(over="ignore"):
            lower = self.lower(delta) if self.steps else 0.0
        if lower > upper.value:  # a bug, if it ever happens: better no number than a wrong one
            raise ArithmeticError(
                f"lower bound {lower} exceeds certified {upper.value}; please report {self.to_list()}"
            )
        return upper, lower
