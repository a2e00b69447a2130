"""The exact sampler against exact probabilities, without a tolerance.

A signed draw's integer is a monotone function of U. The words that the fast path gives to one integer are found by
bisection over all 2^63 of them, and counted. The true probability, computed with intervals to 200 bits and compared as
a fraction, must lie between that count and the count together with the words that were left open. Where a draw is left
open, the border itself lies among its words, and scripted further bits must decide it on the right side.
"""

import sys
from bisect import bisect_left
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pytest
from mpmath import libmp, mp
from mpmath.ctx_iv import MPIntervalContext

from plrvo.noise import GammaPLRV, Gaussian, GridNoise, Laplace
from plrvo.noise.refine import Refiner
from plrvo.noise.rounding import _LAST, GaussianReals, Reals, SignedReals, apply

SIGNED = {
    "Laplace, 3 cells": GridNoise(Laplace(b=3.0), 1.0),
    "Laplace, 0.7 cells": GridNoise(Laplace(b=0.7), 1.0),
    "Laplace, a million cells": GridNoise(Laplace(b=1.0), 2.0**-20),
    "Laplace, 2^32 cells": GridNoise(Laplace(b=1.0), 2.0**-32),
    "Gamma k=1": GridNoise(GammaPLRV(k=1.0, theta=0.3), 1.0),
    "Gamma k=3": GridNoise(GammaPLRV(k=3.0, theta=0.25), 0.5),
    "Gamma k=60000": GridNoise(GammaPLRV(k=60_000.0, theta=1e-5), 2.0**-18),
}
GAUSSIAN = {
    "1.3 cells": GridNoise(Gaussian(1.3), 1.0),
    "a million cells": GridNoise(Gaussian(1.0), 2.0**-20),
    "2^32 cells": GridNoise(Gaussian(1.0), 2.0**-32),
}
ALL = 1 << 63


def precise() -> Any:
    iv = MPIntervalContext()
    iv.prec = 200
    return iv


def ends(x: Any) -> tuple[Fraction, Fraction]:
    """The ends of an interval, exactly."""
    low, high = (Fraction(*libmp.to_rational(end)) for end in x._mpi_)
    return low, high


def border(noise: GridNoise, m: int) -> tuple[Fraction, Fraction]:
    """2^63 P(|z| > (m - 1/2) cells), between two fractions: words below it have sizes of m cells or more."""
    iv = precise()
    t = (iv.mpf(m) - iv.mpf(1) / 2) * iv.mpf(noise.cell)
    base = noise.base
    if isinstance(base, Laplace):
        return ends(iv.exp(-t / iv.mpf(base.b)) * ALL)
    assert isinstance(base, GammaPLRV)
    return ends(iv.exp(-iv.mpf(base.k) * iv.log(1 + iv.mpf(base.theta) * t)) * ALL)


def fast(reals: Reals, *numbers: int) -> tuple[list[int], list[bool]]:
    """What the fast path says about one group of words, and whether it leaves it open."""
    words = np.array(numbers, np.uint64)[:, None]
    x = np.empty((reals.draws, 1))
    undecided = reals.approximate(words, x, np.empty_like(x))
    undecided = np.zeros(x.shape, bool) if undecided is None else undecided
    return [int(value) for value in x[:, 0]], [bool(value) for value in undecided[:, 0]]


def size_of(reals: Reals, u: int, sign: int = 0) -> int | None:
    (size,), (undecided,) = fast(reals, u << 1 | sign)
    return None if undecided else abs(size)


def open_words(size: Callable[[int], int | None], m: int, start: int, end: int) -> tuple[int, int]:
    """The first word of [start, end) that does not surely have size m or more, and the first that surely has less."""

    def first(after: int, wanted: Callable[[int | None], bool]) -> int:
        return after + bisect_left(range(after, end), True, key=lambda word: wanted(size(word)))

    unsure = first(start, lambda found: found is None or found < m)
    return unsure, first(unsure, lambda found: found is not None and found < m)


