"""A strategy, who takes part when, and restarts: what makes the noise of a plan correlated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any

import numpy as np

from plrvo.accounting.correlated.participation import CyclicPoisson, Participation
from plrvo.accounting.correlated.strategy import Explicit, Strategy, spaced_sums
from plrvo.accounting.correlated.toeplitz import Banded, BufferedToeplitz, SquareRoot
from plrvo.accounting.correlated.tree import Tree
from plrvo.noise.base import Array
from plrvo.validate import InvalidArgument, positive_integer

_KINDS: dict[str, type[Strategy]] = {cls.kind: cls for cls in (Banded, BufferedToeplitz, Explicit, SquareRoot, Tree)}
_ROUNDING = 1e-12  # relative, added to every sensitivity whose square is not a sum of whole numbers

_MOST_PAIRS = 2 * 10**8


@dataclass(frozen=True)
class Sensitivity:
    """sens(S) in units of the clip, and the largest number of rows that one example enters.

    With cyclic sampling both are about a single visit. `offset` is the first step of the worst pattern of a fixed order
    (0 where the order is not fixed).
    """

    value: float
    rows: int
    offset: int


@dataclass(frozen=True)
class Correlation:
    """Rows of `strategy`, started anew every `restart_every` steps (never, by default).

    S is block diagonal over restarts, so that they compose: the squares of their sensitivities add up.

    >>> Correlation(Tree(), Participation(steps_per_epoch=100)).sensitivity(100).value ** 2
    7.0
    >>> twenty = Participation(steps_per_epoch=100, epochs=20)
    >>> [Correlation(Tree(completed), twenty).sensitivity(2000).value ** 2 for completed in (False, True)]
    [425.0, 926.0]
    """

    strategy: Strategy
    participation: Participation | CyclicPoisson
    restart_every: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.strategy, Strategy):
            raise InvalidArgument("strategy", self.strategy, "a Strategy, for example Tree()")
        if not isinstance(self.participation, (Participation, CyclicPoisson)):
            raise InvalidArgument("participation", self.participation, "a Participation or a CyclicPoisson")
        if self.restart_every is not None:
            positive_integer(restart_every=self.restart_every)
        if isinstance(self.participation, CyclicPoisson):
            if not isinstance(self.strategy, Banded) or self.restart_every is not None:
                raise InvalidArgument("participation", "cyclic", "a banded strategy without restarts")
            if not self.strategy.apart(self.participation.groups):
                raise InvalidArgument("groups", self.participation.groups, "at least as many groups as bands")

    @property
    def order(self) -> Participation:
        """The promise that an order of visits has to keep; there is none where examples are sampled."""
        if isinstance(self.participation, CyclicPoisson):
            raise InvalidArgument("participation", "cyclic", "a participation in order")
        return self.participation

    @property
    def batch_share(self) -> float:
        """The share of the data in a nominal batch."""
        if isinstance(self.participation, CyclicPoisson):
            return self.participation.sample_rate / self.participation.groups
        return 1 / self.participation.steps_per_epoch

    def check(self, steps: int) -> None:
        """Refuse a number of steps that the strategy or the participation does not cover."""
        most = self.participation.most_steps if isinstance(self.participation, Participation) else steps
        if steps > most:
            raise InvalidArgument("steps", steps, f"at most {most}: more bring examples back beyond their epochs")
        self.strategy.check(min(steps, self.restart_every or steps))
        if isinstance(self.participation, Participation) and self._pairs(steps) > _MOST_PAIRS:
            visits = self.participation.visits(steps)
            raise InvalidArgument("epochs", self.participation.epochs, f"fewer visits than {visits} in {steps} steps")

    def _pairs(self, steps: int) -> int:
        """About how many pairs of visits a sensitivity looks at: a file must not keep a reader busy for hours."""
        period, order = min(steps, self.restart_every or steps), self.order
        visits, within, parts = order.visits(steps), order.visits(period), -(-steps // period)
        if order.fixed:
            return steps * within
        return max(0 if self.strategy.whole else 2000 * within**2, 100 * parts * visits * within)

    def parts(self, taken: int, steps: int) -> list[tuple[int, int, Strategy]]:
        """First step, length and strategy of each part between restarts, after `taken` of `steps` steps."""
        period = self.restart_every or steps
        parts = []
        for start in range(0, taken, period):
            whole, length = min(period, steps - start), min(period, taken - start)
            parts.append((start, length, self.strategy if length == whole else self.strategy.unfinished))
        return parts

    def sensitivity(self, steps: int, taken: int | None = None) -> Sensitivity:
        """Of the rows that the first `taken` of `steps` steps release; of all of them by default."""
        positive_integer(steps=steps)
        self.check(steps)
        return _sensitivity(self, steps, steps if taken is None else taken)

    def of_visit(self, steps: int, taken: int) -> Sensitivity | None:
        """Of a single visit, where no row holds two visits of one example; None elsewhere."""
        if isinstance(self.participation, CyclicPoisson) or self.participation.visits(taken) == 1:
            return self.sensitivity(steps, taken)
        return _longest_column(self, taken) if self.strategy.apart(self.participation.separation) else None

    def row_sums(self, steps: int, taken: int) -> Array:
        """How far an example with equal gradients moves each row, in units of the clip, in one bad pattern.

        The worst one of a fixed order, else the earliest.
        """
        first, order = self.sensitivity(steps, taken).offset, self.order
        visited = np.arange(first, taken, order.separation)[: order.epochs]
        sums = [
            strategy.row_sums([int(s) - start for s in visited if start <= s < start + length], length)
            for start, length, strategy in self.parts(taken, steps)
        ]
        return np.abs(np.concatenate(sums))

    def to_dict(self) -> dict[str, Any]:
        return {
            "strategy": self.strategy.to_dict(),
            "participation": self.participation.to_dict(),
            "restart_every": self.restart_every,
            "adjacency": "zero-out",
        }

    @staticmethod
    def from_dict(description: Mapping[str, Any]) -> Correlation:
        """The correlation that `to_dict` described."""
        try:
            if description["adjacency"] != "zero-out":
                raise InvalidArgument("adjacency", description["adjacency"], "zero-out, the only one that is proved")
            visits = description["participation"]
            participation = (CyclicPoisson if "groups" in visits else Participation)(**visits)
            return Correlation(_strategy(description["strategy"]), participation, description["restart_every"])
        except (KeyError, TypeError, ValueError) as error:
            if isinstance(error, InvalidArgument):
                raise
            raise InvalidArgument("correlation", "a description", f"the keys of a correlation ({error})") from None


def _strategy(description: Mapping[str, Any]) -> Strategy:
    kind = description["strategy"]
    if kind not in _KINDS:
        raise InvalidArgument("strategy", kind, "one of " + ", ".join(sorted(_KINDS)))
    arguments = {key: value for key, value in description.items() if key != "strategy"}
    known = [field.name for field in fields(_KINDS[kind])]  # type: ignore[arg-type]
    if set(arguments) - set(known):
        raise InvalidArgument("strategy", dict(description), f"the parameters {', '.join(known) or '(none)'}")
    return _KINDS[kind](**{key: _tuples(value) for key, value in arguments.items()})


def _tuples(value: Any) -> Any:
    return tuple(_tuples(item) for item in value) if isinstance(value, (list, tuple)) else value


@lru_cache(maxsize=512)
def _sensitivity(correlation: Correlation, steps: int, taken: int) -> Sensitivity:
    if isinstance(correlation.participation, CyclicPoisson):
        return _longest_column(correlation, taken)
    parts, participation = correlation.parts(taken, steps), correlation.order
    if participation.fixed:
        squares = _fixed(parts, participation.steps_per_epoch)
        square, offset = float(squares.max()), int(np.argmax(squares))
    else:
        square, offset = _separated(parts, participation.visits(taken), participation.separation), 0
    visits = participation.visits(taken)
    rows = min(
        sum(strategy.rows(length) for _, length, strategy in parts),
        visits * max(strategy.touched(length) for _, length, strategy in parts),
    )
    return Sensitivity(square**0.5 * _margin(correlation.strategy, visits, taken), rows, offset)


def _longest_column(correlation: Correlation, taken: int) -> Sensitivity:
    """Of the first step of a banded strategy: no later one, and none before or after a restart, enters more rows."""
    first = np.zeros(1, dtype=np.int64)
    square = float(correlation.strategy.gram(first, first, taken)[0])
    return Sensitivity(square**0.5 * _margin(correlation.strategy, 1, taken), correlation.strategy.touched(taken), 0)


def _margin(strategy: Strategy, visits: int, taken: int) -> float:
    """Above the rounding of a sensitivity, relative.

    An entry (s, t) of S'S is a sum of products that errs by at most 2^-53 (steps + 2) of the root of the entries (s, s)
    and (t, t), which is at most their mean. Over a pattern these are `visits` times its diagonal, and the root halves.
    """
    return 1.0 if strategy.whole else 1 + _ROUNDING + visits * (taken + 4) * 2.0**-52


def _fixed(parts: list[tuple[int, int, Strategy]], period: int) -> Array:
    """sum of |(S'S)_st| over the pattern s, s + period, ... for each s; visits in different parts do not meet."""
    offsets = np.arange(min(period, parts[-1][0] + parts[-1][1]))
    total = np.zeros(len(offsets))
    for start, length, strategy in parts:
        before = start // period
        visits = (start + length - 1) // period + 1 - before
        total += spaced_sums(strategy, offsets + before * period - start, visits, period, length)
    return total


def _separated(parts: list[tuple[int, int, Strategy]], visits: int, separation: int) -> float:
    """The worst distribution of the visits over the parts; separation across a restart is not used."""
    best = np.zeros(visits + 1)
    for _, length, strategy in parts:
        most = min(visits, -(-length // separation))
        here = np.array([0.0] + [strategy.worst(length, count, separation) for count in range(1, most + 1)])
        best = np.array([max(best[n - m] + here[m] for m in range(min(n, most) + 1)) for n in range(visits + 1)])
    return float(best[-1])
