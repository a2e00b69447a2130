"""Tree aggregation: the noisy sums of the nodes of a binary tree over the steps, combined with Honaker's weights.

Node (l, i) holds the steps i 2^l .. (i+1) 2^l - 1 and is released at the last of them. The sum of steps 0 .. t is that
of popcount(t + 1) nodes. Each of them is estimated from its own noisy sum and the estimates of its two halves, weighted
by their variances (Honaker 2015): post-processing, so free of charge. The released gradient of a step is the difference
of two such estimates.

*Completion* releases, at the last step, also the nodes that reach beyond it, so that the last estimate is that of one
root. These are rows of S, and are charged. Halves that hold no step at all are known to be zero and carry no noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from plrvo.accounting.correlated.strategy import Steps, Strategy
from plrvo.accounting.correlated.streams import Stream, plus_times
from plrvo.noise.base import Array
from plrvo.validate import truth_value

Node = tuple[int, int]


def ended_at(step: int, length: int, completed: bool) -> list[Node]:
    """The nodes that are released at a step, from the leaf upwards."""
    top = ((step + 1) & -(step + 1)).bit_length() - 1
    if completed and step == length - 1:
        top = max(top, (length - 1).bit_length())
    return [(level, step >> level) for level in range(top + 1)]


@dataclass(frozen=True)
class Tree(Strategy):
    """A binary tree over the steps.

    >>> [Tree(completed).worst(100, visits=1, separation=100) for completed in (False, True)]
    [7.0, 8.0]
    """

    completed: bool = False
    kind: ClassVar[str] = "tree"
    whole: ClassVar[bool] = True

    def __post_init__(self) -> None:
        truth_value(completed=self.completed)

    @property
    def unfinished(self) -> Tree:
        return Tree()

    def _levels(self, length: int) -> range:
        """Levels on which at least one node is released."""
        return range((length - 1).bit_length() + 1 if self.completed else length.bit_length())

    def gram(self, first: Steps, second: Steps, length: int) -> Array:
        """The number of released nodes that hold both steps."""
        out = np.zeros(np.shape(first))
        for level in self._levels(length):
            node = second >> level
            released = self.completed | ((node + 1) << level <= length)
            out += released & (first >> level == node)
        return out

    def worst(self, length: int, visits: int, separation: int) -> float:
        """A node of m steps holds at most ceil(m/b) visits; on each level full nodes are the worst.

        Exact for one visit; else an upper bound, since the levels need not have their worst cases together.
        """
        total = 0
        for level in self._levels(length):
            most = min(visits, -(-(1 << level) // separation))
            full, rest = divmod(visits, most)
            total += full * most**2 + rest**2
        return float(total)

    def _nodes(self, length: int) -> list[Node]:
        return [node for step in range(length) for node in ended_at(step, length, self.completed)]

    def rows(self, length: int) -> int:
        last = length - 1
        added = len(ended_at(last, length, self.completed)) - len(ended_at(last, length, False))
        return 2 * length - length.bit_count() + added

    def touched(self, length: int) -> int:
        return len(self._levels(length))

    def matrix(self, length: int) -> Array:
        rows = np.zeros((self.rows(length), length))
        for row, (level, index) in zip(rows, self._nodes(length), strict=True):
            row[index << level : (index + 1) << level] = 1.0
        return rows

    def row_sums(self, steps: Sequence[int], length: int) -> Array:
        held: dict[Node, int] = {}
        for level in self._levels(length):
            for step in steps:
                node = (level, step >> level)
                if self.completed or (node[1] + 1) << level <= length:
                    held[node] = held.get(node, 0) + 1
        return np.array(list(held.values()), dtype=float)

    def stream(self, length: int) -> Stream:
        return TreeStream(length, self.completed)


class TreeStream(Stream):
    """At most one estimate for each level, and one sum: memory of log2(length) arrays."""

    def __init__(self, length: int, completed: bool) -> None:
        self._length, self._completed = length, completed
        self._sums: list[tuple[int, Any]] = []
        self._estimates: list[tuple[int, float, Any]] = []  # level, variance in units of a node's, array
        self._before: Any = None  # the estimate of the sum of all steps before
        self._encoded = self._decoded = 0

    def due(self) -> int:
        return len(ended_at(self._decoded, self._length, self._completed))

    def encode(self, x: Any) -> list[Any]:
        nodes = ended_at(self._encoded, self._length, self._completed)
        total, values = x, [x]
        for level, _ in nodes[1:]:
            if self._sums and self._sums[-1][0] == level - 1:
                total = self._sums.pop()[1] + total
            values.append(total)
        self._sums.append((nodes[-1][0], total))
        self._encoded += 1
        return values

    def decode(self, rows: Sequence[Any]) -> Any:
        nodes = ended_at(self._decoded, self._length, self._completed)
        estimate, variance = rows[0], 1.0
        for (level, _), own in zip(nodes[1:], rows[1:], strict=True):
            halves, variance_of_halves = estimate, variance
            if self._estimates and self._estimates[-1][0] == level - 1:
                _, variance_of_left, left = self._estimates.pop()
                halves, variance_of_halves = left + estimate, variance_of_left + variance
            variance = variance_of_halves / (1 + variance_of_halves)
            estimate = plus_times((1 - variance) * halves, variance, own)
        self._estimates.append((nodes[-1][0], variance, estimate))
        self._decoded += 1
        return self._difference()

    def _difference(self) -> Any:
        total = 1.0 * self._estimates[0][2]
        for _, _, estimate in self._estimates[1:]:
            total += estimate
        step = total if self._before is None else total - self._before
        self._before = total
        return step

    def state(self) -> list[Any]:
        return [*(array for _, array in self._sums), *(array for _, _, array in self._estimates), self._before]

    def restore(self, arrays: Sequence[Any], steps: int) -> None:
        levels = [level for level in reversed(range(steps.bit_length())) if steps >> level & 1]
        self._sums = list(zip(levels, arrays[: len(levels)], strict=True))
        variances = [_variance(level) for level in levels]
        self._estimates = list(zip(levels, variances, arrays[len(levels) : -1], strict=True))
        self._before = arrays[-1]
        self._encoded = self._decoded = steps


def _variance(level: int) -> float:
    """Of the estimate of a full node, 2^l/(2^(l+1) - 1), by the very operations of `decode`."""
    variance = 1.0
    for _ in range(level):
        variance = (variance + variance) / (1 + (variance + variance))
    return variance
