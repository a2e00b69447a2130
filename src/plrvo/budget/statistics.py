"""Statistics of private data, each charged to an account: counts, means and variances, quantiles, the commonest labels.

    statistics = Statistics(account, "gaussian", delta=1e-6)
    moments = statistics.mean_and_variance(pixels, bound=28.0, epsilon=0.2)

Each is a function of one noisy sum, and what is made of the sum afterwards is free. An example adds one row to it,
which is clipped, rounded to the grid of the noise, and measured in integers: no example is longer than is charged,
whatever floating point did before (theory, section 12). Sums and noise are integers. A row that is not finite, or a
label that there is not, adds nothing, and no error or warning tells of it. The bounds of a statistic must not come from
the data.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from plrvo import validate
from plrvo.accounting import Plan, Workload
from plrvo.accounting.exact import longest_square, on_grid
from plrvo.budget.account import Account
from plrvo.noise import GridNoise, Keystream, Noise
from plrvo.noise.base import Array
from plrvo.validate import InvalidArgument


@dataclass(frozen=True)
class Moments:
    """Mean and variance of every feature, and how many examples there are, all of them with noise."""

    mean: Array
    variance: Array
    count: float


class Statistics:
    """What may be asked of a data set, at the cost of its account.

    `noise` is a kind by name or a noise whose shape is fitted to each epsilon; it has an exact sampler (gaussian,
    laplace, gamma). Without a keystream the operating system gives the key.
    """

    def __init__(
        self, account: Account, noise: Noise | str = "gaussian", *, delta: float, keystream: Keystream | None = None
    ) -> None:
        validate.of_type(Account, account=account)
        validate.probability(delta=delta)
        self.account, self.noise, self.delta = account, noise, delta
        self.keystream = Keystream() if keystream is None else keystream

    def count(self, rows: Sequence[Any] | Array, *, epsilon: float) -> float:
        """How many examples there are."""
        return float(self._sum(np.ones((len(rows), 1)), 1.0, epsilon, "count")[0])

    def mean_and_variance(self, rows: ArrayLike, *, bound: float, epsilon: float) -> Moments:
        """Of every feature, for examples whose l2 norm is at most `bound`; longer ones are clipped to it.

        An example adds (1, x/bound, (x/bound)^2), of length at most sqrt(3): one release gives all of it.
        """
        validate.positive(bound=bound)
        given = _matrix(rows=rows)
        clipped = _clipped(given, bound) / bound
        added = np.concatenate([np.ones((len(clipped), 1)), clipped, clipped**2], axis=1)
        added[~_is_finite(given)] = 0.0
        count, *sums = self._sum(added, math.sqrt(3.0), epsilon, "mean and variance")
        size = max(1.0, float(count))
        first, second = np.split(np.array(sums) / size, 2)
        variance = np.maximum(second - first**2, 0.0) * bound**2
        return Moments(np.clip(first, -1.0, 1.0) * bound, variance, float(count))

    def mean(self, rows: ArrayLike, *, bound: float, epsilon: float) -> Array:
        """Of every feature, for examples of l2 norm at most `bound`: with less noise than beside the variance.

        An example adds (1, x/bound), of length at most sqrt(2).
        """
        validate.positive(bound=bound)
        given = _matrix(rows=rows)
        clipped = _clipped(given, bound) / bound
        added = np.concatenate([np.ones((len(clipped), 1)), clipped], axis=1)
        added[~_is_finite(given)] = 0.0
        count, *sums = self._sum(added, math.sqrt(2.0), epsilon, "mean")
        return np.clip(np.array(sums) / max(1.0, float(count)), -1.0, 1.0) * bound

    def histogram(self, labels: ArrayLike, *, classes: int, epsilon: float) -> Array:
        """How often each of the labels 0, 1, ... occurs. An example has one label."""
        return self._histogram(labels, classes, epsilon, "histogram")

    def top_labels(self, labels: ArrayLike, *, classes: int, most: int, epsilon: float) -> list[int]:
        """The labels that occur most often by the noisy counts, the commonest first."""
        validate.positive_integer(most=most)
        found = self._histogram(labels, classes, epsilon, f"top {most} labels")
        return [int(label) for label in np.argsort(-found, kind="stable")[:most]]

    def quantile(self, values: ArrayLike, *, edges: ArrayLike, share: float, epsilon: float) -> float:
        """The first of the edges below which at least this share of the values lies, by noisy counts between edges.

        Values beyond the edges count as lying between the last two.
        """
        validate.probability(share=share)
        borders = np.asarray(edges, dtype=float)
        if borders.ndim != 1 or len(borders) < 2 or not np.isfinite(borders).all() or np.any(np.diff(borders) <= 0):
            raise InvalidArgument("edges", edges, "two or more finite numbers that increase")
        given = _one_each(values=np.asarray(values, dtype=float))
        places = np.clip(np.searchsorted(borders, given, side="right") - 1, 0, len(borders) - 2)
        places = np.where(np.isfinite(given), places, -1)
        counts = np.maximum(self._histogram(places, len(borders) - 1, epsilon, f"quantile {share:g}"), 0.0)
        below = np.cumsum(counts)
        return float(borders[1 + min(int(np.searchsorted(below, share * below[-1])), len(borders) - 2)])

    def _histogram(self, labels: ArrayLike, classes: int, epsilon: float, name: str) -> Array:
        validate.positive_integer(classes=classes)
        given = _one_each(labels=np.asarray(labels))
        if given.dtype.kind not in "iufb":
            raise InvalidArgument("labels", given.dtype.name, "whole numbers from 0 on")
        rows = (given[:, None] == np.arange(classes)[None, :]).astype(float)
        return self._sum(rows, 1.0, epsilon, name)

    def _sum(self, rows: Array, clip: float, epsilon: float, name: str) -> Array:
        """The sum of the rows, clipped, with noise: reserved before it is looked at, settled before it is returned."""
        plan = Plan.fitted(self.noise, Workload(1.0, 1, clip, rows.shape[1]), self.delta, epsilon)
        plan = on_grid(plan)
        charge = self.account.reserve(plan, name)
        try:
            total = integer_sum(rows, plan.noise, clip)
            plan.noise.add_to([total], self.keystream)
            charge.release(1)
            charge.settle()
        finally:
            charge.let_go()
        return np.asarray(total * plan.noise.cell, dtype=np.float64)


def integer_sum(rows: Array, noise: Any, clip: float) -> NDArray[np.int64]:
    """The sum of clipped rows in cells of the noise; a row that is longer than is charged adds nothing."""
    validate.of_type(GridNoise, noise=noise)
    longest = longest_square(noise, clip, rows.shape[1])
    cells = np.rint(_clipped(rows, clip) / noise.cell)
    fits = _squares(cells) <= 1.25 * longest  # below 2^63, so that integers hold what is compared next
    whole = np.where(fits[:, None], cells, 0.0).astype(np.int64)
    short = np.sum(whole**2, axis=1) <= longest
    return np.where(short[:, None], whole, 0).sum(axis=0, dtype=np.int64)


def _clipped(rows: Array, clip: float) -> Array:
    """Rows of l2 norm at most `clip`, up to rounding; zeros in the place of those that are not finite."""
    finite = np.where(_is_finite(rows)[:, None], rows, 0.0)
    largest = np.abs(finite).max(axis=1, initial=0.0, keepdims=True)
    unit = finite / np.where(largest > 0, largest, 1.0)  # whose squares neither overflow nor vanish
    length = np.sqrt(_squares(unit))[:, None]
    with np.errstate(over="ignore"):
        too_long = largest * length > clip
    return np.where(too_long, unit / np.where(length > 0, length, 1.0) * clip, finite)


def _is_finite(rows: Array) -> NDArray[np.bool_]:
    return np.asarray(np.isfinite(rows).all(axis=1))


def _squares(rows: Array) -> Array:
    """The squared length of every row, coordinate by coordinate: no bit of it depends on the other rows."""
    total: Array = np.zeros(len(rows))
    for column in rows.T:
        total += column * column
    return total


def _one_each(**arguments: NDArray[Any]) -> NDArray[Any]:
    """One number for each example, as a list or a column: an example with several would count for more than one."""
    ((name, given),) = arguments.items()
    if given.ndim == 2 and given.shape[1] == 1:
        return np.asarray(given[:, 0])
    if given.ndim != 1:
        raise InvalidArgument(name, given.shape, "one number for each example")
    return given


def _matrix(**arguments: ArrayLike) -> Array:
    ((name, given),) = arguments.items()
    rows = np.asarray(given, dtype=float)
    if rows.ndim == 1:
        rows = rows[:, None]
    if rows.ndim != 2 or not rows.shape[1]:
        raise InvalidArgument(name, rows.shape, "a row of features for each example")
    return rows
