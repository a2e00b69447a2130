"""Epsilons on the page are rounded to the side on which they stay true."""

from dataclasses import replace

from plrvo import Laplace, Workload, epsilon
from plrvo.designer.comparison import compare
from plrvo.explore.answers import quick
from plrvo.explore.fragments import comparison
from plrvo.explore.pictures import costs
from plrvo.explore.question import Question

SMALL = Workload(sample_rate=0.1, steps=10, clip=1.0, dimension=10)


def test_noises_of_one_certified_epsilon_are_compared_at_no_smaller_one():
    found = compare(SMALL, 2.0, 1e-5)
    assert "2.001" in comparison(replace(found, epsilon=2.00001))
    assert "2.001" not in comparison(found)


def test_points_of_the_chart_tell_bounds_outwards():
    question = Question.read("width=1.1")
    bracket = replace(epsilon(Laplace(2.0), SMALL, 1e-5), certified=2.00001, lower=1.99999)
    chart = costs(question, quick(question), bracket)[0]
    tips = {series.label: [point.tip for point in series.points][-1] for series in chart.series}
    assert "epsilon 2.001" in tips["certified"]
    assert "epsilon 1.999" in tips["lower"]