def integers_of(noise: GridNoise) -> list[int]:
    scale = noise.width / noise.cell
    return sorted({1, 2, 3, *(max(1, round(scale * f)) for f in (0.01, 0.5, 1, 2.5, 5, 9))})


@pytest.mark.parametrize("name", SIGNED)
def test_borders_between_integers_are_bracketed_without_tolerance(name: str) -> None:
    """Below the true border all decided words have size m or more, above it less; what is left open holds it."""
    noise = SIGNED[name]
    for m in integers_of(noise):
        true = border(noise, m)
        near = int(true[0])
        reach = max(16, near >> 20)
        if near < (ALL >> 20) + reach:
            continue  # words so small are all left to refinement
        low, high = near - reach, min(near + reach, ALL - 1)
        first_open, first_below = open_words(partial(size_of, noise.reals), m, low, high)
        assert low < first_open <= first_below < high
        # Word w stands for all U in [w, w + 1) 2^-63: those up to first_open lie above the border as a whole.
        assert first_open <= true[0] < true[1] <= first_below


@pytest.mark.parametrize("name", ["Laplace, 3 cells", "Gamma k=1", "Gamma k=3"])
def test_preimages_bracket_the_probability_of_every_cell(name: str) -> None:
    """P(|z| = m) lies between the words that give m and these with the open ones beside them, as exact fractions."""
    noise = SIGNED[name]

    def edges(m: int) -> tuple[int, int]:
        near = int(border(noise, m)[0])
        low, high = max(0, near - (1 << 40)), min(ALL, near + (1 << 40))
        return open_words(partial(size_of, noise.reals), m, low, high)

    for m in range(1, 12):
        above, below = edges(m), edges(m + 1)
        least, most = above[0] - below[1], above[1] - below[0]
        upper, lower = border(noise, m), border(noise, m + 1)
        assert least <= upper[0] - lower[1]
        assert upper[1] - lower[0] <= most
        assert Fraction(most - least, ALL) < Fraction(1, 1 << 30)  # and hardly any are open


def scripted(bits: list[int]) -> Any:
    given: Iterator[int] = iter(bits)
    return lambda: next(given)


@pytest.mark.parametrize("name", SIGNED)
@pytest.mark.parametrize("sign", [0, 1])
def test_refinement_decides_on_the_right_side_of_the_border(name: str, sign: int) -> None:
    """The border of an open word is known to 200 bits: bits just above and just below it give neighbouring integers."""
    noise = SIGNED[name]
    refiner = Refiner(noise.reals)
    for m in integers_of(noise):
        bits = int(border(noise, m)[0] * (1 << 128))
        word, next_word, third = bits >> 128, bits >> 64 & ((1 << 64) - 1), bits & ((1 << 64) - 1)
        give = [-1, 1][sign == 0]
        for script, size in (
            ([next_word + 1], m - 1),
            ([next_word - 1], m),
            ([next_word, third + (1 << 40)], m - 1),
            ([next_word, third - (1 << 40)], m),
        ):
            assert refiner.nearest_integers([word << 1 | sign], scripted(script)) == [give * size]


@pytest.mark.parametrize("name", SIGNED)
def test_the_fast_path_and_refinement_agree_where_both_decide(name: str) -> None:
    noise, rng = SIGNED[name], np.random.default_rng(4)
    refiner = Refiner(noise.reals)
    for word in rng.integers(0, 1 << 64, 150, dtype=np.uint64, endpoint=False).tolist():
        (size,), (undecided,) = fast(noise.reals, word)
        if not undecided:
            assert refiner.nearest_integers([word], scripted([])) == [size]


def test_tiny_words_are_left_open_and_end_far_out() -> None:
    noise = SIGNED["Gamma k=1"]
    assert isinstance(noise.reals, SignedReals)
    assert fast(noise.reals, 0)[1] == [True]
    assert fast(noise.reals, 1 << 42)[1] == [True]
    # U = 2^-190, just: the size is (1/U - 1)/0.3, far beyond 64 bits, and exact all the same.
    drawn = Refiner(noise.reals).nearest_integers([0], scripted([0, 2, *[5] * 9]))
    assert drawn[0] > 1 << 180


