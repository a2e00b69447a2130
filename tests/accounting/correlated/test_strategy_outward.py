"""Sensitivities of correlated noise are rounded up, whatever the size of the coefficients, and found in time."""

import math
import time
from fractions import Fraction

import numpy as np
import pytest
from mpmath import mp, mpf

from plrvo.accounting import Workload
from plrvo.accounting.correlated import (
    Banded,
    CorrelatedLedger,
    Correlation,
    Explicit,
    Participation,
    SquareRoot,
    Tree,
)
from plrvo.accounting.gaussian_curve import gaussian_epsilon
from plrvo.noise import Gaussian
from plrvo.validate import InvalidArgument


def exact_square(c: list[float], length: int, pattern: range) -> Fraction:
    """sum of |(S'S)_st| over a pattern, in rational numbers."""
    values = [Fraction(v) for v in c]
    total = Fraction(0)
    for s in pattern:
        for t in pattern:
            lag, most = abs(t - s), length - max(s, t)
            total += abs(sum((a * b for a, b in zip(values[:most], values[lag:], strict=False)), Fraction(0)))
    return total


def test_many_small_coefficients_are_not_lost() -> None:
    """Their squares vanish one by one beside the first, 1; together they are 1e-10, and the sum looks whole."""
    n, small = 10**6, 1.05e-8
    correlation = Correlation(Banded((1.0,) + (small,) * (n - 1)), Participation(steps_per_epoch=n))
    exact = 1 + (n - 1) * Fraction(small) ** 2
    found = Fraction(correlation.sensitivity(n).value) ** 2
    assert exact <= found <= exact * (1 + Fraction(1, 10**8))


@pytest.mark.parametrize("size", [1e-90, 1e-30, 1.0, 1e30, 1e90])
@pytest.mark.parametrize("epochs", [1, 3])
def test_no_sensitivity_is_below_that_of_rational_numbers(size: float, epochs: int) -> None:
    rng = np.random.default_rng(7)
    for bands in (1, 2, 5, 7):
        c = [float(size * v) for v in rng.normal(size=bands)]
        c[0] = abs(c[0])
        length = 8 * epochs
        correlation = Correlation(Banded(tuple(c)), Participation(steps_per_epoch=8, epochs=epochs))
        exact = max(exact_square(c, length, range(s, length, 8)) for s in range(8))
        found = correlation.sensitivity(length)
        assert exact <= Fraction(found.value) ** 2 <= exact * (1 + Fraction(1, 10**10))
        ledger = CorrelatedLedger(Gaussian(size), Workload(1.0, length, 0.1, 3), correlation, length)
        with mp.workdps(40):
            assert mpf(ledger.release().clip) ** 2 >= mpf(exact.numerator) / exact.denominator * mpf(0.1) ** 2


@pytest.mark.parametrize("clip", [1.0, 0.1, 1e-150, 3.3333e-149])
def test_the_release_of_a_tree_is_rounded_up(clip: float) -> None:
    """sens = sqrt(square) is a root of a whole number, whose rounding is one up or down."""
    for steps in range(1, 40):
        correlation = Correlation(Tree(), Participation(steps_per_epoch=steps))
        square = Fraction(round(correlation.sensitivity(steps).value ** 2))
        ledger = CorrelatedLedger(Gaussian(1.0), Workload(1.0, steps, clip, 3), correlation, steps)
        assert Fraction(ledger.release().clip) ** 2 >= square * Fraction(clip) ** 2


@pytest.mark.parametrize("size", [5e-324, 1e-160, 1e160, math.inf, math.nan])
def test_coefficients_whose_squares_leave_the_doubles_are_refused(size: float) -> None:
    for make in (lambda: Banded((size,)), lambda: Explicit(((size, 0.0), (size, size)))):
        with pytest.raises(InvalidArgument, match="values"):
            make()


def test_the_unit_of_the_matrix_does_not_matter() -> None:
    """It was certified too low at 1e-160, where squares have few digits."""
    work = Workload(1.0, 4, 1.0, 10)
    correlation = Correlation(Banded((1e-99,)), Participation(steps_per_epoch=4))
    found = CorrelatedLedger(Gaussian(1e-99), work, correlation, 4).certified(1e-5).value
    assert gaussian_epsilon(1.0, 1e-5) <= found <= gaussian_epsilon(1.0, 1e-5) * (1 + 1e-9)


def test_full_batches_take_seconds_and_a_file_cannot_ask_for_hours() -> None:
    """A thousand full-batch steps have half a million pairs of visits. They took a minute; two seconds are ample."""
    start = time.process_time()
    found = Correlation(SquareRoot(), Participation(steps_per_epoch=1, epochs=1000)).sensitivity(1000)
    assert time.process_time() - start < 20
    c = np.cumprod(np.concatenate([[1.0], (2 * np.arange(1.0, 1000) - 1) / (2 * np.arange(1.0, 1000))]))
    rows = np.cumsum(c)  # all visits together move row t by c_0 + ... + c_t
    assert found.value == pytest.approx(math.sqrt(math.fsum(rows**2)), rel=1e-9)
    with pytest.raises(InvalidArgument, match="epochs"):
        Correlation(SquareRoot(), Participation(steps_per_epoch=1, epochs=10**7)).check(10**7)
    with pytest.raises(InvalidArgument, match="epochs"):
        Correlation(SquareRoot(), Participation(steps_per_epoch=2, epochs=10**5, separation=1)).check(10**5)
