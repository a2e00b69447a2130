"""How gradients are clipped is a part of the plan, and what it costs follows from it."""

from dataclasses import replace

import numpy as np
import pytest

import plrvo
from plrvo.accounting.correlated import Correlation, Participation, Tree
from plrvo.accounting.exact import on_grid
from plrvo.accounting.plan import Plan
from plrvo.validate import InvalidArgument

WORK = plrvo.Workload(sample_rate=0.1, steps=20, clip=1.0, dimension=650)
DELTA = 1e-5


def test_the_worst_gradient_of_an_l1_ball_is_one_hot():
    """The moment of a one-hot gradient is at least that of any other of the same l1 norm."""
    noise, generator, eta = plrvo.Laplace(0.7), np.random.default_rng(3), np.array([2.0, 5.0, 30.0])
    one_hot = noise.log_moment(WORK.clip, eta)
    for _ in range(200):
        shifts = generator.dirichlet(np.full(6, 0.3)) * WORK.clip
        other = sum(noise.log_moment(x, eta) for x in shifts)
        assert np.all(other <= one_hot * (1 + 1e-12))


def test_no_gradient_of_an_l1_ball_shows_more_than_a_one_hot_one_at_any_level():
    """H of two coordinates by their outputs in cells, which show no more than the outputs themselves."""
    edges = np.concatenate([[-np.inf], np.linspace(-8.0, 9.0, 1701), [np.inf]])
    cells = [np.diff(plrvo.Laplace(1.0).cdf(edges - s)) for s in (0.0, 0.2, 0.5, 0.8, 1.0)]
    without, pairs = cells[0], [(cells[1], cells[3]), (cells[2], cells[2]), (cells[4], cells[0])]
    other = np.multiply.outer(without, without)
    for a in np.exp([0.0, 0.1, 0.5, 0.9, -0.4]):
        spread, equal, one_hot = (float(np.sum(np.maximum(np.multiply.outer(*p) - a * other, 0.0))) for p in pairs)
        assert max(spread, equal) < one_hot
        assert one_hot == pytest.approx(_profile_of_one(a), abs=1e-3)


def _profile_of_one(a):
    return 1 - np.sqrt(a / np.e) if a >= 1 else 1 - a + a * _profile_of_one(1 / a)


def test_an_l1_plan_is_charged_as_one_coordinate_and_keeps_its_dimension():
    plan = Plan.certify(plrvo.Laplace(2.0), WORK, DELTA, clipping="l1")
    classical = plrvo.epsilon(plrvo.Laplace(2.0), replace(WORK, dimension=1), DELTA)
    assert plan.workload == WORK
    assert plan.bracket == classical == plan.ledger(WORK.steps).epsilon(DELTA)
    assert plan.bracket.certified < Plan.certify(plrvo.Laplace(2.0), WORK, DELTA).bracket.certified
    fitted = Plan.fitted(plrvo.Laplace(1.0), WORK, DELTA, 2.0, clipping="l1")
    assert 1.999 < fitted.bracket.certified <= 2.0
    assert fitted.noise.variance < Plan.fitted(plrvo.Laplace(1.0), WORK, DELTA, 2.0).noise.variance


def test_per_layer_costs_what_flat_costs():
    flat, layers = (Plan.certify(plrvo.Laplace(2.0), WORK, DELTA, clipping=name) for name in ("flat", "per_layer"))
    assert flat.bracket == replace(layers.bracket, lower=flat.bracket.lower)  # which layers may forbid to reach
    assert flat != layers


@pytest.mark.parametrize(
    "noise", [plrvo.Gaussian(1.0), plrvo.GammaPLRV(20.0, 0.05), plrvo.GeneralisedGaussian(1.5, 1.0)]
)
def test_an_l1_clip_takes_a_noise_whose_worst_gradient_is_one_hot(noise):
    with pytest.raises(InvalidArgument, match="clipping='l1'"):
        Plan.certify(noise, WORK, DELTA, clipping="l1")


def test_what_knows_l2_norms_only_is_refused():
    with pytest.raises(InvalidArgument, match="clipping='l1'"):
        Plan.certify(
            plrvo.Laplace(2.0),
            replace(WORK, sample_rate=1.0),
            DELTA,
            None,
            Correlation(Tree(), Participation(20)),
            "l1",
        )
    for clipping in ("l1", "per_layer", "adaptive"):
        with pytest.raises(InvalidArgument, match="clipping="):
            on_grid(Plan.certify(plrvo.Laplace(2.0), WORK, DELTA, clipping=clipping))
    with pytest.raises(InvalidArgument, match="one of flat, per_layer, automatic, l1, adaptive"):
        Plan.certify(plrvo.Laplace(2.0), WORK, DELTA, clipping="loose")


@pytest.mark.parametrize("clipping", list(plrvo.Clipping))
def test_a_plan_is_what_its_record_says(clipping):
    plan = Plan.certify(plrvo.Laplace(2.0), WORK, DELTA, 9.0, clipping=clipping)
    assert Plan.from_dict(plan.to_dict()) == plan == Plan.from_dict(plan.to_dict(), clipping)
    others = [other for other in plrvo.Clipping if other is not clipping]
    for other in others:
        with pytest.raises(InvalidArgument, match="clipping"):
            Plan.from_dict(plan.to_dict(), other)


def test_a_plan_of_the_format_before_has_the_clipping_that_is_said_beside_it():
    """It encoded an l1 clip as a dimension of 1."""
    before = Plan.certify(plrvo.Laplace(2.0), replace(WORK, dimension=1), DELTA).to_dict(form=1)
    assert before["plan"] == 1
    assert "clipping" not in before
    assert Plan.from_dict(before).clipping is plrvo.Clipping.flat
    read = Plan.from_dict(before, "l1")
    assert read.clipping is plrvo.Clipping.l1
    assert read.covers(650)
    assert not Plan.from_dict(before).covers(650)
    now = Plan.certify(plrvo.Laplace(2.0), WORK, DELTA, clipping="l1")
    assert now.bracket == read.bracket
    assert now.to_dict(form=1) == read.to_dict(form=1) == before


@pytest.mark.parametrize("form", [0, 3, True, "1", None])
def test_other_formats_are_refused(form):
    plan = Plan.certify(plrvo.Laplace(2.0), WORK, DELTA)
    with pytest.raises(InvalidArgument, match="format 2, or 1"):
        Plan.from_dict({**plan.to_dict(), "plan": form})
