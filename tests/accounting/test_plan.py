"""A plan claims what is certified for its noise and work, and nothing that a file says beyond that."""

import json
from dataclasses import replace

import numpy as np
import pytest

import plrvo
from plrvo.accounting.adjacency import Adjacency, Sampling
from plrvo.accounting.correlated import Banded, Correlation, CyclicPoisson, Participation, Tree
from plrvo.validate import InvalidArgument

WORK = plrvo.Workload(sample_rate=0.1, steps=6, clip=1.0, dimension=650)
PLAN = plrvo.Plan.certify(plrvo.Laplace(2.0), WORK, 1e-5)
IN_ORDER = plrvo.Workload(sample_rate=1.0, steps=10, clip=1.0, dimension=650)
TREE = Correlation(Tree(), Participation(steps_per_epoch=5, epochs=2))


def test_the_bracket_is_that_of_the_ledger_of_all_steps():
    assert PLAN.bracket == plrvo.Ledger().plus(PLAN.noise, WORK).epsilon(1e-5)
    spent = [PLAN.ledger(taken).certified(1e-5).value for taken in (1, 3, 6)]
    assert spent == sorted(set(spent))
    assert spent[-1] == PLAN.bracket.certified


def test_a_noise_that_misses_its_budget_is_refused_with_all_digits():
    certified = PLAN.bracket.certified
    assert plrvo.Plan.certify(PLAN.noise, WORK, 1e-5, certified).epsilon == certified
    with pytest.raises(InvalidArgument, match=repr(certified)):
        plrvo.Plan.certify(PLAN.noise, WORK, 1e-5, certified * (1 - 1e-12))


def test_a_plan_that_is_replaced_in_part_is_certified_again():
    assert replace(PLAN, noise=plrvo.Laplace(1.0)).bracket.certified > PLAN.bracket.certified
    for changes, named in (
        ({"noise": plrvo.GammaPLRV(3.0, 0.1), "clipping": "l1"}, "clipping='l1'"),
        ({"clipping": "diagonal"}, "clipping='diagonal'"),
        ({"epsilon": PLAN.bracket.certified / 2}, "epsilon="),
        ({"delta": 2.0}, "delta=2.0"),
    ):
        with pytest.raises(InvalidArgument, match=named):
            replace(PLAN, **changes)
    with pytest.raises(ValueError, match="bracket"):
        replace(PLAN, bracket=PLAN.bracket)


def test_no_gradient_is_known_that_layers_of_any_size_allow():
    """Of Laplace(1) and the clip 4: 4,000 weights and a bias get 2.83 each, and the bias alone loses no more than that.

    An even gradient of norm 4, which the shares forbid, would give 23.86 away; theirs is at most 16.6 + 2.83.
    """
    work = plrvo.Workload(1.0, 1, 4.0, 4001)
    flat = plrvo.Plan.certify(plrvo.Laplace(1.0), work, 1e-5)
    layered = replace(flat, clipping="per_layer")
    assert flat.bracket.lower > 20
    assert layered.bracket.lower == 0
    assert layered.bracket.certified == flat.bracket.certified
    assert layered.ledger(1).epsilon(1e-5) == layered.bracket
    gaussian = plrvo.Plan.certify(plrvo.Gaussian(1.0), work, 1e-5)
    assert replace(gaussian, clipping="per_layer").bracket == gaussian.bracket


def test_a_fitted_plan_uses_its_budget():
    plan = plrvo.Plan.fitted(plrvo.Laplace(1.0), WORK, 1e-5, 2.0)
    assert 1.999 < plan.bracket.certified <= 2.0 == plan.epsilon


@pytest.mark.parametrize("value", [0.0, 1.0, -1e-5, "1e-5", None], ids=repr)
def test_delta_is_a_probability(value):
    with pytest.raises(InvalidArgument, match=r"^delta="):
        plrvo.Plan.certify(PLAN.noise, WORK, value)


