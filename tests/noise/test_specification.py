"""A noise is what its options say, and everything that is wrong with them is said at once."""

import json
import math

import pytest

from plrvo.noise import GammaPLRV, Gaussian, Laplace, Specification
from plrvo.noise.registry import NOISES
from plrvo.noise.specification import DESCRIBED
from plrvo.validate import InvalidArgument


def refused(specification: Specification, *, fitted: bool) -> str:
    with pytest.raises(InvalidArgument) as caught:
        specification.shape(2.0) if fitted else specification.noise(2.0)
    return str(caught.value)


def full(kind: str) -> dict[str, float]:
    """A value for every option of a noise that takes one; 1.5 is in the domain of all of them."""
    return {p.option: 1.5 for p in DESCRIBED[kind].parameters if not p.is_flag}


def test_options_build_the_noise_that_they_name() -> None:
    assert Specification("gaussian", {"noise_multiplier": 1.5}).noise(2.0) == Gaussian(3.0)
    assert Specification("laplace", {"scale": 1.5, "k": None}).noise(2.0) == Laplace(1.5)
    assert Specification("gamma", {"k": 3.0, "theta": 0.5, "shared": True}).noise(2.0) == GammaPLRV(3.0, 0.5, True)
    assert Specification("gamma", {"k": 3.0, "theta": 0.5, "shared": False}).noise(2.0) == GammaPLRV(3.0, 0.5)


@pytest.mark.parametrize("kind", DESCRIBED)
def test_every_kind_has_one_width_and_is_built_from_its_own_options(kind: str) -> None:
    assert [p.is_width for p in DESCRIBED[kind].parameters].count(True) == 1
    noise = Specification(kind, full(kind)).noise(2.0)
    assert type(noise) is NOISES[kind]
    for p in noise.parameters:
        if not p.is_flag:
            assert getattr(noise, p.field or p.option) == 1.5 * (2.0 if p.in_clips else 1.0)
    assert noise.options(2.0) == {p.option: False if p.is_flag else 1.5 for p in noise.parameters}


@pytest.mark.parametrize("kind", DESCRIBED)
def test_a_shape_is_as_wide_as_the_clip_and_needs_no_width(kind: str) -> None:
    shaping = {p.option: 1.5 for p in DESCRIBED[kind].parameters if not (p.is_flag or p.is_width)}
    for clip in (1e-3, 2.0):
        shape = Specification(kind, shaping).shape(clip)
        assert 1 / math.sqrt(shape.fisher_information()) == pytest.approx(clip)


@pytest.mark.parametrize("kind", DESCRIBED)
def test_everything_missing_and_everything_foreign_is_named_at_once(kind: str) -> None:
    own = full(kind)
    foreign = {p.option: 7.5 for noise in DESCRIBED.values() for p in noise.parameters if p.option not in own}
    message = refused(Specification(kind, foreign), fitted=False)
    for name in own:
        assert f"`{name}` (missing)" in message
    for name in foreign.keys() - {"shared"}:
        assert f"no `{name}` 7.5" in message


@pytest.mark.parametrize("kind", DESCRIBED)
def test_a_width_beside_a_budget_is_refused(kind: str) -> None:
    (width,) = (p.option for p in DESCRIBED[kind].parameters if p.is_width)
    assert f"no `{width}` 1.5 beside `epsilon`" in refused(Specification(kind, full(kind)), fitted=True)


def test_a_flag_of_another_noise_is_refused() -> None:
    assert "no `shared` True, which is for gamma" in refused(
        Specification("laplace", {"scale": 1.0, "shared": True}), fitted=False
    )


@pytest.mark.parametrize("kind", [None, "none", "plrv", "grid"])
def test_a_kind_without_options_is_refused_with_those_that_have_some(kind: str | None) -> None:
    assert "one of gaussian, laplace, gamma" in refused(Specification(kind), fitted=False)


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf])
def test_a_bad_value_is_named_by_its_option(value: float) -> None:
    for kind in DESCRIBED:
        for option in full(kind):
            with pytest.raises(InvalidArgument) as caught:
                Specification(kind, {**full(kind), option: value}).noise(2.0)
            assert caught.value.argument == option
            assert caught.value.value is value


def test_a_file_describes_any_noise_and_stands_alone(tmp_path) -> None:
    file = tmp_path / "noise.json"
    file.write_text(json.dumps(Laplace(3.0).to_dict()))
    for built in (Specification(file=file).noise(2.0), Specification(file=file).shape(2.0)):
        assert built == Laplace(3.0)
    assert "no `noise`, `scale` beside it" in refused(Specification("laplace", {"scale": 1.0}, file), fitted=False)
