"""The designer as a whole: plans that certify, explain themselves, and survive their file."""

import json
import subprocess
import sys
import warnings

import pytest

import plrvo
from plrvo import GammaPLRV, Gaussian, Ledger, Plan, Workload
from plrvo.accounting.published import published_epsilon
from plrvo.designer import Design, Limits, explain
from plrvo.validate import InvalidArgument

WORK = Workload(sample_rate=0.04, steps=1250, clip=0.1, dimension=26_010)


@pytest.fixture(scope="module")
def plans() -> dict[str, Design]:
    return {name: plrvo.design(WORK, epsilon=1.0, delta=1e-5, accountant=name) for name in ("certified", "published")}


def test_the_accountant_that_was_asked_for_meets_the_budget(plans):
    assert 0.98 < plans["certified"].bracket.certified <= 1
    assert 0.98 < plans["published"].bracket.published <= 1
    assert all(plan.feasible for plan in plans.values())


@pytest.mark.parametrize("name", ["certified", "published"])
def test_a_plan_certifies_when_recomputed_from_its_json(plans, name, tmp_path):
    plan = plans[name]
    plan.save(tmp_path / "plan.json")
    written = json.loads((tmp_path / "plan.json").read_text())
    noise, work = GammaPLRV(**{key: written["noise"][key] for key in ("k", "theta")}), Workload(**written["workload"])
    assert Ledger().plus(noise, work).certified(1e-5).value == pytest.approx(plan.bracket.certified, rel=1e-12)
    again = Plan.load(tmp_path / "plan.json")
    assert (again.noise, again.workload, again.bracket) == (plan.noise, plan.workload, plan.bracket)
    explained = explain(again, epsilon=1.0, accountant=name)
    assert explained.feasible
    assert explained.snr == plan.snr


def test_a_plan_claims_no_budget_that_is_not_certified():
    """Little noise, where the published figure is too small: 2 is met by it, and not certified."""
    loud = Workload(sample_rate=0.01, steps=300, clip=0.5, dimension=26_010)
    plan = plrvo.design(loud, epsilon=2.0, delta=1e-5, accountant="published")
    assert plan.bracket.certified > 2 >= plan.bracket.published
    assert plan.epsilon is None
    assert plan.problem.epsilon == 2
    assert Plan.from_dict(json.loads(json.dumps(plan.to_dict()))).bracket == plan.bracket
    assert plan.alternative("gamma").epsilon == 2
    assert plan.alternative("gamma").bracket.certified <= 2


def test_the_explanation_is_json_and_agrees_with_the_plan(plans):
    plan = plans["certified"]
    data = json.loads(json.dumps(plan.explanation()))
    assert data["snr"] == pytest.approx(data["clip"] * (data["k"] - 1) * data["theta"])
    assert data["snr"] == pytest.approx(data["clip"] / data["distortion"])
    assert data["epsilon_lower"] <= data["epsilon_certified"] <= data["epsilon"]
    with_noise = published_epsilon([(plan.noise, plan.workload)], 1e-5)
    assert data["epsilon_published"] == with_noise[0]
    assert [row["name"] for row in data["constraints"]] == ["c0", "c1", "c2", "c3", "c4", "mgf", "k_max"]
    assert [row["noise"]["noise"] for row in data["alternatives"]] == ["gaussian", "laplace", "gamma"]
    assert data["recommended"]["noise"] == "gaussian"


def test_the_smallest_clip_is_chosen_because_all_are_equally_good(plans):
    fixed = plrvo.design(Workload(0.04, 1250, 0.2, 26_010), epsilon=1.0, delta=1e-5, clip_max=0.2)
    assert plans["certified"].workload.clip == 0.1
    assert fixed.snr == pytest.approx(plans["certified"].snr, rel=1e-6)
    assert fixed.noise.distortion == pytest.approx(2 * plans["certified"].noise.distortion, rel=1e-6)


def test_alternatives_are_plans_within_the_budget(plans):
    plan = plans["certified"]
    assert plan.alternative("gamma") is plan
    gaussian = plan.alternative("recommended")
    assert isinstance(gaussian.noise, Gaussian)
    assert gaussian.epsilon == 1
    assert gaussian.bracket.certified <= 1
    with pytest.raises(InvalidArgument, match="cauchy"):
        plan.alternative("cauchy")


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"clip_max": 0.05}, "clip_max=0.05"),
        ({"epsilon": 0.0}, "epsilon=0.0"),
        ({"epsilon": float("nan")}, "epsilon=nan"),
        ({"delta": 1.5}, "delta=1.5"),
        ({"accountant": "pld"}, "accountant='pld'"),
        ({"dataset_size": 0}, "dataset_size=0"),
        ({"epsilon": 0.01}, "epsilon=0.01"),
    ],
)
def test_bad_arguments_are_named(arguments, named):
    with pytest.raises(InvalidArgument, match=named):
        plrvo.design(**{"work": WORK, "epsilon": 1.0, "delta": 1e-5, **arguments})


@pytest.mark.parametrize("limit", [{"k_max": 1.0}, {"tail": 0.0}, {"tail": 1.0}, {"widest": -1.0}])
def test_bad_limits_are_named(limit):
    with pytest.raises(InvalidArgument, match=next(iter(limit))):
        Limits(**limit)


@pytest.mark.parametrize(("size", "warns"), [(100_000, True), (100_001, True), (99_999, False)])
def test_a_delta_of_one_over_the_data_size_is_warned_of(size, warns):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        plrvo.design(WORK, epsilon=1.0, delta=1e-5, dataset_size=size)
    assert [str(w.message).startswith("delta 1e-05 is not below 1/") for w in caught] == [True] * warns


def test_only_gamma_plans_can_be_explained():
    gaussian = Plan.certify(Gaussian(1.0), WORK, 1e-5, 1.0)
    with pytest.raises(InvalidArgument, match="gamma noise"):
        explain(gaussian)
    without = Plan.certify(GammaPLRV(100.0, 0.01), WORK, 1e-5)
    with pytest.raises(InvalidArgument, match="without one"):
        explain(without)
    too_much = explain(without, epsilon=0.1)
    assert not too_much.feasible
    assert [row.name for row in too_much.constraints if not row.satisfied] == ["c2"]


def test_design_imports_nothing_heavy():
    code = """
import plrvo
from plrvo.designer import compare
import plrvo.designer.predictor
from plrvo.designer.search_space import SearchSpace
assert callable(plrvo.design) and callable(compare)
import sys
assert not {"torch", "sklearn", "matplotlib", "scipy.optimize", "dp_accounting"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True)
