"""The kernel: what a seed gives depends on nothing else, and adding equals drawing."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from plrvo.noise import PLRV, GammaPLRV, Gaussian, Laplace, Noise, UniformSeed
from plrvo.noise.exponentials import write_signed
from plrvo.noise.sampling import laplace_size
from plrvo.validate import InvalidArgument

BLOCK, SPAN = 1 << 15, 1 << 17


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


@pytest.mark.parametrize("count", [0, 1, 31, BLOCK - 1, BLOCK + 1, SPAN + BLOCK + 3])
@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize(
    "noise", [Laplace(0.5), GammaPLRV(3.0, 0.5), Gaussian(2.0), PLRV(UniformSeed(1.0, 3.0))], ids=repr
)
def test_adding_equals_drawing(noise: Noise, library: str, count: int) -> None:
    buffer = array(library, count)
    noise.add_to([buffer], generator(library))
    drawn = noise.sample(count, generator(library), buffer.dtype)
    assert np.array_equal(np.asarray(buffer), 1 + np.asarray(drawn))


def test_a_shared_scale_is_shared_by_all_buffers() -> None:
    noise, buffers = GammaPLRV(3.0, 0.5, shared=True), [np.zeros(100), np.zeros((10, 5))]
    noise.add_to(buffers, generator("numpy"))
    drawn = noise.sample(150, generator("numpy"))
    assert np.array_equal(np.concatenate([b.ravel() for b in buffers]), drawn)


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


def test_a_transposed_tensor_is_added_to_as_well() -> None:
    buffer = torch.zeros(30, 40).t()
    Laplace(0.5).add_to([buffer], generator("torch"))
    assert torch.equal(buffer, Laplace(0.5).sample((40, 30), generator("torch")))


def test_an_array_that_cannot_be_written_in_a_row_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="buffer"):
        Laplace(0.5).add_to([np.zeros((3, 4)).T], generator("numpy"))


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
    values = np.empty(2 * SPAN, dtype)
    write_signed([values], (1, 2, 3, 4), laplace_size(1.0), add=False)
    signs = np.sign(values)
    alarm = stats.norm.isf(0.5e-8)
    assert abs(signs.sum()) < alarm * np.sqrt(signs.size)
    assert abs(np.sum(signs * (np.abs(values) - 1))) < alarm * np.sqrt(signs.size)
    for lag in [*range(1, 65), BLOCK // 64, BLOCK // 32, BLOCK, SPAN]:
        pairs = signs[lag:] * signs[:-lag]
        assert abs(pairs.sum()) < alarm * np.sqrt(pairs.size)


def test_keys_and_spans_give_different_streams() -> None:
    one, other = np.empty(2 * SPAN), np.empty(2 * SPAN)
    write_signed([one], (1, 2, 3, 4), laplace_size(1.0), add=False)
    write_signed([other], (1, 2, 3, 5), laplace_size(1.0), add=False)
    assert not np.any(one == other)
    assert not np.any(one[:SPAN] == one[SPAN:])
