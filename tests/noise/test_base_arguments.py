"""Bad parameters are refused, with an error that names the argument and its value."""

import math
from collections.abc import Callable
from typing import Any

import pytest

from plrvo.noise import (
    PLRV,
    ChiSquaredSeed,
    ExponentialSeed,
    GammaPLRV,
    GammaSeed,
    Gaussian,
    GeneralisedGaussian,
    Laplace,
    SumSeed,
    TruncatedNormalSeed,
    UniformSeed,
    WeibullSeed,
)
from plrvo.validate import InvalidArgument

POSITIVE: list[tuple[str, Callable[[Any], Any]]] = [
    ("sigma", Gaussian),
    ("b", Laplace),
    ("width", lambda v: GeneralisedGaussian(1.5, v)),
    ("shape", lambda v: GeneralisedGaussian(v, 1.0)),
    ("k", lambda v: GammaPLRV(v, 1.0)),
    ("theta", lambda v: GammaPLRV(2.0, v)),
    ("k", lambda v: GammaSeed(v, 1.0)),
    ("theta", lambda v: GammaSeed(2.0, v)),
    ("scale", ExponentialSeed),
    ("degrees", lambda v: ChiSquaredSeed(v)),
    ("scale", lambda v: ChiSquaredSeed(2.0, v)),
    ("high", lambda v: UniformSeed(0.0, v)),
    ("std", lambda v: TruncatedNormalSeed(1.0, v)),
    ("shape", lambda v: WeibullSeed(v, 1.0)),
    ("scale", lambda v: WeibullSeed(1.0, v)),
    ("weights", lambda v: SumSeed((v,), (ExponentialSeed(1.0),))),
]


@pytest.mark.parametrize(("argument", "build"), POSITIVE)
def test_parameter_must_be_positive_and_finite(argument: str, build: Callable[[Any], Any]) -> None:
    for value in (0.0, -1.0, math.nan, math.inf, True, "1", None, [1.0]):
        with pytest.raises(InvalidArgument, match=f"^{argument}=") as caught:
            build(value)
        assert isinstance(caught.value, ValueError)
        assert caught.value.argument == argument
        assert caught.value.value is value


@pytest.mark.parametrize("value", [-0.1, math.nan, math.inf, True, "0"], ids=repr)
def test_lower_end_must_not_be_negative(value: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"^low="):
        UniformSeed(value, 1.0)
    with pytest.raises(InvalidArgument, match=r"^low="):
        TruncatedNormalSeed(1.0, 1.0, value)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, True, "0"], ids=repr)
def test_mean_before_truncation_may_be_any_finite_number(value: Any) -> None:
    assert TruncatedNormalSeed(-3.0, 1.0).mean > 0
    with pytest.raises(InvalidArgument, match=r"^mean_before="):
        TruncatedNormalSeed(value, 1.0)


def test_empty_interval_is_refused() -> None:
    with pytest.raises(InvalidArgument, match=r"^high=1\.0: expected a number above low=1\.0"):
        UniformSeed(1.0, 1.0)


def test_sum_needs_a_weight_for_each_seed() -> None:
    with pytest.raises(InvalidArgument, match=r"^weights="):
        SumSeed((1.0, 2.0), (ExponentialSeed(1.0),))
    with pytest.raises(InvalidArgument, match=r"^weights="):
        SumSeed((), ())


@pytest.mark.parametrize("value", [2.0, None, Laplace(1.0), GammaSeed], ids=repr)
def test_plrv_needs_a_seed(value: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"^seed="):
        PLRV(value)


@pytest.mark.parametrize("value", [0, -1, 1.0, True, "3", math.nan], ids=repr)
def test_dimension_of_the_information_must_be_a_whole_number(value: Any) -> None:
    for noise in (GammaPLRV(2.0, 1.0), GammaPLRV(2.0, 1.0, shared=True), PLRV(UniformSeed(1.0, 2.0))):
        with pytest.raises(InvalidArgument, match=r"^dimension="):
            noise.fisher_information(value)


@pytest.mark.parametrize("noise", [Gaussian(1.0), Laplace(1.0), GammaPLRV(2.0, 1.0), PLRV(UniformSeed(1.0, 2.0))])
def test_width_cannot_be_scaled_to_nothing(noise: Any) -> None:
    for factor in (0.0, -2.0, math.nan, math.inf):
        with pytest.raises((InvalidArgument, ZeroDivisionError)):
            noise.scaled(factor)


def test_values_are_frozen() -> None:
    for value, name in ((Laplace(1.0), "b"), (GammaPLRV(2.0, 1.0), "theta"), (GammaSeed(2.0, 1.0), "k")):
        with pytest.raises(AttributeError):
            setattr(value, name, 5.0)
