"""Sums in cells against a plain loop over examples in Python's integers, bit for bit."""

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.training.helpers import seeded
from torch import Tensor

import plrvo
from plrvo.accounting.exact import longest_square
from plrvo.noise import GridNoise
from plrvo.training import cells
from plrvo.training.cells import add_rounded, in_threads, squared_norms, to_floats
from plrvo.validate import InvalidArgument

FLOATS = [torch.float32, torch.float64, torch.bfloat16]


def flat(samples: list[Tensor]) -> list[list[float]]:
    """Each example's gradient as doubles, which hold numbers of every type without rounding."""
    return torch.cat([g.reshape(len(g), g[:1].numel()) for g in samples], dim=1).double().tolist()


def norms_of(samples: list[Tensor]) -> list[float]:
    """The norms that the sum is made with: their last bits decide nothing, but which ones they are is a choice."""
    spans = [span for g in samples for span in cells._spans(g, torch.zeros(g.shape[1:], dtype=torch.int64), False)]
    return sum((squared_norms(span) for span in spans), torch.zeros(len(samples[0])).double()).sqrt().tolist()


def naive(samples: list[Tensor], clip: float, cell: float, longest: int) -> list[int]:
    """The sum by the definition: clip in doubles, round, square and add in integers without an end."""
    gradients = flat(samples)
    total = [0] * len(gradients[0])
    for gradient, norm in zip(gradients, norms_of(samples), strict=True):
        if not math.isfinite(norm):
            continue
        factor = min(1.0, clip / norm if norm else math.inf) * ((1 - 2.0**-40) / cell)
        integers = [round(Fraction(value * factor)) for value in gradient]
        if sum(i * i for i in integers) <= longest:
            total = [a + b for a, b in zip(total, integers, strict=True)]
    return total


def summed(
    samples: list[Tensor], clip: float, cell: float, longest: int, before: list[Tensor | None] | None = None
) -> list[int]:
    sums = add_rounded(samples, before or [None] * len(samples), clip, cell, longest)
    assert [s.shape for s in sums] == [g.shape[1:] for g in samples]
    return [int(value) for s in sums for value in s.flatten()]


@pytest.fixture
def small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiles of 4 coordinates and 12 numbers, spans of 8: every border is met by small arrays."""
    _use_small_tiles(monkeypatch)


def _use_small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cells, "_tile", lambda _: (4, 12))
    monkeypatch.setattr(cells, "_SPAN", 8)


shapes = st.lists(st.lists(st.integers(1, 5), max_size=3), min_size=1, max_size=4)


@settings(max_examples=150, deadline=None)
@given(
    examples=st.integers(1, 9),
    shapes=shapes,
    dtype=st.sampled_from(FLOATS),
    cell=st.sampled_from([2.0**-27, 2.0**-20, 2.0**-6, 0.3]),
    clip=st.sampled_from([0.1, 1.0, 15.9]),
    tight=st.sampled_from([0.0, 0.5, 0.9, 1.0]),
    broken=st.lists(st.tuples(st.integers(0, 8), st.sampled_from([math.nan, math.inf, 1e20, -1e38])), max_size=3),
    seed=st.integers(0, 2**31),
)
def test_sums_are_those_of_a_plain_loop_bit_for_bit(
    examples: int,
    shapes: list[list[int]],
    dtype: torch.dtype,
    cell: float,
    clip: float,
    tight: float,
    broken: list[tuple[int, float]],
    seed: int,
) -> None:
    """Over shapes, types, grids, numbers that are not finite, and bounds that some or all examples fail."""
    generator = seeded(seed)
    sizes = 10.0 ** torch.randn(examples, generator=generator)
    samples = [
        (torch.randn(examples, *shape, generator=generator) * sizes.view(-1, *[1] * len(shape))).to(dtype)
        for shape in shapes
    ]
    for example, value in broken:
        samples[-1].view(examples, -1)[example % examples, 0] = value
    dimension = sum(g[0].numel() for g in samples)
    longest = math.floor((clip / cell + math.sqrt(dimension) / 2) ** 2 * (tight or 1 - 2.0**-40))
    with pytest.MonkeyPatch.context() as patch:
        _use_small_tiles(patch)
        expected = naive(samples, clip, cell, longest)
        assert summed(samples, clip, cell, longest) == expected
        before = [torch.full(g.shape[1:], 5) for g in samples]
        assert summed(samples, clip, cell, longest, list(before)) == [5 + value for value in expected]
        alone = [naive([g[i : i + 1] for g in samples], clip, cell, longest) for i in range(examples)]
    assert expected == [sum(values) for values in zip(*alone, strict=True)]


def test_tiles_of_the_usual_size_give_the_same_sum_in_any_number_of_threads() -> None:
    generator = seeded(3)
    samples = [torch.randn(13, 300, 1001, generator=generator), torch.randn(13, 7, generator=generator)]
    longest, before = longest_square(GridNoise(plrvo.Laplace(1.0), 2.0**-22), 1.0, 300_307), torch.get_num_threads()
    found = []
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            found.append(add_rounded(samples, [None, None], 1.0, 2.0**-22, longest))
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))
    together = torch.cat([g.reshape(13, -1) for g in samples], dim=1).double()
    factors = (1 / torch.tensor(norms_of(samples), dtype=torch.float64)).clamp(max=1.0) * ((1 - 2.0**-40) * 2.0**22)
    expected = (together * factors[:, None]).round().to(torch.int64).sum(dim=0)
    assert torch.equal(torch.cat([s.flatten() for s in found[0]]), expected)


@pytest.mark.parametrize("dtype", FLOATS)
def test_norms_are_right_and_know_nothing_of_the_other_examples(dtype: torch.dtype) -> None:
    samples = [
        torch.randn(40, 130, 70, generator=seeded(1)).to(dtype),
        torch.randn(40, 3, generator=seeded(2)).to(dtype),
    ]
    norms = norms_of(samples)
    for i, gradient in enumerate(flat(samples)):
        assert norms[i] == pytest.approx(math.sqrt(math.fsum(value * value for value in gradient)), rel=1e-14)
        assert norms_of([g[i : i + 1] for g in samples]) == [norms[i]]


def test_every_example_is_within_the_accounted_length() -> None:
    generator = seeded(8)
    samples = [torch.randn(50, 300, generator=generator) * 10 ** torch.randn(50, 1, generator=generator)]
    samples.append(torch.randn(50, 7, 9, generator=generator))
    noise = GridNoise(plrvo.Laplace(1.0), 2.0**-6)
    longest = longest_square(noise, 1.0, 363)
    assert longest <= (noise.sensitivity(1.0, 363) / noise.cell) ** 2
    for i in range(50):
        one = [g[i : i + 1] for g in samples]
        integers = summed(one, 1.0, noise.cell, longest)
        assert 0 < sum(value**2 for value in integers) <= longest
        gradient = np.array(flat(one)[0])
        clipped = gradient * min(1.0, 1 / np.linalg.norm(gradient))
        assert np.abs(np.array(integers) * noise.cell - clipped).max() <= noise.cell * 0.501


def test_an_example_that_is_too_long_or_not_finite_adds_nothing_and_the_others_stay() -> None:
    ordinary = torch.full((1, 4), 0.5)
    broken = [torch.full((1, 4), value) for value in (math.nan, math.inf, -math.inf)]
    longest = longest_square(GridNoise(plrvo.Laplace(1.0), 0.25), 1.0, 4)
    assert summed([torch.cat([ordinary, *broken, ordinary])], 1.0, 0.25, longest) == [4, 4, 4, 4]
    # A bound below what clipping gives stands for clipping that went wrong.
    assert summed([ordinary], 1.0, 0.25, 15) == [0, 0, 0, 0]
    assert summed([ordinary], 1.0, 0.25, 16) == [2, 2, 2, 2]


@pytest.mark.parametrize("wrong", [1e-3, 1e-30, 0.0, math.nan])
def test_norms_that_are_wrong_lengthen_no_sum(wrong: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever floating point did to the norms: an example is in the sum with its checked length, or not at all."""
    samples = [torch.randn(6, 5000, generator=seeded(4)) * 1e3]
    monkeypatch.setattr(cells, "squared_norms", lambda span: squared_norms(span) * wrong)
    longest = longest_square(GridNoise(plrvo.Laplace(1.0), 2.0**-24), 1.0, 5000)
    assert not any(summed(samples, 1.0, 2.0**-24, longest))


