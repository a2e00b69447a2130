"""Every noise and seed survives a trip through JSON; descriptions that make no sense are refused by name."""

import json
from typing import Any

import pytest
from tests.noise.catalogue import NOISES, SEEDS, SUM

from plrvo.noise import (
    PLRV,
    ExponentialSeed,
    GammaPLRV,
    GammaSeed,
    Gaussian,
    Noise,
    Seed,
    SumSeed,
    UniformSeed,
    noise_from_dict,
    seed_from_dict,
)
from plrvo.validate import InvalidArgument

NESTED = SumSeed((2.0,), (SumSeed((0.1, 0.3), (ExponentialSeed(1.0), UniformSeed(0.0, 1 / 3))),))
ALL = {
    **NOISES,
    "Gamma shared": GammaPLRV(60_000.0, 1e-5, shared=True),
    "PLRV shared": PLRV(SUM, shared=True),
    "PLRV nested": PLRV(NESTED),
    "awkward digits": Gaussian(0.1 + 0.2),
}


@pytest.mark.parametrize("noise", ALL.values(), ids=ALL)
def test_noise_survives_json(noise: Noise) -> None:
    again = noise_from_dict(json.loads(json.dumps(noise.to_dict())))
    assert again == noise
    assert hash(again) == hash(noise)
    assert again.to_dict() == noise.to_dict()


@pytest.mark.parametrize("seed", [*SEEDS.values(), SUM, NESTED], ids=repr)
def test_seed_survives_json(seed: Seed) -> None:
    assert seed_from_dict(json.loads(json.dumps(seed.to_dict()))) == seed


def test_description_names_its_parameters() -> None:
    assert GammaPLRV(3.0, 0.5).to_dict() == {"noise": "gamma", "k": 3.0, "theta": 0.5, "shared": False}
    assert PLRV(GammaSeed(3.0, 0.5)).to_dict() == {
        "noise": "plrv",
        "seed": {"seed": "gamma", "k": 3.0, "theta": 0.5},
        "shared": False,
    }


def test_defaults_may_be_left_out() -> None:
    assert noise_from_dict({"noise": "gamma", "k": 3.0, "theta": 0.5}) == GammaPLRV(3.0, 0.5)


@pytest.mark.parametrize(
    ("description", "said"),
    [
        ({"noise": "cauchy", "b": 1.0}, "cauchy.*gamma, gaussian, .*grid, laplace, plrv"),
        ({"b": 1.0}, "noise=None"),
        ({"noise": 3, "b": 1.0}, "noise=3"),
        ({"noise": "laplace", "scale": 1.0}, "'scale'.*takes b"),
        ({"noise": "laplace", "b": 1.0, "sigma": 2.0}, "'sigma'"),
        ({"noise": "gamma", "k": 3.0}, "theta"),
        ({"noise": "laplace", "b": -1.0}, "b=-1.0"),
        ({"noise": "laplace", "b": "1.0"}, "b='1.0'"),
        ({"noise": "plrv", "seed": {"seed": "levy", "scale": 1.0}}, "levy.*weibull"),
        ({"noise": "plrv", "seed": {"seed": "uniform", "low": 0.0, "top": 1.0}}, "'top'"),
        ({"noise": "plrv", "seed": 3}, "seed=3"),
        ({"noise": "grid", "base": "laplace", "cell": 0.1}, "noise='laplace'"),
        ({"noise": "grid", "base": {"noise": "laplace", "b": 1.0}}, "cell=0.0"),
        ({"noise": "grid", "base": {"noise": "laplace", "b": 1.0}, "cell": "fine"}, "cell='fine'"),
        ({"noise": "plrv", "seed": {"seed": "sum", "weights": [1.0], "seeds": []}}, "weights"),
        ("laplace", "noise='laplace'"),
    ],
    ids=str,
)
def test_senseless_description_is_refused_by_name(description: Any, said: str) -> None:
    with pytest.raises(InvalidArgument, match=said):
        noise_from_dict(description)
