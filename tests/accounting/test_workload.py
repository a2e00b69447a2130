"""Bad workloads and budgets are refused, with an error that names the argument and its value."""

import math
from typing import Any

import numpy as np
import pytest

from plrvo.accounting import Ledger, Workload, delta, epsilon
from plrvo.noise import Laplace
from plrvo.validate import InvalidArgument

GOOD: dict[str, Any] = {"sample_rate": 0.01, "steps": 300, "clip": 1.0, "dimension": 100}


def assert_refused(argument: str, value: Any) -> None:
    with pytest.raises(InvalidArgument, match=f"^{argument}=") as caught:
        Workload(**{**GOOD, argument: value})
    assert isinstance(caught.value, ValueError)
    assert caught.value.argument == argument
    assert repr(value) in str(caught.value)


def test_sampling_rate_must_be_a_probability_above_zero() -> None:
    for value in (0.0, -0.1, 1.0001, 2, math.nan, math.inf, True, "0.1", None):
        assert_refused("sample_rate", value)


def test_a_sampling_rate_beyond_the_accountants_numbers_is_refused_and_the_smallest_has_a_bracket() -> None:
    for value in (1e-300, 5e-324, 9e-31):
        assert_refused("sample_rate", value)
    for width in (0.01, 0.1, 1.0):
        ledger = Ledger().plus(Laplace(width), Workload(**{**GOOD, "sample_rate": 1e-30}))
        assert 0 <= ledger.lower(1e-5) <= ledger.certified(1e-5).value


@pytest.mark.parametrize("argument", ["steps", "dimension"])
def test_counts_must_be_whole_and_positive(argument: str) -> None:
    for value in (0, -3, 300.0, 2.5, math.nan, math.inf, True, "300", None):
        assert_refused(argument, value)


def test_clip_must_be_positive_and_finite() -> None:
    for value in (0.0, -1.0, math.nan, math.inf, True, "1", None):
        assert_refused("clip", value)


@pytest.mark.parametrize("argument", ["steps", "dimension"])
def test_counts_stop_where_a_double_would_not_follow(argument: str) -> None:
    assert_refused(argument, 10**350)
    assert_refused(argument, 2**63)
    largest = Workload(**{**GOOD, argument: 2**63 - 1})
    assert 0 <= Ledger().plus(Laplace(1e30), largest).certified(1e-5).value < math.inf


def test_limits_of_the_range_are_accepted() -> None:
    assert Workload(sample_rate=1, steps=1, clip=5, dimension=1).sample_rate == 1
    assert Workload(**{**GOOD, "steps": np.int64(7), "clip": np.float64(0.5)}).steps == 7


@pytest.mark.parametrize("value", [0.0, 1.0, -1e-5, 2.0, math.nan, math.inf, True, "1e-5", None], ids=repr)
def test_delta_must_lie_strictly_between_zero_and_one(value: Any) -> None:
    for ask in (
        lambda: epsilon(Laplace(1.0), Workload(**GOOD), value),
        lambda: Ledger().certified(value),
        lambda: Ledger().epsilon(value),
    ):
        with pytest.raises(InvalidArgument, match=r"^delta="):
            ask()


@pytest.mark.parametrize("value", [-0.1, math.nan, math.inf, True, "1", None], ids=repr)
def test_epsilon_must_not_be_negative(value: Any) -> None:
    for ask in (
        lambda: delta(Laplace(1.0), Workload(**GOOD), value),
        lambda: Ledger().certified_delta(value),
    ):
        with pytest.raises(InvalidArgument, match=r"^epsilon="):
            ask()


def test_error_says_what_would_be_right() -> None:
    with pytest.raises(InvalidArgument, match=r"^sample_rate=3: expected a number in \(0, 1\]$"):
        Workload(**{**GOOD, "sample_rate": 3})
    with pytest.raises(InvalidArgument, match=r"^steps=300\.0: expected a whole number of at least 1$"):
        Workload(**{**GOOD, "steps": 300.0})


def test_workload_is_a_value() -> None:
    assert Workload(**GOOD) == Workload(**GOOD)
    assert Workload(**Workload(**GOOD).to_dict()) == Workload(**GOOD)
    with pytest.raises(AttributeError):
        Workload(**GOOD).steps = 5  # type: ignore[misc]
