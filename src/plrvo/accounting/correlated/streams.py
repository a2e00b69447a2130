"""From row noises to the noise of each step, and back: S^-1 (for a tree, Honaker's estimate) one step at a time.

A stream works on arrays of any library that has +, - and *: numpy's in the accountant's tests, torch's in training. It
has two uses. *Linear*: `decode` of the row noises alone is the noise w_t that is added to the sum of step t; nothing in
the stream depends on data. *Any function of the released rows*: `encode` the sums, add the row noises, apply the
function, `decode`; then the stream holds private sums, and so does whoever stores its state.

Arrays that `decode` takes and returns belong to the stream: it may write into the first, and who wants to change the
second, copies it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from plrvo.noise.base import Array
from plrvo.validate import InvalidArgument


def plus_times(total: Any, factor: float, values: Any) -> Any:
    """total + factor * values, in place."""
    if isinstance(total, np.ndarray):
        total += factor * values
    else:
        total.add_(values, alpha=factor)
    return total


class Stream(ABC):
    """One pass over the steps of a strategy."""

    def due(self) -> int:
        """The number of rows that the coming step releases."""
        return 1

    def draw_again(self, again: Callable[[int], Any] | None, room: int | None) -> None:
        """Where a stream would keep all its rows: keep `room` of them, and ask for older ones by number."""
        self.again, self.room = again, room

    @abstractmethod
    def encode(self, x: Any) -> list[Any]:
        """(S x)_r for the rows that this step releases."""

    @abstractmethod
    def decode(self, rows: Sequence[Any]) -> Any:
        """The estimate of this step's sum from its rows and all before them."""

    @abstractmethod
    def state(self) -> list[Any]:
        """All arrays that the stream holds."""

    @abstractmethod
    def restore(self, arrays: Sequence[Any], steps: int) -> None:
        """Bring a fresh stream to the state after so many steps."""


class HistoryStream(Stream):
    """Lower triangular S with the coefficients S_tt, S_t,t-1, ... of each row: forward substitution.

    Keeps the last estimates, as many as a row has coefficients beyond its first, and as many sums.
    """

    def __init__(self, coefficients: Callable[[int], Array], longest: int | None = None) -> None:
        self._coefficients = coefficients
        most = None if longest is None else longest - 1
        self._sums: deque[Any] = deque(maxlen=most)
        self._estimates: deque[Any] = deque(maxlen=most)
        self._encoded = self._decoded = 0

    def encode(self, x: Any) -> list[Any]:
        c = self._coefficients(self._encoded)
        y = float(c[0]) * x
        for weight, before in zip(c[1:], self._sums, strict=False):
            plus_times(y, float(weight), before)
        self._sums.appendleft(x)
        self._encoded += 1
        return [y]

    def decode(self, rows: Sequence[Any]) -> Any:
        c = self._coefficients(self._decoded)
        estimate = rows[0] if c[0] == 1 else rows[0] / float(c[0])
        for weight, before in zip(c[1:] / c[0], self._estimates, strict=False):
            plus_times(estimate, -float(weight), before)
        self._estimates.appendleft(estimate)
        self._decoded += 1
        return estimate

    def state(self) -> list[Any]:
        return [*self._sums, *self._estimates]

    def restore(self, arrays: Sequence[Any], steps: int) -> None:
        half = len(arrays) // 2
        self._sums.extend(arrays[:half])
        self._estimates.extend(arrays[half:])
        self._encoded = self._decoded = steps


class ConvolutionStream(Stream):
    """Toeplitz S whose inverse is known: each estimate is a sum over all rows so far.

    Rows are kept while there is room; older ones are drawn again.
    """

    def __init__(self, forward: Array, inverse: Array) -> None:
        self._forward, self._inverse = forward, inverse
        self._sums: list[Any] = []
        self._rows: deque[Any] = deque()
        self._decoded = 0
        self.draw_again(None, None)

    def encode(self, x: Any) -> list[Any]:
        self._sums.insert(0, x)
        y = float(self._forward[0]) * x
        for weight, before in zip(self._forward[1:], self._sums[1:], strict=False):
            plus_times(y, float(weight), before)
        return [y]

    def decode(self, rows: Sequence[Any]) -> Any:
        t = self._decoded
        estimate = float(self._inverse[0]) * rows[0]
        for weight, before in zip(self._inverse[1:], self._rows, strict=False):
            plus_times(estimate, float(weight), before)
        for lag in range(len(self._rows) + 1, t + 1):
            if self.again is None:
                raise InvalidArgument("room", self.room, "room for all rows: they cannot be drawn again")
            plus_times(estimate, float(self._inverse[lag]), self.again(t - lag))
        self._rows.appendleft(rows[0])
        if self.room is not None and len(self._rows) > self.room:
            self._rows.pop()
        self._decoded += 1
        return estimate

    def state(self) -> list[Any]:
        return [*self._sums, *self._rows]

    def restore(self, arrays: Sequence[Any], steps: int) -> None:
        half = len(arrays) // 2
        self._sums.extend(arrays[:half])
        self._rows.extend(arrays[half:])
        self._decoded = steps


class BufferedStream(Stream):
    """Buffered linear Toeplitz: coefficients 1, then sum_d w_d l_d^(j-1). A buffer for each d, whatever the length."""

    def __init__(self, scales: Sequence[float], decays: Sequence[float]) -> None:
        self._scales, self._decays = scales, decays
        self._sums: list[Any] = []
        self._estimates: list[Any] = []

    def encode(self, x: Any) -> list[Any]:
        y = 1.0 * x
        for scale, buffer in zip(self._scales, self._sums, strict=False):
            plus_times(y, scale, buffer)
        self._sums = self._advanced(self._sums, x)
        return [y]

    def decode(self, rows: Sequence[Any]) -> Any:
        estimate = rows[0]
        for scale, buffer in zip(self._scales, self._estimates, strict=False):
            plus_times(estimate, -scale, buffer)
        self._estimates = self._advanced(self._estimates, estimate)
        return estimate

    def _advanced(self, buffers: list[Any], newest: Any) -> list[Any]:
        if not buffers:
            return [1.0 * newest for _ in self._decays]
        for decay, buffer in zip(self._decays, buffers, strict=True):
            buffer *= decay
            buffer += newest
        return buffers

    def state(self) -> list[Any]:
        return [*self._sums, *self._estimates]

    def restore(self, arrays: Sequence[Any], steps: int) -> None:
        half = len(arrays) // 2
        self._sums, self._estimates = list(arrays[:half]), list(arrays[half:])
