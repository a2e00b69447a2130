"""How draws are asked for: shapes, types, generators, repetition."""

import numpy as np
import pytest
import torch
from tests.noise.catalogue import NOISES, SEEDS
from torch.utils._python_dispatch import TorchDispatchMode

from plrvo.noise import PLRV, GammaPLRV, Gaussian, Keystream, Laplace, Noise
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


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_noise_is_finite_in_singles_that_share_a_block_with_doubles(library: str) -> None:
    """Wide enough to leave the range of singles, in which every third draw of doubles would be infinite."""
    make = np.zeros if library == "numpy" else torch.zeros
    single = np.float32 if library == "numpy" else torch.float32
    double = np.float64 if library == "numpy" else torch.float64
    buffers = [make(1000, dtype=single), make(3, dtype=double), make((10, 20), dtype=single).T]
    Gaussian(3e38).add_to(buffers, Keystream(bytes(32)))
    for buffer in buffers:
        assert np.isfinite(np.asarray(buffer)).all()
        assert np.asarray(buffer, dtype=np.float64).std() > 1e38


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


class Largest(TorchDispatchMode):
    """The most numbers that a new tensor had."""

    numbers = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        made = function(*args, **(kwargs or {}))
        places = {t.untyped_storage().data_ptr() for t in args if isinstance(t, torch.Tensor)}
        if isinstance(made, torch.Tensor) and made.untyped_storage().data_ptr() not in places:
            self.numbers = max(self.numbers, made.numel())
        return made


ELSEWHERE = {
    "bfloat16": torch.zeros(7, 150_000, dtype=torch.bfloat16),
    "float16": torch.full((1_050_000,), 65_000.0, dtype=torch.float16),
    "turned": torch.zeros(150_000, 7).t(),
    "turned doubles": torch.zeros(3, 150_000, 2, dtype=torch.float64).permute(2, 0, 1),
}


@pytest.mark.parametrize("buffer", ELSEWHERE.values(), ids=ELSEWHERE)
@pytest.mark.parametrize("noise", [Gaussian(700.0), GammaPLRV(3.0, 0.005, shared=True)], ids=["gaussian", "shared"])
def test_noise_for_other_layouts_is_rounded_once_and_copied_by_blocks(
    noise: Noise, buffer: torch.Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The very sum, in singles or doubles, that a buffer in one row gets; beside another one, as in a step."""
    monkeypatch.setattr("plrvo.noise.spans.available_threads", lambda: 1)  # what other threads make is not seen
    wide = torch.promote_types(buffer.dtype, torch.float32)
    beside, in_one_row = torch.zeros(5), buffer.to(wide, copy=True).contiguous()
    noise.add_to([beside.clone(), in_one_row], Keystream.from_seed(8, "test"))
    largest = torch.finfo(buffer.dtype).max
    expected = in_one_row.clamp(-largest, largest).to(buffer.dtype)
    found = buffer.clone()
    with Largest() as tracked:
        noise.add_to([beside, found], Keystream.from_seed(8, "test"))
    assert torch.equal(found, expected)
    assert found.stride() == buffer.stride()
    assert 0 < tracked.numbers <= 1 << 18


def test_noise_goes_to_tensors_of_inference_from_the_thread_that_made_them() -> None:
    """Copies to and fro are not for other threads: they have their own mode, and on a device their own stream."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with torch.inference_mode():
            half = torch.zeros(600_000, dtype=torch.bfloat16)
            Gaussian(1.0).add_to([half], torch.Generator().manual_seed(1))
        whole = torch.zeros(600_000)
        Gaussian(1.0).add_to([whole], torch.Generator().manual_seed(1))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(half, whole.bfloat16())
