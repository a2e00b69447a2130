"""How draws are asked for: shapes, types, generators, repetition."""

import numpy as np
import pytest
import torch
from tests.noise.catalogue import NOISES, SEEDS

from plrvo.noise import PLRV, GammaPLRV, Keystream, Laplace, Noise
from plrvo.validate import InvalidArgument

ALL = {
    **NOISES,
    "Gamma shared": GammaPLRV(3.0, 0.5, shared=True),
    "PLRV shared": PLRV(SEEDS["uniform"], shared=True),
}
each_noise = pytest.mark.parametrize("noise", ALL.values(), ids=ALL)


@each_noise
def test_draws_have_the_shape_that_is_asked_for(noise: Noise) -> None:
    """A scalar is a draw without axes."""
    for shape in (7, (7,), (2, 3, 4), 0, (0, 3), 1, ()):
        expected = (shape,) if isinstance(shape, int) else shape
        assert noise.sample(shape, np.random.default_rng(0)).shape == expected
        assert tuple(noise.sample(shape, torch.Generator().manual_seed(0)).shape) == expected


@each_noise
def test_the_same_seed_gives_the_same_draw(noise: Noise) -> None:
    one, two, other = (noise.sample((3, 5), np.random.default_rng(seed)) for seed in (4, 4, 5))
    assert np.array_equal(one, two)
    assert not np.any(one == other)
    one, two, other = (noise.sample((3, 5), torch.Generator().manual_seed(seed)) for seed in (4, 4, 5))
    assert torch.equal(one, two)
    assert not torch.any(one == other)


@each_noise
def test_the_next_draw_of_a_generator_is_a_fresh_one(noise: Noise) -> None:
    rng = np.random.default_rng(4)
    assert not np.any(noise.sample(5, rng) == noise.sample(5, rng))
    rng_t = torch.Generator().manual_seed(4)
    assert not torch.any(noise.sample(5, rng_t) == noise.sample(5, rng_t))


@each_noise
def test_default_types_are_those_of_the_library(noise: Noise) -> None:
    assert noise.sample(3, np.random.default_rng(0)).dtype == np.float64
    assert noise.sample(3, torch.Generator()).dtype == torch.get_default_dtype()


@each_noise
def test_narrower_types_are_roundings_of_the_same_draw(noise: Noise) -> None:
    """Logarithms are rounded before they are mapped: 1 + log(1 + |z|/width) units in the last place, and a few."""
    wide = noise.sample(2000, np.random.default_rng(6))
    narrow = noise.sample(2000, np.random.default_rng(6), np.float32)
    units = 4 + np.log1p(np.abs(wide) / np.median(np.abs(wide)))
    assert np.all(np.abs(narrow - wide) <= units * 2.0**-23 * np.abs(wide))


def test_sampling_does_not_touch_global_generators() -> None:
    before, before_t = np.random.get_state()[1].copy(), torch.get_rng_state()  # noqa: NPY002
    for noise in ALL.values():
        noise.sample(5, np.random.default_rng(0))
        noise.sample(5, torch.Generator().manual_seed(0))
    assert np.array_equal(before, np.random.get_state()[1])  # noqa: NPY002
    assert torch.equal(before_t, torch.get_rng_state())


@each_noise
def test_no_draw_is_infinite_or_missing(noise: Noise) -> None:
    assert np.all(np.isfinite(noise.sample(100_000, np.random.default_rng(1))))


@pytest.mark.parametrize("noise", [Laplace(1.0), GammaPLRV(2.0, 1.0), GammaPLRV(2.0, 1.0, shared=True)], ids=repr)
def test_bad_generators_and_types_are_refused(noise: Noise) -> None:
    with pytest.raises(InvalidArgument, match="generator="):
        noise.sample(3, 42)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="generator="):
        noise.sample(3, np.random)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="dtype="):
        noise.sample(3, np.random.default_rng(0), np.int64)
    with pytest.raises(InvalidArgument, match="dtype="):
        noise.sample(3, torch.Generator(), torch.int64)


@each_noise
def test_score_of_a_tensor_is_a_tensor(noise: Noise) -> None:
    z = torch.tensor([[-2.0, 0.0], [0.3, 5.0]], dtype=torch.float64)
    value = noise.score(z)
    assert isinstance(value, torch.Tensor)
    assert value.dtype == z.dtype
    assert value.numpy() == pytest.approx(noise.score(z.numpy()), rel=1e-14, abs=0.0)


def test_draws_of_every_seed_are_finite_at_the_ends_of_the_uniform() -> None:
    ends = np.array([[0.5], [2.0**-53], [1 - 2.0**-53]])
    for name, seed in SEEDS.items():
        u = seed.draw(ends)
        assert np.all(np.isfinite(u) & (u > 0)), name


@each_noise
def test_a_keystream_gives_arrays_or_tensors_as_the_type_says(noise: Noise) -> None:
    for dtype in (None, np.float32, np.float64):
        drawn = noise.sample((2, 3), Keystream(), dtype)
        assert isinstance(drawn, np.ndarray)
        assert drawn.dtype == (dtype or np.float64)
    for kind in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
        assert noise.sample((2, 3), Keystream(), kind).dtype == kind


@each_noise
def test_a_keystream_moves_on_and_repeats_with_its_key(noise: Noise) -> None:
    keystream = Keystream(bytes(32))
    one, two = (noise.sample(50, keystream) for _ in range(2))
    assert not np.any(one == two)
    assert np.array_equal(one, noise.sample(50, Keystream(bytes(32))))


@each_noise
def test_no_buffers_are_no_draw(noise: Noise) -> None:
    noise.add_to([], Keystream())
    noise.add_to([torch.zeros(0)], Keystream())
