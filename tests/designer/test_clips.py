"""Phase I: the clip range, and who pays for looking."""

import math

import pytest

from plrvo import Gaussian, Laplace, Ledger, Workload
from plrvo.designer.clips import PrivateRuns, clip_range
from plrvo.validate import InvalidArgument


@pytest.mark.parametrize("threshold", [0.0, 0.0011, 0.04, 0.5, 9.9])
@pytest.mark.parametrize("runs", [1, 3, 6])
def test_finds_the_smallest_clip_of_the_grid_that_learns(threshold, runs):
    asked = []

    def train(clip):
        asked.append(clip)
        return 0.4 if clip >= threshold else 0.1

    grid = [1e-3 * 1e4 ** (i / max(1, 2**runs - 2)) for i in range(2**runs - 1)]
    passing = [clip for clip in grid if clip >= threshold]
    if not passing:
        with pytest.raises(InvalidArgument, match="a larger clip"):
            clip_range(train, chance=0.1, runs=runs)
        return
    found = clip_range(train, chance=0.1, runs=runs)
    assert found.smallest == pytest.approx(passing[0])
    assert found.largest == 2 * found.smallest
    assert len(asked) == runs
    assert [clip for clip, _ in found.runs] == asked


def test_chance_needs_a_margin():
    barely = clip_range(lambda clip: 0.14 if clip < 1 else 0.16, chance=0.1, margin=0.05, runs=5)
    assert barely.smallest >= 1


def test_public_data_costs_nothing_and_the_result_says_so():
    found = clip_range(lambda clip: 0.9, chance=0.1)
    assert found.data == "public"
    assert found.ledger == Ledger()
    assert "public data" in found.statement


def test_private_runs_are_charged_to_the_ledger_at_the_clips_that_ran():
    """The ledger is charged at clip 1; releasing at the clips that were used costs the same, to rounding."""
    before = Ledger().plus(Laplace(3.0), Workload(0.01, 50, 1.0, 500))
    private = PrivateRuns(Gaussian(2.0), Workload(0.02, 40, 1.0, 26_010), before)
    found = clip_range(lambda clip: 0.9 if clip > 0.3 else 0.1, chance=0.1, runs=4, private=private)
    assert found.data == "private"
    assert found.ledger.steps == 50 + 4 * 40
    assert "private data" in found.statement
    really = before
    for clip, _ in found.runs:
        really = really.plus(Gaussian(2.0 * clip), Workload(0.02, 40, clip, 26_010))
    assert found.ledger.certified(1e-5).value == pytest.approx(really.certified(1e-5).value, rel=1e-6)
    assert found.ledger.certified(1e-5).value > before.certified(1e-5).value


def test_a_failed_private_search_says_that_it_was_paid_for():
    private = PrivateRuns(Gaussian(2.0), Workload(0.02, 40, 1.0, 26_010))
    with pytest.raises(InvalidArgument, match="4 private runs are spent"):
        clip_range(lambda clip: 0.1, chance=0.1, private=private)
    assert private.charged(4).steps == 160


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"chance": 1.0}, "chance=1.0"),
        ({"chance": -0.1}, "chance=-0.1"),
        ({"chance": 0.1, "low": 0.0}, "low=0.0"),
        ({"chance": 0.1, "low": 2.0, "high": 1.0}, "high=1.0"),
        ({"chance": 0.1, "high": math.inf}, "high=inf"),
        ({"chance": 0.1, "runs": 0}, "runs=0"),
        ({"chance": 0.1, "ratio": 0.5}, "ratio=0.5"),
    ],
)
def test_bad_arguments_are_named(arguments, named):
    with pytest.raises(InvalidArgument, match=named):
        clip_range(lambda clip: 0.9, **arguments)


def test_an_accuracy_that_is_no_number_is_refused():
    with pytest.raises(InvalidArgument, match="accuracy=nan"):
        clip_range(lambda clip: math.nan, chance=0.1)
    with pytest.raises(InvalidArgument, match="clip"):
        PrivateRuns(Gaussian(1.0), Workload(0.1, 1, 0.5, 1))
