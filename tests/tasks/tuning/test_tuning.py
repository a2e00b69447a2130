"""What a search may be asked for."""

import pytest
from tests.tasks.tuning.searches import small

from plrvo import InvalidArgument
from plrvo.accounting.selection import NegativeBinomial, PoissonCount
from plrvo.noise import Keystream
from plrvo.tasks.tuning import Listed, Range, Tuning, read_vary


def test_a_search_survives_a_file():
    tuning = small(
        vary={"learning_rate": Range(0.1, 10.0, log=True), "clip": Listed((0.1, 1.0))}, distribution="poisson"
    )
    assert Tuning.from_dict(tuning.to_dict()) == tuning
    assert tuning.count == PoissonCount(3.0)
    assert small(distribution="tnb", eta=0.0).count == NegativeBinomial.of_mean(3.0, 0.0)


def test_settings_are_drawn_from_all_values_and_with_replacement():
    tuning = small(vary={"learning_rate": Range(0.1, 10.0, log=True), "clip": Listed((0.1, 1.0, 3.0))})
    stream = Keystream(bytes(32))
    drawn = [tuning.drawn(stream) for _ in range(300)]
    rates = [trial["learning_rate"] for trial in drawn]
    assert all(0.1 <= rate <= 10 for rate in rates)
    assert 110 < sum(rate < 1 for rate in rates) < 190  # half of them; fails by chance once in 1e5
    assert {trial["clip"] for trial in drawn} == {0.1, 1.0, 3.0}


@pytest.mark.parametrize(
    "text", ["lr", "foo=1", "lr=", "lr=a", "lr=2:1", "lr=0:1:log", "lr=1:2:exp", "clip=0.1:1", "steps=1.5", "lr=1,1"]
)
def test_what_cannot_be_varied_is_named(text):
    with pytest.raises(InvalidArgument) as refused:
        read_vary([text])
    assert refused.value.argument == "vary"


def test_a_range_is_a_grid_if_asked_for():
    found = read_vary(["lr=0.01:1:log", "weight-decay=0:1"], grid=True)
    assert found["learning_rate"] == Listed((0.01, 0.0316228, 0.1, 0.316228, 1.0))
    assert found["weight_decay"] == Listed((0.0, 0.25, 0.5, 0.75, 1.0))


@pytest.mark.parametrize(
    ("changes", "argument"),
    [
        ({"vary": {}}, "vary"),
        ({"trials_mean": 1.0}, "trials_mean"),
        ({"trials_mean": 0.5, "distribution": "poisson"}, "trials_mean"),
        ({"eta": 0.5}, "eta"),
        ({"distribution": "tnb", "eta": -1.0}, "eta"),
        ({"held_out": 1.0}, "held_out"),
        ({"job": {"learning_rate": 1.0}}, "learning_rate"),
        ({"job": {"noise": "none", "epsilon": None}}, "noise"),
        ({"job": {"exact": True}}, "exact"),
        ({"vary": {"momentum": Listed((0.5, 2.0))}}, "momentum"),
        ({"vary": {"learning_rate": Range(-1.0, 1.0)}}, "learning_rate"),
    ],
)
def test_what_no_trial_could_run_is_refused_before_anything_is_drawn(changes, argument):
    with pytest.raises(InvalidArgument) as refused:
        small(**changes)
    assert refused.value.argument == argument