def arguments(low: float, high: float) -> np.ndarray:
    """Numbers between two others, many of them close to one of the ends."""
    rng = np.random.default_rng(2)
    x = rng.uniform(low, high, 3000)
    x[:500] = low + (high - low) * 2.0 ** -rng.uniform(0, 40, 500)
    x[500:1000] = high - (high - low) * 2.0 ** -rng.uniform(1, 50, 500)
    return x


@pytest.mark.parametrize("library", ["torch", "numpy"])
@pytest.mark.parametrize(
    ("function", "low", "high"), [("log", 2.0**-20, 1.0), ("expm1", 1e-12, 14.0), ("tan", 0.0, np.pi / 4)]
)
def test_libraries_are_far_better_than_they_are_trusted_to_be(
    library: str, function: str, low: float, high: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Relative errors on this machine, in blocks as the sampler uses them: below 2^-50, where 2^-46 is trusted."""
    x = arguments(low, high)
    y = x.copy()
    if library == "numpy":
        monkeypatch.delitem(sys.modules, "torch")
    apply(function, y)
    with mp.workdps(40):
        truth = [getattr(mp, function)(mp.mpf(float(value))) for value in x]
        worst = max(abs(mp.mpf(float(found)) / t - 1) for found, t in zip(y, truth, strict=True) if t)
    assert worst < 2.0**-50


def long_to_mp(x: Any) -> Any:
    """A long double as it is: its first 53 bits and the rest."""
    return mp.mpf(float(x)) + mp.mpf(float(x - np.longdouble(float(x))))


@pytest.mark.parametrize(
    ("function", "low", "high"),
    [("log", 2.0**-43, 1.0), ("expm1", 1e-12, 30.0), ("cos", -1.57, 1.57), ("sin", -1.57, 1.57), ("sqrt", 0.0, 60.0)],
)
def test_long_doubles_are_far_better_than_they_are_trusted_to_be(function: str, low: float, high: float) -> None:
    """Below 8 units in the last place, where 128 are trusted; sines and cosines of |x| <= pi/2 absolutely."""
    x = arguments(low, high).astype(np.longdouble)
    x += x * np.longdouble(2) ** -60
    y = getattr(np, function)(x)
    with mp.workdps(40):
        truth = [getattr(mp, function)(long_to_mp(value)) for value in x]
        errors = [abs(long_to_mp(found) - t) for found, t in zip(y, truth, strict=True)]
        if function not in ("sin", "cos"):
            errors = [error / abs(t) for error, t in zip(errors, truth, strict=True) if t]
    assert max(errors) < 8 * _LAST


@pytest.mark.parametrize("name", ["Laplace, a million cells", "Laplace, 2^32 cells", "Gamma k=1", "Gamma k=60000"])
def test_long_doubles_bracket_the_borders_without_tolerance(name: str) -> None:
    """As the fast path does, and within far fewer words."""
    noise = SIGNED[name]

    def size(u: int) -> int | None:
        (integers,), (undecided,) = noise.reals.sharper(np.array([[u << 1]], np.uint64))
        return None if undecided[0] else int(integers[0])

    for m in integers_of(noise):
        true = border(noise, m)
        near = int(true[0])
        reach = max(1 << 13, near >> 40)
        if near < (1 << 21) + reach:
            continue
        low, high = near - reach, min(near + reach, ALL - 1)
        first_open, first_below = open_words(size, m, low, high)
        assert low < first_open <= true[0] < true[1] <= first_below < high


@pytest.mark.parametrize("name", [*SIGNED, "gaussian 1.3 cells", "gaussian a million cells", "gaussian 2^32 cells"])
def test_long_doubles_agree_with_intervals_whatever_the_bits_beyond(name: str) -> None:
    """Ordinary words, and words that are tiny or all but 1: what is decided is decided alike, and most is."""
    reals = (GAUSSIAN[name.removeprefix("gaussian ")] if name not in SIGNED else SIGNED[name]).reals
    rng = np.random.default_rng(7)
    words = rng.integers(0, 1 << 64, (reals.words, 250), dtype=np.uint64, endpoint=False)
    words[0, :40] >>= rng.integers(1, 64, 40, dtype=np.uint64)
    words[0, 40:80] = ~(words[0, 40:80] >> rng.integers(1, 64, 40, dtype=np.uint64))
    integers, undecided = reals.sharper(words)
    refiner, decided = Refiner(reals), 0
    for column in range(words.shape[1]):
        known = words[:, column].tolist()
        low, high = (refiner.nearest_integers(known, lambda bits=bits: bits) for bits in (0, (1 << 64) - 1))
        for member in range(reals.draws):
            if not undecided[member, column]:
                decided += 1
                assert low[member] == high[member] == integers[member, column]
    assert decided > 0.8 * integers.size


@pytest.mark.parametrize("name", GAUSSIAN)
def test_a_gaussian_pair_rounds_as_intervals_say(name: str) -> None:
    """Every pair that the fast path decides is decided alike by intervals on 128 bits, whatever the bits beyond."""
    reals, rng = GAUSSIAN[name].reals, np.random.default_rng(6)
    assert isinstance(reals, GaussianReals)
    refiner, decided = Refiner(reals), 0
    for u, v in rng.integers(0, 1 << 64, (300, 2), dtype=np.uint64, endpoint=False).tolist():
        values, undecided = fast(reals, u, v)
        low = refiner.nearest_integers([u, v], lambda: 0)
        high = refiner.nearest_integers([u, v], lambda: (1 << 64) - 1)
        for i in range(2):
            if not undecided[i]:
                decided += 1
                assert low[i] == high[i] == values[i]
    assert decided > 500


def cosine_of(reals: Reals, v: int, u: int) -> int | None:
    values, undecided = fast(reals, u, v)
    return None if undecided[0] else values[0]


@pytest.mark.parametrize("name", ["1.3 cells", "a million cells"])
def test_gaussian_borders_are_bracketed_without_tolerance(name: str) -> None:
    """For a fixed angle R grows with E: the word at which a cosine passes m - 1/2 cells is known to 200 bits."""
    noise = GAUSSIAN[name]
    assert isinstance(noise.base, Gaussian)
    cells, iv = noise.width / noise.cell, precise()
    for v in (0x1234_5678_9ABC_DEF0, 0x7000_0000_0000_0002, 0xC0DE_C0DE_C0DE_C0DE):
        angles = [iv.pi * (iv.mpf(v >> 1) + d) / ALL - iv.pi / 2 for d in (0, 1)]
        for m in sorted({1, 2, *(max(1, round(cells * f)) for f in (0.3, 1.0, 2.0))}):
            if float(iv.cos(angles[0]).mid) * 4.5 * cells < m:
                continue
            t = (iv.mpf(m) - iv.mpf(1) / 2) * iv.mpf(noise.cell) / iv.mpf(noise.base.sigma)
            edges = [end for a in angles for end in ends(iv.exp(-((t / iv.cos(a)) ** 2) / 2) * 2**64)]
            lowest, highest, near = min(edges), max(edges), int(edges[0])
            if lowest > 2**64 - 2**45:
                continue  # radii so small are all left to refinement
            start, end = near - (1 << 44), near + (1 << 44)
            first_open, first_below = open_words(partial(cosine_of, noise.reals, v & ~1), m, start, end)
            assert start < first_open <= lowest
            assert highest <= first_below < end


def test_both_draws_of_an_open_pair_share_their_further_bits() -> None:
    """Bits are asked for once for each uniform number, not once for each draw."""
    reals, asked = GAUSSIAN["1.3 cells"].reals, []

    def more() -> int:
        asked.append(1)
        return 1 << 63

    found = Refiner(reals).nearest_integers([0, 0], more)
    assert len(found) == 2
    assert len(asked) % 2 == 0
