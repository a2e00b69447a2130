"""The epsilon bracket, of one noise and workload or of a ledger of different ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from plrvo import validate
from plrvo.accounting.bracket import AnyLedger, Epsilon
from plrvo.accounting.by_loss import Entry
from plrvo.accounting.certified import Certificate, certified_delta, certified_epsilon, quick_epsilon
from plrvo.accounting.lower import lower_loss
from plrvo.accounting.published import published_epsilon
from plrvo.accounting.workload import Workload
from plrvo.noise.base import Noise
from plrvo.validate import InvalidArgument


@dataclass(frozen=True)
class Ledger(AnyLedger):
    """What has been released: noises with their workloads, in any mixture of clips and rates.

    >>> from plrvo import Gaussian, Laplace
    >>> ledger = Ledger().plus(Laplace(1.0), Workload(sample_rate=0.01, steps=100, clip=1.0, dimension=1000))
    >>> ledger = ledger.plus(Gaussian(1.0), Workload(sample_rate=0.02, steps=50, clip=1.0, dimension=9))
    >>> bracket = ledger.epsilon(delta=1e-5)
    >>> bracket.lower <= bracket.certified
    True
    """

    entries: tuple[Entry, ...] = ()
    correlation = None  # no field
    layered: bool = field(default=False, kw_only=True, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "entries", _merged(self.entries))

    def plus(self, noise: Noise, work: Workload) -> Ledger:
        """A ledger with so many more steps; equal kinds of step are counted together."""
        validate.of_type(Noise, noise=noise)
        validate.of_type(Workload, work=work)
        return replace(self, entries=(*self.entries, (noise, work)))

    def certified(self, delta: float) -> Certificate:
        """The certified epsilon alone: the smallest of all methods."""
        return self._bound(certified_epsilon, delta)

    def certified_by(self, method: str, delta: float) -> Certificate:
        return self._bound(partial(certified_epsilon, only=method), delta)

    def quick(self, delta: float) -> Certificate:
        """By moments, for noise that is not Gaussian. What leaves a search on it has been `checked`."""
        return self._bound(quick_epsilon, delta)

    def _bound(self, by: Callable[[Sequence[Entry], float], Certificate], delta: float) -> Certificate:
        validate.probability(delta=delta)
        if not self.entries:
            return Certificate(0.0, None, "pure")
        with np.errstate(over="ignore"):  # to infinity, which is the right answer
            return by(self.entries, delta)

    def certified_delta(self, epsilon: float) -> Certificate:
        """The certified delta at a given epsilon."""
        validate.non_negative(epsilon=epsilon)
        return certified_delta(self.entries, epsilon) if self.entries else Certificate(0.0, None, "pure")

    def attacked(self, delta: float) -> float:
        return lower_loss(self.entries, delta).epsilon(delta)

    def published(self, delta: float) -> float | None:
        found = published_epsilon(self.entries, delta)
        return found[0] if found else None

    def after(self, steps: int) -> Ledger | None:
        if steps == self.steps:
            return self
        if len(self.entries) != 1:
            return None
        noise, work = self.entries[0]
        return replace(self, entries=((noise, replace(work, steps=steps)),))

    def to_list(self) -> list[dict[str, Any]]:
        """Plain data that `Ledger.from_list` turns back into an equal ledger."""
        return [{"noise": noise.to_dict(), "workload": work.to_dict()} for noise, work in self.entries]

    @staticmethod
    def from_list(items: Sequence[Mapping[str, Any]]) -> Ledger:
        """The ledger that `to_list` described."""
        if not isinstance(items, (list, tuple)):
            raise InvalidArgument("ledger", items, "a list of entries")
        return Ledger(tuple(_entry(item) for item in items))


def _merged(entries: Sequence[Any]) -> tuple[Entry, ...]:
    """Equal kinds of step counted together, in the order in which they came first."""
    counts: dict[Entry, int] = {}
    for entry in entries:
        kinds = tuple(map(type, entry)) if isinstance(entry, tuple) else ()
        if len(kinds) != 2 or not issubclass(kinds[0], Noise) or not issubclass(kinds[1], Workload):
            raise InvalidArgument("entries", entry, "pairs of a noise and a workload; `plus` adds one")
        noise, work = entry
        kind = (noise, replace(work, steps=1))
        counts[kind] = counts.get(kind, 0) + work.steps
    return tuple((noise, replace(work, steps=steps)) for (noise, work), steps in counts.items())


def _entry(item: Any) -> Entry:
    if not isinstance(item, Mapping) or item.keys() != {"noise", "workload"}:
        raise InvalidArgument("ledger", item, "entries with the keys noise and workload, and no others")
    from plrvo.noise.serial import noise_from_dict  # every noise there is comes with it

    return noise_from_dict(item["noise"]), Workload.from_dict(item["workload"])


def epsilon(noise: Noise, work: Workload, delta: float) -> Epsilon:
    """The epsilon bracket of `work.steps` steps with this noise.

    >>> from plrvo import GammaPLRV
    >>> work = Workload(sample_rate=0.01, steps=300, clip=0.5, dimension=26_010)
    >>> bracket = epsilon(GammaPLRV(k=40_000, theta=6e-5), work, delta=1e-5)
    >>> print(bracket)
    certified 1.83, lower 1.77, published 1.61 (delta 1e-05)
    >>> bracket.published_is_refuted
    True
    """
    return Ledger().plus(noise, work).epsilon(delta)


def delta(noise: Noise, work: Workload, epsilon: float) -> float:
    """The certified delta of `work.steps` steps with this noise at a given epsilon.

    It is a proved upper bound, which may be claimed beside that epsilon: not a bracket, and not what an attack reaches.
    """
    return Ledger().plus(noise, work).certified_delta(epsilon).value


def sigma_effective(noise: Noise, work: Workload) -> float:
    """1/(C sqrt I): the noise multiplier of the Gaussian whose moments bound this noise's, dimension large.

    For moments at integer orders only; not for a privacy loss distribution (theory, section 4).
    """
    clip = noise.sensitivity(work.clip, work.dimension)
    signal = clip * math.sqrt(noise.fisher_information(work.dimension if noise.shared else 1))
    return 1 / signal if signal else math.inf
