"""Accuracies have one scale on every axis: per cent, which the label says."""

from types import SimpleNamespace
from typing import Any

from plrvo.report.figures import metric_charts


def test_a_curve_has_the_axis_of_the_other_pictures():
    history = [{"step": 1, "accuracy": 0.5}, {"step": 2, "accuracy": 0.75}]
    run: Any = SimpleNamespace(metric="accuracy", history=history, kind_of_noise="gaussian", name="a run")
    (chart,) = metric_charts([run])
    assert chart.y_label == "test accuracy, %"
    ticks = [float(tick.label) for tick in chart.y_ticks]
    assert 50 <= max(ticks) <= 100