def test_numbers_of_numpy_can_be_written(tmp_path):
    work = plrvo.Workload(sample_rate=0.1, steps=3, clip=1.0, dimension=2)
    plan = plrvo.Plan(plrvo.Gaussian(2.0), work, np.float32(5), np.float32(1e-5))
    assert {type(plan.delta), type(plan.epsilon), type(plan.bracket.delta)} == {float}
    plan.save(tmp_path / "plan.json")
    assert plrvo.Plan.load(tmp_path / "plan.json") == plan
    assert type(plrvo.epsilon(plrvo.Gaussian(2.0), work, np.float32(1e-5)).delta) is float


def test_the_correlation_says_how_batches_are_drawn_and_between_whom_the_guarantee_holds():
    assert (PLAN.batch_share, PLAN.sampling, PLAN.adjacency) == (0.1, Sampling.poisson, Adjacency.add_or_remove)
    tree = plrvo.Plan.certify(plrvo.Laplace(5.0), IN_ORDER, 1e-5, None, TREE)
    assert (tree.batch_share, tree.sampling, tree.adjacency) == (0.2, Sampling.order, Adjacency.zero_out)
    turns = Correlation(Banded((1.0, 0.5)), CyclicPoisson(groups=2, sample_rate=0.2))
    cyclic = plrvo.Plan.certify(plrvo.Gaussian(5.0), IN_ORDER, 1e-5, None, turns)
    assert (cyclic.batch_share, cyclic.sampling, cyclic.adjacency) == (0.1, Sampling.cyclic, Adjacency.zero_out)


@pytest.mark.parametrize("correlation", [None, TREE], ids=["poisson", "tree"])
def test_a_plan_comes_back_from_its_file(tmp_path, correlation):
    plan = plrvo.Plan.certify(plrvo.Laplace(5.0), WORK if correlation is None else IN_ORDER, 1e-5, 90.0, correlation)
    plan.save(tmp_path / "plan.json")
    assert plrvo.Plan.load(tmp_path / "plan.json") == plan


def test_a_plan_may_miss_its_budget_by_the_last_digits_when_it_is_read():
    certified = PLAN.bracket.certified
    just, below = certified * (1 - 1e-10), certified * (1 - 1e-8)
    assert plrvo.Plan.from_dict({**PLAN.to_dict(), "epsilon": just}).epsilon == just
    with pytest.raises(InvalidArgument, match=repr(certified)):
        plrvo.Plan.from_dict({**PLAN.to_dict(), "epsilon": below})
    with pytest.raises(InvalidArgument, match=repr(certified)):
        plrvo.Plan.certify(PLAN.noise, PLAN.workload, PLAN.delta, just)


def test_a_file_cannot_claim_less_than_is_certified():
    claim = {**PLAN.to_dict(), "epsilon_certified": PLAN.bracket.certified / 2}
    with pytest.raises(InvalidArgument, match=repr(PLAN.bracket.certified)):
        plrvo.Plan.from_dict(claim)
    # More is no lie, and is not believed either: what counts is computed.
    more = {**PLAN.to_dict(), "epsilon_certified": 2 * PLAN.bracket.certified, "epsilon_lower": 1e9}
    assert plrvo.Plan.from_dict(more) == PLAN


WRONG = {
    "another version": {**PLAN.to_dict(), "plan": 3},
    "no noise": {key: value for key, value in PLAN.to_dict().items() if key != "noise"},
    "a word for epsilon": {**PLAN.to_dict(), "epsilon_certified": "small"},
    "a workload that is a list": {**PLAN.to_dict(), "workload": [1, 2]},
    "a receipt": {**PLAN.to_dict(), "receipt": 1},
    "a list": [PLAN.to_dict()],
}


@pytest.mark.parametrize("name", WRONG)
def test_a_file_that_is_no_plan_is_refused_in_one_line(tmp_path, name):
    (tmp_path / "plan.json").write_text(json.dumps(WRONG[name]))
    with pytest.raises(InvalidArgument) as caught:
        plrvo.Plan.load(tmp_path / "plan.json")
    assert str(caught.value).isprintable()
