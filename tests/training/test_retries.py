"""What is tried again takes a small share of the time, and is never left out for good."""

from __future__ import annotations

from contextlib import suppress

import pytest

from plrvo.training.retries import RAREST, SHARE, Retries

LEAST = 64


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def run(step: float, took: float, steps: int = 10) -> tuple[Retries, Clock]:
    """After so many steps, of which one has had a try."""
    clock = Clock()
    retries = Retries(clock)
    for number in range(steps):
        if number == 3:
            with retries.timed("loss", again=True):
                clock.now += took
        clock.now += step
        retries.passed()
    return retries, clock


@pytest.mark.parametrize(("step", "took"), [(0.02, 0.001), (0.02, 0.0128), (0.2, 4.0), (25.0, 100.0), (1.0, 1e9)])
def test_the_share_of_the_time_is_bounded(step: float, took: float) -> None:
    retries, _ = run(step, took)
    one_in = retries.one_in("loss", LEAST)
    assert LEAST <= one_in <= LEAST * RAREST
    if one_in < LEAST * RAREST:
        assert took / (one_in * step) <= SHARE * (1 + 1e-9)
    if one_in > LEAST:
        assert took / ((one_in - 1) * step) >= SHARE or one_in == LEAST * RAREST


def test_what_was_never_timed_is_as_often_as_it_may_be() -> None:
    assert Retries(Clock()).one_in("loss", LEAST) == LEAST
    retries, _ = run(0.2, 4.0)
    assert retries.one_in("module", LEAST) == LEAST


def test_first_tries_set_no_price_and_one_slow_try_does_not_stick() -> None:
    retries, clock = run(0.2, 0.01)
    with retries.timed("loss", again=False):
        clock.now += 1e6
    for _ in range(2):
        assert retries.one_in("loss", LEAST) == LEAST
        with retries.timed("loss", again=True):
            clock.now += 1e6  # a machine that slept


def test_a_pause_makes_tries_no_more_frequent() -> None:
    """A step beside an evaluation of an hour: the shortest of the latest steps counts."""
    retries, clock = run(0.2, 4.0)
    before = retries.one_in("loss", LEAST)
    clock.now += 3600
    retries.passed()
    assert retries.one_in("loss", LEAST) == before


def test_a_try_that_fails_is_timed_too() -> None:
    clock = Clock()
    retries = Retries(clock)
    clock.now += 0.1
    retries.passed()
    with suppress(ValueError), retries.timed("module", again=True):
        clock.now += 5.0
        raise ValueError("refused")
    assert retries.one_in("module", LEAST) == LEAST * RAREST


def test_chances_are_what_they_are_said_to_be() -> None:
    """One in two, 4,000 times: five standard deviations are missed once in two million runs."""
    retries = Retries(Clock())
    found = sum(retries.is_due("loss", 2) for _ in range(4000))
    assert abs(found - 2000) < 5 * 1000**0.5
    assert all(retries.is_due("loss", 1) for _ in range(20))
