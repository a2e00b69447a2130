"""The black-box audit: broken training is refuted, honest training is not."""

from dataclasses import replace

import numpy as np
import pytest
from tests.audit.toy import toy_data

import plrvo
from plrvo.audit.clipbkd import Attack, audit_clipbkd, make_poison, make_recipe, workload
from plrvo.audit.ensemble import Recipe
from plrvo.noise import GammaPLRV, Gaussian, Laplace
from plrvo.tasks.attacked import load
from plrvo.validate import InvalidArgument

DELTA = 1e-5
DATA = toy_data()
RECIPE = Recipe(sample_rate=0.5, steps=30, clip=0.2, learning_rate=0.5, divisor=100.0)
WORK = workload(DATA, "lr", RECIPE)
GAMMA = plrvo.calibrate(GammaPLRV(k=20.0, theta=1.0), WORK, epsilon=1.0, delta=DELTA)


def verdict(noise, recipe=RECIPE, models=400, kind="lr", claim=1.0, **more) -> str:
    """Four hundred models, a hundred to test each world: they can show up to 2.9."""
    return audit_clipbkd(DATA, noise, DELTA, claim, kind=kind, recipe=recipe, models=models, seed=1, **more).verdict


@pytest.mark.parametrize("kind", ["lr", "fnn"])
@pytest.mark.parametrize(
    "shape", [Gaussian(1.0), Laplace(1.0), GammaPLRV(20.0, 1.0), GammaPLRV(20.0, 1.0, shared=True)]
)
def test_honest_training_survives_with_its_certified_epsilon(kind, shape):
    """False alarm at most 0.01 for each of the eight cases, and far less: a black box sees little of one example."""
    work = workload(DATA, kind, RECIPE)
    noise = plrvo.calibrate(shape, work, epsilon=1.0, delta=DELTA)
    assert verdict(noise, kind=kind, models=200) == "consistent"


# One test for each way to break the training. Each claims what the honest training certifies: epsilon 1.


def test_no_noise_is_refuted():
    assert verdict(None) == "refuted"
    assert verdict(None, kind="fnn") == "refuted"


def test_no_clipping_is_refuted():
    """The clip is small beside the gradients, as it is in the paper's settings."""
    small = replace(RECIPE, clip=0.002)
    noise = plrvo.calibrate(GAMMA, workload(DATA, "lr", small), epsilon=1.0, delta=DELTA)
    assert verdict(noise, small) == "consistent"
    assert verdict(noise, replace(small, clip=None)) == "refuted"


def test_theta_used_as_a_rate_is_refuted():
    assert verdict(GammaPLRV(GAMMA.k, 1 / GAMMA.theta)) == "refuted"


def test_noise_sized_for_the_mean_and_added_to_the_sum_is_refuted():
    """A batch too small. Noise for the sum on the mean is a batch too much, and claims nothing false."""
    assert verdict(GAMMA.scaled(1 / RECIPE.divisor)) == "refuted"
    assert verdict(GAMMA.scaled(RECIPE.divisor)) == "consistent"


def test_the_poison_lies_where_the_data_does_not():
    poison = make_poison(DATA)
    assert abs(poison.x[-1]) == pytest.approx(np.linalg.norm(poison.x), rel=1e-5)
    assert np.linalg.norm(poison.x) == pytest.approx(np.linalg.norm(DATA.x, axis=1).mean(), rel=1e-5)
    assert poison.label in (0, 1)


def test_the_poison_has_the_label_that_a_clean_model_finds_least_likely():
    y = np.arange(900) % 3
    x = np.random.default_rng(5).random((900, 4)).astype(np.float32)
    x[:, 3] = 0.05 * (y == 1)  # what little there is in this direction belongs to class 1
    poison = make_poison(replace(DATA, x=x, y=y, classes=3))
    assert poison.x.argmax() == 3
    assert poison.label != 1


def test_scores_rise_with_the_poison():
    """Without noise the two worlds are far apart, for each kind of model and number of classes."""
    for data in (DATA, toy_data(classes=3)):
        for kind in ("lr", "fnn"):
            attack = Attack(data, make_poison(data), kind, replace(RECIPE, sample_rate=1.0), None, 1)
            without, with_it = (attack.scores(world, 2, np.random.default_rng(2)) for world in (False, True))
            assert with_it.min() > without.max()


def test_an_audit_repeats_with_its_seed_on_any_engine():
    audits = [
        audit_clipbkd(DATA, GAMMA, DELTA, 1.0, recipe=RECIPE, models=480, seed=3, engine=engine, jobs=jobs)
        for engine, jobs in (("loky", 1), ("loky", 2))
    ]
    assert audits[0] == audits[1]


def test_the_recipe_is_the_papers():
    images = make_recipe(replace(DATA, name="fashion-mnist", x=np.zeros((6000, 1), dtype=np.float32)))
    assert (images.steps, images.learning_rate, images.divisor) == (576, 0.15, 250.0)
    assert make_recipe(DATA).steps == 2400
    assert make_recipe(DATA, sample_rate=0.5, steps=7).steps == 7


@pytest.mark.data
@pytest.mark.parametrize(("name", "kind"), [("fashion-mnist", "lr"), ("location30", "lr"), ("location30", "fnn")])
def test_the_attack_runs_on_the_real_data(data_dir, name, kind):
    """Two full steps without noise: the poison shows at once."""
    data = load(name, data_dir)
    recipe = replace(make_recipe(data), sample_rate=1.0, steps=2)
    attack = Attack(data, make_poison(data), kind, recipe, None, 1)
    without, with_it = (attack.scores(world, 1, np.random.default_rng(4)) for world in (False, True))
    assert with_it[0] > without[0]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"models": 20}, "models=20: expected at least 32: .* 5 perfect tests certify at most epsilon 0"),
        ({"claim": float("nan")}, "claim"),
        ({"engine": "spark"}, "engine"),
        ({"kind": "cnn"}, "model"),
    ],
)
def test_bad_input_is_refused(change, named):
    arguments = {"claim": 1.0, "models": 400, "recipe": RECIPE, "seed": 1, **change}
    with pytest.raises(InvalidArgument, match=named):
        audit_clipbkd(DATA, GAMMA, DELTA, **arguments)


def test_training_without_a_clip_claims_nothing():
    with pytest.raises(InvalidArgument, match="without one nothing is claimed"):
        workload(DATA, "lr", replace(RECIPE, clip=None))
