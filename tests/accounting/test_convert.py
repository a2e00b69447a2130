"""From moments to epsilon and delta, and the search over orders."""

import math
from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from plrvo.accounting.convert import delta_from_moments, epsilon_at, epsilon_from_moments, minimise

LARGEST = 3000


def gaussian(sigma: float) -> Callable[[int], float]:
    """A(lambda) = lambda (lambda+1) / (2 sigma^2): the Gaussian mechanism, typed out."""
    return lambda lambda_: lambda_ * (lambda_ + 1) / (2 * sigma**2)


def brute_epsilon(moment: Callable[[int], float], delta: float) -> float:
    """Proposition 12 of Canonne, Kamath and Steinke (2020), at alpha = lambda + 1, over every order."""
    return min(
        max(0.0, moment(a - 1) / (a - 1) + math.log1p(-1 / a) - math.log(delta * a) / (a - 1))
        for a in range(2, LARGEST + 2)
    )


def brute_delta(moment: Callable[[int], float], epsilon: float) -> float:
    orders = range(2, LARGEST + 2)
    log_delta = min((a - 1) * (moment(a - 1) / (a - 1) - epsilon + math.log1p(-1 / a)) - math.log(a) for a in orders)
    return math.exp(min(0.0, log_delta))


@given(sigma=st.floats(0.3, 50.0), log_delta=st.floats(-30.0, -0.5))
def test_epsilon_is_the_best_over_all_orders(sigma: float, log_delta: float) -> None:
    value, order = epsilon_from_moments(gaussian(sigma), math.exp(log_delta), LARGEST)
    assert value == pytest.approx(brute_epsilon(gaussian(sigma), math.exp(log_delta)), rel=1e-9, abs=1e-12)
    assert value == pytest.approx(max(0.0, epsilon_at(order, gaussian(sigma)(order), math.exp(log_delta))), abs=1e-12)


@given(sigma=st.floats(0.3, 50.0), epsilon=st.floats(0.01, 30.0))
def test_delta_is_the_best_over_all_orders(sigma: float, epsilon: float) -> None:
    value, _ = delta_from_moments(gaussian(sigma), epsilon, LARGEST)
    assert value == pytest.approx(brute_delta(gaussian(sigma), epsilon), rel=1e-6, abs=0.0)


@given(sigma=st.floats(0.5, 20.0), log_delta=st.floats(-25.0, -2.0))
def test_epsilon_and_delta_are_inverse(sigma: float, log_delta: float) -> None:
    epsilon, _ = epsilon_from_moments(gaussian(sigma), math.exp(log_delta))
    if epsilon > 0:
        delta, _ = delta_from_moments(gaussian(sigma), epsilon)
        assert math.log(delta) == pytest.approx(log_delta, rel=1e-9, abs=0.0)


def test_conversion_covers_the_gaussian_mechanism() -> None:
    """Against the exact curve delta(epsilon) = Phi(1/2s - es) - e^e Phi(-1/2s - es) of one Gaussian release."""
    sigma = 2.0
    for epsilon in (0.2, 1.0, 3.0):
        a, b = 1 / (2 * sigma) - epsilon * sigma, -1 / (2 * sigma) - epsilon * sigma
        exact = 0.5 * math.erfc(-a / math.sqrt(2)) - math.exp(epsilon) * 0.5 * math.erfc(-b / math.sqrt(2))
        assert exact <= delta_from_moments(gaussian(sigma), epsilon)[0] <= 10 * exact


def test_infinite_moments_give_an_infinite_epsilon_and_a_delta_of_one() -> None:
    assert epsilon_from_moments(lambda lambda_: math.inf, 1e-5)[0] == math.inf
    assert delta_from_moments(lambda lambda_: math.inf, 1.0)[0] == 1.0


def test_no_loss_needs_no_epsilon() -> None:
    assert epsilon_from_moments(lambda lambda_: 0.0, 0.3)[0] == 0.0


def quasi_convex(falls: list[float], rises: list[float], infinite: int) -> list[float]:
    """Strictly falling, then strictly rising, then a plateau at infinity."""
    values = [0.0]
    for fall in falls:
        values.insert(0, values[0] + fall)
    for rise in rises:
        values.append(values[-1] + rise)
    return values + [math.inf] * infinite


steps = st.lists(st.floats(1e-3, 1e3), max_size=80)


@given(falls=steps, rises=steps, infinite=st.integers(0, 60))
@example(falls=[2.0, 1.0], rises=[1.0], infinite=0)  # the minimum lies between the last two powers of two
def test_minimise_finds_the_minimum_of_any_quasi_convex_sequence(
    falls: list[float], rises: list[float], infinite: int
) -> None:
    values = quasi_convex(falls, rises, infinite)
    asked: list[int] = []

    def objective(i: int) -> float:
        assert 1 <= i <= len(values)
        asked.append(i)
        return values[i - 1]

    value, where = minimise(objective, len(values))
    assert value == min(values)
    assert values[where - 1] == value
    assert len(asked) <= 10 + 3 * math.log(len(values) + 1, 1.6)


def test_minimise_of_a_constant_infinity() -> None:
    assert minimise(lambda i: math.inf, 100)[0] == math.inf
