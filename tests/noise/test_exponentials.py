"""The kernel: what a seed gives depends on nothing else, and adding equals drawing."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from plrvo.noise import PLRV, GammaPLRV, Gaussian, Keystream, Laplace, Noise, UniformSeed
from plrvo.noise.exponentials import give_signs, multiplied
from plrvo.noise.spans import SPAN
from plrvo.validate import InvalidArgument

EVERY = [Laplace(0.5), GammaPLRV(3.0, 0.5), Gaussian(2.0), PLRV(UniformSeed(1.0, 3.0))]


def generator(library: str, seed: int = 5) -> Any:
    return np.random.default_rng(seed) if library == "numpy" else torch.Generator().manual_seed(seed)


def array(library: str, count: int) -> Any:
    return np.ones(count) if library == "numpy" else torch.ones(count, dtype=torch.float64)


def test_threads_do_not_change_the_draw() -> None:
    before = torch.get_num_threads()
    drawn = []
    try:
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            drawn.append(GammaPLRV(3.0, 0.5).sample(3 * SPAN + 7, generator("torch")))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(drawn[0], drawn[1])
    assert torch.equal(drawn[0], drawn[2])


@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize("noise", EVERY, ids=repr)
def test_adding_equals_drawing(noise: Noise, library: str) -> None:
    for count in (0, 1, 31, SPAN - 1, SPAN + 1, SPAN + 3):
        buffer = array(library, count)
        noise.add_to([buffer], generator(library))
        drawn = noise.sample(count, generator(library), buffer.dtype)
        assert np.array_equal(np.asarray(buffer), 1 + np.asarray(drawn))


def test_a_shared_scale_is_shared_by_all_buffers() -> None:
    noise, buffers = GammaPLRV(3.0, 0.5, shared=True), [np.zeros(100), np.zeros((10, 5))]
    noise.add_to(buffers, generator("numpy"))
    drawn = noise.sample(150, generator("numpy"))
    assert np.array_equal(np.concatenate([b.ravel() for b in buffers]), drawn)


def test_long_and_short_buffers_are_all_written_once() -> None:
    """Around the lengths at which short buffers stop sharing a stream: no value is left out, none is drawn twice."""
    sizes = [3, SPAN - 3, 1, SPAN, 0, SPAN + 5, 7, SPAN + 1, SPAN - 8, 2]
    buffers = [np.zeros(size, dtype) for size, dtype in zip(sizes, [np.float32, np.float64] * 5, strict=True)]
    Laplace(1.0).add_to(buffers, Keystream(bytes(32)))
    doubles = np.concatenate(buffers[1::2])
    assert all(np.all(buffer) for buffer in buffers)
    assert len(np.unique(doubles)) == len(doubles)
    assert stats.kstest(np.concatenate(buffers), Laplace(1.0).cdf).pvalue > 1e-6


@pytest.mark.parametrize("noise", [Laplace(0.5), GammaPLRV(3.0, 0.5), Gaussian(2.0)], ids=repr)
def test_buffers_get_independent_noise(noise: Noise) -> None:
    """Correlation of 40,000 pairs within five standard errors: false alarm 6e-7."""
    one, other = torch.zeros(40_000), torch.zeros(200, 200)
    noise.add_to([one, other], generator("torch"))
    assert stats.kstest(one.numpy(), noise.cdf).pvalue > 1e-6
    assert stats.kstest(other.flatten().numpy(), noise.cdf).pvalue > 1e-6
    assert abs(stats.spearmanr(one.numpy(), other.flatten().numpy()).statistic) < 5 / 200


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_low_precision_buffers_get_rounded_noise(dtype: torch.dtype) -> None:
    buffer = torch.zeros(1000, dtype=dtype)
    Laplace(0.5).add_to([buffer], generator("torch"))
    assert torch.equal(buffer, Laplace(0.5).sample(1000, generator("torch"), torch.float32).to(dtype))


@pytest.mark.parametrize("noise", EVERY, ids=repr)
def test_a_transposed_tensor_is_added_to_as_well(noise: Noise) -> None:
    buffer = torch.zeros(30, 40).t()
    noise.add_to([buffer], generator("torch"))
    assert torch.equal(buffer, noise.sample((40, 30), generator("torch")))


@pytest.mark.parametrize("noise", EVERY, ids=repr)
def test_an_array_that_is_not_in_one_row_is_added_to_as_well(noise: Noise) -> None:
    whole = np.zeros((6, 8), np.float32)
    noise.add_to([whole[::2, 1::3].T], generator("numpy"))
    assert np.array_equal(whole[::2, 1::3].T, noise.sample((3, 3), generator("numpy"), np.float32))
    assert np.count_nonzero(whole) == 9


@pytest.mark.parametrize("buffer", [np.zeros(3, np.int64), torch.zeros(3, dtype=torch.int64), [0.0]], ids=repr)
def test_buffers_of_other_things_are_refused(buffer: Any) -> None:
    with pytest.raises(InvalidArgument, match="buffer="):
        Laplace(0.5).add_to([buffer], Keystream())


@pytest.mark.parametrize("noise", EVERY, ids=repr)
def test_arrays_and_tensors_get_the_same_noise_of_a_key_in_any_mixture(noise: Noise) -> None:
    """Singles, doubles, halves, rows and columns in one draw: each the rounding of what doubles get."""
    shapes = [(5, 4), (3,), (4, 5), (2, 2), (7,)]
    wide = [np.zeros(shape) for shape in shapes]
    noise.add_to(wide, Keystream(bytes(32)))
    mixed = [np.zeros((5, 4), np.float32), torch.zeros(3, dtype=torch.float64), torch.zeros(5, 4).t()]
    mixed += [np.zeros((2, 2), np.float16), torch.zeros(7, dtype=torch.bfloat16)]
    noise.add_to(mixed, Keystream(bytes(32)))
    for one, other, digits in zip(wide, mixed, (2e-6, 0.0, 2e-6, 1e-3, 8e-3), strict=True):
        got = other.double().numpy() if isinstance(other, torch.Tensor) else other
        assert np.all(np.abs(got - one) <= digits * np.abs(one))


@pytest.mark.parametrize("noise", [Laplace(0.5), GammaPLRV(3.0, 0.5), Gaussian(2.0)], ids=repr)
def test_a_kernel_works_in_one_piece_of_memory(noise: Noise) -> None:
    """Rows that do not overlap: several pieces would go back to the system after each draw, and be cleared anew."""
    made = vars(noise.kernels(Keystream(bytes(32)))(1000))
    rows = [value for value in made.values() if isinstance(value, np.ndarray)]
    whole = {id(row.base if row.base.base is None else row.base.base) for row in rows}
    assert len(rows) >= 2
    assert len(whole) == 1
    assert not any(np.may_share_memory(one, other) for one, other in pairwise(rows))


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_the_generator_moves_on(library: str) -> None:
    source = generator(library)
    first, second = (Laplace(1.0).sample(100, source) for _ in range(2))
    assert not np.array_equal(np.asarray(first), np.asarray(second))


@settings(max_examples=40)
@given(st.floats(0.05, 1e6), st.floats(1e-6, 1e3), st.integers(0, 1000))
def test_gamma_noise_is_laplace_noise_bent(k: float, theta: float, seed: int) -> None:
    """|z| = expm1(E/k)/theta for the exponentials that Laplace noise of scale 1 shows; P(|z| > t) = (1+theta t)^-k."""
    with np.errstate(over="ignore"):
        e = Laplace(1.0).sample(200, np.random.default_rng(seed))
        z = GammaPLRV(k, theta).sample(200, np.random.default_rng(seed))
        finite = np.isfinite(z)
        assert k * np.log1p(theta * np.abs(z[finite])) == pytest.approx(np.abs(e[finite]), rel=1e-9, abs=0.0)
        assert np.array_equal(np.sign(z), np.sign(e))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_signs_are_fair_and_independent_of_neighbours_and_sizes(dtype: Any) -> None:
    """Every lag at which a word's bits could repeat, and block and span boundaries; 70 tests at 1e-8 each."""
    values = np.zeros(2 * SPAN, dtype)
    Laplace(1.0).add_to([values], Keystream(bytes(32)))
    signs = np.sign(values)
    alarm = stats.norm.isf(0.5e-8)
    assert abs(signs.sum()) < alarm * np.sqrt(signs.size)
    assert abs(np.sum(signs * (np.abs(values) - 1))) < alarm * np.sqrt(signs.size)
    for lag in [*range(1, 65), SPAN // 64, SPAN // 32, SPAN]:
        pairs = signs[lag:] * signs[:-lag]
        assert abs(pairs.sum()) < alarm * np.sqrt(pairs.size)


@pytest.mark.parametrize("noise", EVERY, ids=repr)
def test_keys_and_spans_give_different_streams(noise: Noise) -> None:
    one, other = (noise.sample(2 * SPAN, Keystream(bytes(31) + bytes([last]))) for last in (4, 5))
    assert not np.any(one == other)
    assert not np.any(one[:SPAN] == one[SPAN:])


@pytest.mark.parametrize("noise", [*EVERY, GammaPLRV(40.0, 0.05, shared=True)], ids=repr)
def test_processes_that_have_parts_of_arrays_add_one_draw_together(noise: Noise) -> None:
    """From keystreams in one state: each adds what falls on its parts, and leaves its keystream where all others do."""
    sizes = (7, 2 * SPAN + 5, 40, 0, 1, SPAN, 3)
    whole = [np.zeros(size) for size in sizes]
    one = Keystream(bytes(32))
    noise.add_to(whole, one)
    for cuts in ((0.0, 0.5, 1.0), (0.0, 0.0, 0.3, 0.9, 1.0)):
        found: list[list[Any]] = [[] for _ in sizes]
        for first, last in pairwise(cuts):
            ends = [(round(first * size), round(last * size)) for size in sizes]
            own, keystream = [np.zeros(b - a) for a, b in ends], Keystream(bytes(32))
            noise.add_parts_to(own, [(a, size) for (a, _), size in zip(ends, sizes, strict=True)], keystream)
            assert keystream.position == one.position
            for parts, part in zip(found, own, strict=True):
                parts.append(part)
        for parts, expected in zip(found, whole, strict=True):
            assert np.array_equal(np.concatenate(parts), expected)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_values_are_negative_whose_word_begins_with_a_one(dtype: Any) -> None:
    """Zeros, infinite and tiny values included, and whatever the other bits of a word are."""
    words = Keystream(bytes(32)).words(1001)
    values = np.resize(np.array([0.0, 1.0, 1e-40, 3.25, np.inf], dtype), words.size)
    expected = np.where(words >> np.uint64(63) == 1, -values, values)
    give_signs(values, words, np.full(words.size, np.nan))
    assert np.array_equal(values, expected)
    assert np.array_equal(np.signbit(values), np.signbit(expected))


def test_products_are_those_of_doubles_rounded_once() -> None:
    x = np.random.default_rng(5).standard_normal(1001)
    doubles, singles = np.empty(x.size), np.empty(x.size, np.float32)
    for out in (doubles, singles):
        multiplied(x.copy(), -1 / 3, out)
    assert np.array_equal(doubles, x * (-1 / 3))
    assert np.array_equal(singles, (x * (-1 / 3)).astype(np.float32))
