"""Attacks on the noise as it is sampled here: the best test on densities, and a look at the last bits.

Two worlds, one step: the sum is the planted gradient or nothing, and noise is added by the very functions that training
uses, in floating point (float32) or on a grid. The attacker sees the float32 numbers that the optimizer would get.

- *mechanism*: the likelihood ratio of the noise's density. It tells whether the sampler draws what the accountant
  believes it draws: noise that is too small is refuted. In both modes the certified epsilon must stand.
- *low bits* (Mironov 2012): floating-point addition rounds to the last bit of the larger operand. Of an output y near
  zero, with the gradient g in the sum, z = y - g had the size of g, and y ends at the last bit of such numbers; without
  g, y is a small number with bits of its own, far below. The attacker counts, on training runs of both worlds, outputs
  by their exponent and the place of their last bit, and adds up log likelihood ratios of these counts. In floating
  point this must refute the certified epsilon; on a grid it must not.

Every verdict is that of `judge`: a refutation is wrong with probability at most 1 - CONFIDENCE.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plrvo.accounting import Plan, Workload, epsilon
from plrvo.accounting.exact import on_grid
from plrvo.audit.verdict import Audit, judge
from plrvo.noise import Keystream, Noise

CONFIDENCE = 1 - 1e-6
_CELLS = 256 * 32  # exponents of a float32 times places of its last bit
_BLOCK = 1 << 22  # outputs at a time

Singles = NDArray[np.float32]
Release = Callable[[bool, int], Singles]  # (with the gradient, runs) -> what the optimizer sees of each run


@dataclass(frozen=True)
class Outcome:
    """One attack on one mode: what was expected of it, and what it found."""

    attack: str
    mode: str
    expected: str
    audit: Audit

    @property
    def as_expected(self) -> bool:
        return self.audit.verdict == self.expected

    def to_dict(self) -> dict[str, Any]:
        return {"expected": self.expected, "as_expected": self.as_expected, **self.audit.to_dict()}


def self_test(
    noise: Noise, seed: int | None = None, scale: float = 1.0, tell: Callable[[str], None] | None = None
) -> dict[str, Outcome]:
    """The four outcomes for a noise of this shape (its width is chosen here), by names such as `low_bits_float`.

    `seed` repeats a test; the noise of users is drawn from the operating system. `scale` times as many runs are made.
    `tell` is given a line before each attack, since all of them take minutes.
    """
    Keystream()  # a missing package is better named before than after the first attack
    unit = noise.scaled(math.sqrt(noise.fisher_information()))
    # A large delta leaves out the far tail, which no number of runs would reach: the audit comes close to certified.
    few = _Setting(unit, 1.0, Workload(sample_rate=1.0, steps=1, clip=1.0, dimension=64), delta=1e-2)
    many = _Setting(unit, 3.0, Workload(sample_rate=1.0, steps=1, clip=1.0, dimension=8192), delta=1e-5)
    outcomes = {}
    for exact, mode in ((False, "float"), (True, "exact")):
        if tell is not None:
            tell(f"attack on densities, {mode} numbers")
        release = few.release(exact, seed)
        scores = _scores(release, few.log_ratio, round(100_000 * scale), few.work.dimension)
        outcomes[f"mechanism_{mode}"] = Outcome("mechanism", mode, "consistent", few.judge(scores, exact))
        if tell is not None:
            tell(f"attack on last bits, {mode} numbers")
        release = many.release(exact, None if seed is None else seed + 1)
        table = _learn(release, round(800 * scale), many.work.dimension)
        scores = _scores(release, partial(_weigh, table), round(1600 * scale), many.work.dimension)
        expected = "consistent" if exact else "refuted"
        outcomes[f"low_bits_{mode}"] = Outcome("low_bits", mode, expected, many.judge(scores, exact))
    return outcomes


class _Setting:
    """A noise so many clips wide, continuous and on the default grid, and a gradient of whole cells."""

    def __init__(self, unit: Noise, width: float, work: Workload, delta: float) -> None:
        self.noise, self.work, self._delta = unit.scaled(width * work.clip), work, delta
        self.grid: Any = on_grid(Plan.certify(self.noise, work, delta)).noise
        self._cells = math.floor(0.9 * work.clip / math.sqrt(work.dimension) / self.grid.cell)
        self.g = np.float32(self._cells * self.grid.cell)  # the same number in both modes, and exact in both

    def release(self, exact: bool, seed: int | None) -> Release:
        import torch

        if exact:
            keystream = Keystream() if seed is None else Keystream.from_seed(seed, "self-test")

            def on_the_grid(present: bool, runs: int) -> Singles:
                sums = torch.full((runs, self.work.dimension), self._cells if present else 0, dtype=torch.int64)
                self.grid.add_to([sums], keystream)
                return (sums.double() * self.grid.cell).float().numpy()

            return on_the_grid
        generator = torch.Generator()
        if seed is None:
            generator.seed()
        else:
            generator.manual_seed(seed)

        def in_floats(present: bool, runs: int) -> Singles:
            sums = torch.full((runs, self.work.dimension), float(self.g) if present else 0.0)
            self.noise.add_to([sums], generator)
            return np.asarray(sums.numpy())

        return in_floats

    def log_ratio(self, y: Singles) -> NDArray[np.float64]:
        """log p(y - g)/p(y), by coordinates."""
        wide = y.astype(np.float64)
        return self.noise.log_density(wide - float(self.g)) - self.noise.log_density(wide)

    def judge(self, scores: NDArray[np.float64], exact: bool) -> Audit:
        """The scores are likelihood ratios only if the sampler is right, which is the question: judge them as any."""
        noise = self.grid if exact else self.noise
        claim = epsilon(noise, self.work, self._delta).certified
        return judge(scores, claim, self._delta, CONFIDENCE)


def _scores(
    release: Release, score: Callable[[Singles], NDArray[np.float64]], runs: int, dimension: int
) -> NDArray[np.float64]:
    """The sum of the scores of all coordinates, for so many runs without and with the gradient."""
    rows = max(1, _BLOCK // dimension)
    worlds = [
        [score(release(present, min(rows, runs - start))).sum(axis=1) for start in range(0, runs, rows)]
        for present in (False, True)
    ]
    return np.array([np.concatenate(parts) for parts in worlds])


def _learn(release: Release, runs: int, dimension: int) -> NDArray[np.float64]:
    """log of how much more often each kind of output came with the gradient; half a count is added to each."""
    rows = max(1, _BLOCK // dimension)
    counts = np.full((2, _CELLS), 0.5)
    for present in (False, True):
        for start in range(0, runs, rows):
            kinds = _last_bits(release(present, min(rows, runs - start)))
            counts[int(present)] += np.bincount(kinds.ravel(), minlength=_CELLS)
    return np.log(counts[1] / counts[0])


def _weigh(table: NDArray[np.float64], y: Singles) -> NDArray[np.float64]:
    return table[_last_bits(y)]


def _last_bits(y: Singles) -> NDArray[np.int32]:
    """32 times the exponent of each number, and the number of zeros at the end of its mantissa."""
    bits = y.view(np.int32)
    mantissa = bits & 0x7FFFFF | 1 << 23
    lowest = (mantissa & -mantissa).astype(np.float32).view(np.int32) >> 23
    return (bits >> 23 & 255) * 32 + lowest - 127
