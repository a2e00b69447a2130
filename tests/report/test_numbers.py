"""Numbers on a page are rounded to the side on which they stay true."""

import pytest

from plrvo.report.numbers import down, measured, near, noise_words, tell_metric, up


@pytest.mark.parametrize("value", [1.23456789, 0.000123456, 3.0, 98765.4321])
def test_bounds_are_rounded_outwards_and_keep_all_digits_beside(value):
    assert float(down(value, "epsilon").text) <= value <= float(up(value, "epsilon").text)
    assert {shown(value, "epsilon").exact for shown in (up, down, near)} == {repr(value)}


def test_nothing_is_shown_of_nothing():
    assert up(None, "epsilon") is down(None, "epsilon") is near(None, "epsilon") is measured(None, "audited") is None


def test_what_a_row_measured_may_be_a_bound():
    assert measured(1.99999, "audited").text == "1.999"
    assert measured(1.99999, "accuracy").text == "2"


def test_accuracies_are_in_per_cent():
    assert tell_metric("accuracy", 0.98765) == "98.77 %"
    assert tell_metric("loss", 0.98765) == "0.9877"


def test_a_noise_is_a_line():
    assert noise_words({"noise": "gamma", "k": 40000.0, "theta": 6e-5}) == "gamma noise (k 40000, theta 6e-05)"
    assert noise_words({"noise": "gamma", "shared": True}) == "gamma noise (one scale for all coordinates)"
    assert noise_words({"noise": "none", "shared": False}) == "none noise"
