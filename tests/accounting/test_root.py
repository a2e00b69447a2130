"""Roots: found where SciPy finds them, in about as many calls, and no further off than asked for."""

import math

import pytest
from scipy import optimize

from plrvo.accounting.root import root_between

FUNCTIONS = {
    "smooth": (lambda x: x * x - 2, 0.0, 2.0),
    "steep": (lambda x: math.exp(x) - 1e-5, -50.0, 3.0),
    "flat": (lambda x: (x - 0.3) ** 9, -1.0, 2.3),
    "far": (lambda x: math.atan(x - 1), -1e3, 1e3),
    "falling": (lambda x: 1 - x**3, 0.0, 40.0),
    "jump": (lambda x: -1.0 if x < 0.3 else 1.0, 0.0, 1.0),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_root_is_where_scipy_finds_it(name):
    function, low, high = FUNCTIONS[name]
    calls = []

    def counted(x):
        calls.append(x)
        return function(x)

    found = root_between(counted, low, high, 1e-10)
    expected = optimize.toms748(function, low, high, xtol=1e-12, rtol=1e-14)
    assert found == pytest.approx(expected, abs=1e-2 if name == "flat" else 2e-10)
    assert len(calls) < (80 if name in ("flat", "jump") else 25)
    assert all(low <= x <= high for x in calls)


def test_a_root_at_an_end_is_found_and_none_is_said():
    assert root_between(lambda x: x, 0.0, 1.0, 1e-9) == 0.0
    assert root_between(lambda x: x - 1, 0.0, 1.0, 1e-9) == 1.0
    with pytest.raises(ArithmeticError, match="no change of sign"):
        root_between(lambda x: x * x + 1, -1.0, 1.0, 1e-9)
