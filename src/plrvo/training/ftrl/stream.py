"""Correlated noise, one step after the other, from row noises that are pure functions of a key and a row number."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from plrvo.accounting.correlated import Correlation
from plrvo.accounting.correlated.streams import Stream
from plrvo.noise import Keystream, Noise

Draw = Callable[[int], Any]

ROOM = 1 << 31  # bytes that rows may take before those of a convolution are drawn again instead of kept


def keyed_draws(noise: Noise, key: int, dimension: int, like: torch.Tensor) -> Draw:
    """The function row -> noise of that row: a keystream of its own for each, from the key and the row's number."""
    dtype = np.float64 if like.dtype == torch.float64 else np.float32

    def draw(row: int) -> torch.Tensor:
        keystream = Keystream(hashlib.sha256(f"plrvo row {row} {key}".encode()).digest())
        return torch.from_numpy(noise.sample(dimension, keystream, dtype)).to(like)

    return draw


class NoiseStream:
    """The steps of a correlation, restarts included.

    `next_noise` is for linear use and holds nothing that depends on data: `skip` brings a fresh stream to any step by
    drawing again. `release` is for a function of the rows; its state has to be kept (`state`, `restore`).
    """

    def __init__(self, correlation: Correlation, steps: int, draw: Draw, row_bytes: int = 0) -> None:
        correlation.check(steps)
        self._parts = {start: (length, strategy) for start, length, strategy in correlation.parts(steps, steps)}
        self._draw, self._room = draw, max(1, ROOM // row_bytes) if row_bytes else None
        self._stream: Stream | None = None
        self.step = self.row = self._first_row = 0

    def _current(self) -> Stream:
        if self.step in self._parts:
            length, strategy = self._parts[self.step]
            self._stream, self._first_row = strategy.stream(length), self.row
            first = self._first_row
            self._stream.draw_again(lambda row: self._draw(first + row), self._room)
        if self._stream is None:
            raise RuntimeError("a stream that was not started; please report this")
        return self._stream

    def _rows(self, count: int) -> list[Any]:
        rows = [self._draw(self.row + i) for i in range(count)]
        self.row += count
        return rows

    def next_noise(self) -> Any:
        """w_t: what is added to the sum of this step. It belongs to the stream; copy it to change it."""
        stream = self._current()
        noise = stream.decode(self._rows(stream.due()))
        self.step += 1
        return noise

    def release(self, x: Any, function: Callable[[Any], Any]) -> Any:
        """The estimate of x from `function` of each noisy row. It belongs to the stream, and x from now on too."""
        stream = self._current()
        stream.draw_again(None, None)
        sums = stream.encode(x)
        estimate = stream.decode([function(s + z) for s, z in zip(sums, self._rows(len(sums)), strict=True)])
        self.step += 1
        return estimate

    def skip(self, steps: int) -> None:
        """Go to a later step; only the rows since the last restart are drawn."""
        start, rows = self._last_restart(steps)
        self.row += rows
        self.step = start
        for _ in range(steps - start):
            self.next_noise()

    def _last_restart(self, steps: int) -> tuple[int, int]:
        """The step of the last restart up to a step, and the rows before it."""
        start = max(first for first in self._parts if first <= steps)
        return start, sum(strategy.rows(length) for first, (length, strategy) in self._parts.items() if first < start)

    def state(self) -> list[Any]:
        """What `release` has kept since the last restart; private sums are among it."""
        return [] if self._stream is None or self.step in self._parts else self._stream.state()

    def restore(self, arrays: Sequence[Any], steps: int) -> None:
        """Bring a fresh stream to where `state` was asked."""
        start, self.row = self._last_restart(steps)
        self.step, self._first_row = start, self.row
        if steps > start:
            stream = self._current()
            length, strategy = self._parts[start]
            self.row += (strategy.unfinished if steps - start < length else strategy).rows(steps - start)
            stream.restore(arrays, steps - start)
        self.step = steps
