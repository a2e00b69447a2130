"""What correlated noise costs: the bracket of the rows released so far (theory, section 11).

By Theorem 3 the moment of all rows together is at most the largest sum of h(Delta_ri^2), and the shifts Delta of one
example, over all rows and coordinates, form one vector of norm at most sens(S) C with at most (rows it enters) times n
entries that are not zero. That is the worst gradient in a ball, which every noise knows how to bound
(`Noise.log_joint_moment`): **one release without sampling, of clip sens(S) C and dimension rows * n.** It is at most
the Gaussian bound of the theorem wherever Theorem 2 holds, and less in low dimension.

- Gaussian noise has an exact curve: the loss of the worst pair is normal, adaptive or not.
- A shared scale u is cut in every row. Given u a row costs at most alpha (alpha-1) u^2 |Delta_r|^2 / 2, and the worst
  case puts the whole shift into one row (`Noise.log_stream_moment`).
- With cyclic sampling each visit is a release of its own, sampled with its coin: DP-SGD with clip |column of S| C and
  dimension bands * n. Without it so is a single visit, and every visit where no row holds two of them, at a rate of 1.
- `published` is the paper's formula for that release. Without sampling and with a scale per coordinate it is a valid
  bound, if a loose one.
- `lower` attacks with one gradient, the same in every visit of the worst fixed pattern and hence in every row, spread
  over as many coordinates as is worst for all rows together. With cyclic sampling the rows of a block share a coin.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from plrvo import validate
from plrvo.accounting.bracket import AnyLedger
from plrvo.accounting.by_loss import Entry
from plrvo.accounting.certified import (
    PURE_MARGIN,
    TAIL_SHARES,
    Certificate,
    certified_epsilon,
    checked,
    quick_epsilon,
    rdp_certificate,
)
from plrvo.accounting.correlated.correlation import Correlation, Sensitivity
from plrvo.accounting.correlated.participation import CyclicPoisson
from plrvo.accounting.gaussian_curve import gaussian_epsilon
from plrvo.accounting.ledger import Ledger
from plrvo.accounting.lower import blocks_loss, lower_loss, one_gradient_loss
from plrvo.accounting.published import published_epsilon
from plrvo.accounting.workload import Workload
from plrvo.noise.base import Noise
from plrvo.noise.serial import noise_from_dict

_LARGEST_SIGNAL = 1e100
_ATTACKED_ROWS = 24  # kinds of row that the lower bound looks at; to leave rows out is a post-processing


@dataclass(frozen=True)
class CorrelatedLedger(AnyLedger):
    """`taken` of `work.steps` steps, released through the rows of a correlation. The adjacency is zero-out.

    >>> from plrvo import Laplace
    >>> from plrvo.accounting.correlated import Participation, Tree
    >>> work = Workload(sample_rate=1.0, steps=100, clip=1.0, dimension=26_010)
    >>> tree = Correlation(Tree(), Participation(steps_per_epoch=100))
    >>> bracket = CorrelatedLedger(Laplace(10.0), work, tree, taken=100).epsilon(1e-5)
    >>> bracket.lower <= bracket.certified <= bracket.published
    True
    """

    noise: Noise
    work: Workload
    correlation: Correlation
    taken: int
    layered: bool = field(default=False, kw_only=True, compare=False)

    def __post_init__(self) -> None:
        if self.work.sample_rate != 1:
            raise validate.InvalidArgument(
                "sample_rate", self.work.sample_rate, "1: how data is visited, or sampled, is in the participation"
            )
        if self.noise.cell:
            raise validate.InvalidArgument("noise", self.noise.kind, "continuous noise: correlated noise has no grid")
        if not 0 <= self.taken <= self.work.steps:
            raise validate.InvalidArgument("steps", self.taken, f"at most the plan's {self.work.steps}")
        self.correlation.check(self.work.steps)
        if self.noise.shared and isinstance(self.correlation.participation, CyclicPoisson):
            raise validate.InvalidArgument("shared", True, "False with cyclic sampling: a visit enters several rows")
        if not self.correlation.strategy.causal and self.noise.gaussian_sigma is None:
            raise validate.InvalidArgument(
                "strategy",
                self.correlation.strategy.kind,
                f"a row-causal one (lower triangular) with {self.noise.kind} noise: elsewhere what was seen tells an "
                "adversary where the next noise is small",
            )

    @property
    def entries(self) -> tuple[Entry, ...]:
        return ((self.noise, replace(self.work, steps=self.taken)),) if self.taken else ()

    def plus(self, noise: Noise, work: Workload) -> CorrelatedLedger:
        """A ledger with so many more steps, charged at the clip and the dimension of the plan."""
        within = work.clip <= self.work.clip and work.dimension <= self.work.dimension and work.sample_rate == 1
        if noise != self.noise or not within:
            raise validate.InvalidArgument("noise", noise.kind, "steps with the noise and the workload of the plan")
        return replace(self, taken=self.taken + work.steps)

    def release(self) -> Workload:
        """The one release that costs at least as much as all rows so far; one for each visit where they are sampled."""
        if isinstance(self.correlation.participation, CyclicPoisson) and (visits := self.visits()) is not None:
            return visits
        return self._release_of(self.correlation.sensitivity(self.work.steps, self.taken))

    def visits(self) -> Workload | None:
        """A release for each visit so far, where no row holds two visits of an example; None elsewhere."""
        found, visits = self.correlation.of_visit(self.work.steps, self.taken), self.correlation.participation
        if found is None:
            return None
        rate = visits.sample_rate if isinstance(visits, CyclicPoisson) else 1.0
        return replace(self._release_of(found), sample_rate=rate, steps=visits.visits(self.taken))

    def _release_of(self, found: Sensitivity) -> Workload:
        clip = math.nextafter(found.value * (1 + 2.0**-51) * self.work.clip, math.inf)  # a root and a product
        return Workload(1.0, 1, clip, found.rows * self.work.dimension)

    def certified(self, delta: float) -> Certificate:
        """By all rows as one stream; and visit by visit, where that is possible, as of steps with fresh noise.

        What a visit shifts is chosen before any noise of its rows was seen (theory, Theorem 4).
        """
        found = self._bound(partial(certified_epsilon, fresh=False), delta)
        if not self.taken or self.noise.shared or (visits := self.visits()) is None:
            return found
        with np.errstate(over="ignore"):
            by_visits = certified_epsilon([(self.noise, visits)], delta)
        return min(found, by_visits, key=lambda certificate: certificate.value)

    def quick(self, delta: float) -> Certificate:
        return self._bound(quick_epsilon, delta)

    def _bound(self, by: Callable[[Sequence[Entry], float], Certificate], delta: float) -> Certificate:
        validate.probability(delta=delta)
        if not self.taken:
            return Certificate(0.0, None, "pure")
        release = self.release()
        with np.errstate(over="ignore"):  # to infinity, which is the right answer
            return self._shared(release, delta) if self.noise.shared else by([(self.noise, release)], delta)

    def published(self, delta: float) -> float | None:
        found = published_epsilon([(self.noise, self.release())], delta)
        return found[0] if found else None

    def after(self, steps: int) -> CorrelatedLedger:
        return replace(self, taken=steps)

    def to_list(self) -> list[dict[str, Any]]:
        """Plain data that `from_list` turns back into an equal ledger."""
        return [
            {
                "noise": self.noise.to_dict(),
                "workload": self.work.to_dict(),
                "correlation": self.correlation.to_dict(),
                "taken": self.taken,
            }
        ]

    @staticmethod
    def from_list(items: Sequence[Mapping[str, Any]]) -> CorrelatedLedger:
        (item,) = items
        noise, work = noise_from_dict(item["noise"]), Workload(**item["workload"])
        return CorrelatedLedger(noise, work, Correlation.from_dict(item["correlation"]), item["taken"])

    def attacked(self, delta: float) -> float:
        if isinstance(self.correlation.participation, CyclicPoisson):
            return self._lower_cyclic(self.correlation.participation, delta)
        sums = self.correlation.row_sums(self.work.steps, self.taken)
        sums, counts = np.unique(np.floor(sums * 1e12) / 1e12, return_counts=True)  # equal but for rounding: one kind
        if (sigma := self.noise.gaussian_sigma) is not None:
            signal = math.sqrt(float(np.sum(counts * sums**2))) * self.work.clip / sigma
            shorter = min(signal * (1 - 1e-7), _LARGEST_SIGNAL)  # is a gradient too
            return gaussian_epsilon(shorter, delta) if shorter > 0 else 0.0
        heaviest = [i for i in np.argsort(-counts * sums**2)[:_ATTACKED_ROWS] if sums[i] > 0]
        rows = [(float(sums[i]), int(counts[i])) for i in heaviest]
        return one_gradient_loss(self.noise, self.work.clip, self.work.dimension, rows, delta).epsilon(delta)

    def _lower_cyclic(self, visits: CyclicPoisson, delta: float) -> float:
        """All rows of a whole visit, which share a coin: with Gaussian noise turned into one."""
        c = np.abs(self.correlation.strategy.row_sums([0], self.taken))
        whole = len(range(0, self.taken - np.count_nonzero(c) + 1, visits.groups))
        clip = self.work.clip * (1 - 1e-9)
        if self.noise.gaussian_sigma is None and np.count_nonzero(c) > 1 and whole:
            sizes, counts = np.unique(np.floor(c[c > 0] * 1e12) / 1e12, return_counts=True)
            heaviest = np.argsort(-counts * sizes**2)[:_ATTACKED_ROWS]
            rows = [(float(sizes[i]), int(counts[i])) for i in heaviest if sizes[i] > 0]
            found = blocks_loss(self.noise, clip, self.work.dimension, rows, visits.sample_rate, whole, delta)
            return found.epsilon(delta)
        attack = Workload(visits.sample_rate, whole, math.sqrt(float(c @ c)) * clip, self.work.dimension)
        return lower_loss([(self.noise, attack)], delta).epsilon(delta)

    def _shared(self, release: Workload, delta: float) -> Certificate:
        n = self.work.dimension
        rows = release.dimension // n
        # A row's largest loss is concave in its squared shift: equal shifts are the worst.
        pure = rows * self.noise.pure_loss(release.clip / math.sqrt(rows), n)
        candidates = [Certificate(pure * (1 + self.noise.pure_loss_margin) * (1 + PURE_MARGIN), None, "pure")]
        for share in TAIL_SHARES:
            tail = share * delta / rows
            if not (1 - share) * delta > 0:  # half of 5e-324 is 0
                continue

            def moment(lambda_: int, tail: float = tail) -> float:
                return float(self.noise.log_stream_moment(release.clip, n, np.array([lambda_ + 1.0]), tail)[0])

            candidates.append(rdp_certificate(moment, (1 - share) * delta, self.noise.largest_order))
        return checked(min(candidates, key=lambda candidate: candidate.value))


def ledger_of(
    noise: Noise, work: Workload, correlation: Correlation | None, taken: int, *, layered: bool = False
) -> AnyLedger:
    """The first `taken` steps of a workload, correlated or not."""
    if correlation is not None:
        return CorrelatedLedger(noise, work, correlation, taken, layered=layered)
    return Ledger(((noise, replace(work, steps=taken)),) if taken else (), layered=layered)


def read_ledger(items: Sequence[Mapping[str, Any]], *, layered: bool = False) -> AnyLedger:
    """The ledger that `to_list` described, of either kind."""
    correlated = len(items) == 1 and "correlation" in items[0]
    return replace(CorrelatedLedger.from_list(items) if correlated else Ledger.from_list(items), layered=layered)
