"""Axes: every value on the paper, in order, with round numbers along the way."""

import pytest

from plrvo.report.axes import Axis, LogAxis

VALUES = {
    "ordinary": [0.3, 1.7, 2.9],
    "one": [5.0],
    "nothing": [],
    "zeros": [0.0, 0.0],
    "below zero": [-4.0, -1.0],
    "almost equal": [1.0, 1.0 + 1e-13],
    "tiny": [1e-90, 2e-90],
    "huge": [1e99, -1e99],
}


@pytest.mark.parametrize("from_zero", [False, True])
@pytest.mark.parametrize("name", VALUES)
def test_values_keep_their_order_and_stay_on_the_paper(name, from_zero):
    values = sorted(VALUES[name])
    axis = Axis.over(values, from_zero, 10.0, 110.0, count=5, room=0.1)
    places = [axis.at(value) for value in values]
    assert places == sorted(places)
    assert all(10 <= place <= 110 for place in places)


def test_ticks_are_round_numbers():
    ticks = Axis.over([0.0, 9.7], True, 0.0, 97.0, count=5).ticks(lambda v: f"{v:g}")
    assert [(tick.at, tick.label) for tick in ticks] == [(0.0, "0"), (20.0, "2"), (40.0, "4"), (60.0, "6"), (80.0, "8")]


def test_what_points_up_may_go_down_the_paper():
    axis = Axis.over([0.0, 1.0], True, 100.0, 0.0, count=4)
    assert (axis.at(0.0), axis.at(0.5), axis.at(1.0)) == (100.0, 50.0, 0.0)


def test_only_wide_values_need_logarithms():
    assert LogAxis.over([], 0.0, 1.0) is None
    assert LogAxis.over([0.0, -1.0], 0.0, 1.0) is None
    assert LogAxis.over([1.0, 30.0], 0.0, 1.0) is None
    axis = LogAxis.over([0.1, 1.0, 10.0], 0.0, 220.0)
    assert [axis.at(value) for value in (0.0, 0.1, 1.0, 10.0)] == [0.0, 10.0, 110.0, 210.0]
    assert [tick.label for tick in axis.ticks(str)] == ["0.1", "1.0", "10.0"]
    narrower = LogAxis.over([1.0, 50.0], 0.0, 220.0)
    assert [tick.label for tick in narrower.ticks(str)] == ["1.0", "2.0", "5.0", "10.0", "20.0", "50.0"]