def test_a_length_beyond_2_to_the_53_is_checked_in_integers(small_tiles: None) -> None:
    """The last bit of a length that no double holds decides."""
    values = [2.0**30 + 1, 2.0**20 + 1, -3.0]
    length = sum(int(value) ** 2 for value in values)
    assert length > 2**60
    assert float(length) != length
    sample = torch.tensor([values], dtype=torch.float64)
    for longest, expected in ((length, values), (length - 1, [0, 0, 0])):
        # The hair that clipping leaves is below half a cell; the clip is far away.
        assert summed([sample * (1 + 2.0**-40)], 2.0**40, 1.0, longest) == expected


def test_a_grid_on_which_squares_would_overflow_is_refused() -> None:
    """A plan may be certified with a grid that `on_grid` has never seen."""
    noise = GridNoise(plrvo.Laplace(1.0), 2.0**-31)
    assert longest_square(noise, 0.99, 1) < 2**62
    with pytest.raises(InvalidArgument, match="64 bits"):
        longest_square(noise, 1.0, 1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_an_empty_batch_is_a_sum_of_nothing(dtype: torch.dtype) -> None:
    samples = [torch.zeros(0, 3, 2, dtype=dtype), torch.zeros(0, dtype=dtype)]
    assert summed(samples, 1.0, 0.1, 100) == [0] * 7
    assert summed(samples, 1.0, 0.1, 100, [torch.full((3, 2), 4), torch.tensor(9)]) == [4] * 6 + [9]


def test_gradients_that_do_not_lie_in_order_are_summed_in_order() -> None:
    across = torch.randn(5, 6, 4, generator=seeded(6)).transpose(1, 2)
    assert summed([across], 1.0, 2.0**-20, 2**44) == naive([across.contiguous()], 1.0, 2.0**-20, 2**44)


@pytest.mark.parametrize("dtype", FLOATS)
def test_integers_become_floats_of_the_parameters_type(dtype: torch.dtype) -> None:
    integers = torch.randint(-(2**40), 2**40, (300, 1000), generator=seeded(5))
    like = torch.empty(1000, 300, dtype=dtype).t()
    floats = to_floats(integers, 2.0**-21, like)
    assert floats.dtype == dtype
    assert torch.equal(floats, (integers.double() * 2.0**-21).to(dtype))


def test_an_error_in_a_thread_is_not_lost() -> None:
    def work(part: int) -> int:
        return 1 // part

    with pytest.raises(ZeroDivisionError):
        in_threads(work, [1, 2, 0, 3])


def test_nothing_of_the_size_of_all_gradients_is_made_again() -> None:
    """16 examples of a million numbers are 64 MB; beside them, the sum and a few tiles."""
    samples = [torch.randn(16, 1_000_000, generator=seeded(2))]
    with torch.profiler.profile(profile_memory=True, activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        add_rounded(samples, [None], 1.0, 2.0**-20, 2**42)
    allocated: Any = profile.events()
    assert 8_000_000 <= max(event.cpu_memory_usage for event in allocated) < 8_100_000
