"""Tensors are compared as `torch.allclose` compares them in doubles, whatever their layout, a piece at a time."""

import math

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from plrvo.noise.stretches import PIECE
from plrvo.training.alike import LARGEST_DOUBLE, alike, largest, usual

RELATIVE, ABSOLUTE = 1e-5, 1e-6
NONE, INFINITE = math.nan, math.inf


def _values(*shape, dtype=torch.float32):
    return torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("change", [0.0, 0.5 * RELATIVE, 3 * RELATIVE, NONE, INFINITE])
@pytest.mark.parametrize("place", [0, PIECE - 1, PIECE, -1])
def test_one_number_anywhere_decides_as_in_allclose(dtype, change, place):
    one = _values(3, PIECE // 2 + 5, dtype=dtype)
    other = one.double()
    other.view(-1)[place] *= 1 + change
    expected = torch.allclose(one.double(), other, rtol=RELATIVE, atol=ABSOLUTE, equal_nan=True)
    assert alike(one, other, relative=RELATIVE, absolute=ABSOLUTE) is expected


def test_what_is_none_is_like_none_and_infinities_like_themselves():
    one = torch.tensor([NONE, INFINITE, -INFINITE, 1.0])
    assert alike(one, one.double(), relative=RELATIVE)
    for row in range(3):
        other = one.clone()
        other[row] = 1.0
        assert not alike(one, other, relative=RELATIVE)
        assert alike(one, other, relative=RELATIVE, finite=True)


def test_layouts_do_not_matter():
    one = _values(700, 900)
    other = one.t().contiguous().t()
    assert other.stride() != one.stride()
    assert alike(one, other, relative=0.0)
    other[699, 0] += 1
    assert not alike(one, other, relative=RELATIVE)


def test_other_shapes_are_never_alike():
    assert not alike(torch.ones(2, 1), torch.ones(2), relative=1.0, absolute=1.0)


@pytest.mark.parametrize("shape", [(), (0,), (5,), (3, PIECE)])
def test_largest_and_usual_are_of_the_finite_numbers(shape):
    values = _values(*shape, dtype=torch.float64)
    sizes = values.abs()
    assert largest(values) == (float(sizes.max()) if sizes.numel() else 0.0)
    assert usual(values) == pytest.approx(float(sizes.mean()) if sizes.numel() else 0.0, rel=1e-12)
    if sizes.numel() > 1:
        holed = values.clone()
        holed.view(-1)[:2] = torch.tensor([NONE, -INFINITE])
        rest = sizes.reshape(-1)[2:]
        assert largest(holed) == float(rest.max())
        assert usual(holed) == pytest.approx(float(rest.sum()) / values.numel(), rel=1e-12)
        assert largest(holed, infinite=LARGEST_DOUBLE) == LARGEST_DOUBLE


class Made(TorchDispatchMode):
    """The largest number of bytes that one operation has taken memory for."""

    def __init__(self, *given):
        super().__init__()
        self._given, self.most = {t.untyped_storage().data_ptr() for t in given}, 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor) and result.untyped_storage().data_ptr() not in self._given:
            self.most = max(self.most, result.untyped_storage().nbytes())
        return result


def test_no_copy_of_the_whole_is_made():
    one, other = torch.zeros(8, PIECE), torch.full((8, PIECE), 1e-9)
    with Made(one, other) as made:
        assert alike(one, other, relative=RELATIVE, absolute=ABSOLUTE, finite=True)
        assert largest(other) == pytest.approx(usual(other))
    assert 0 < made.most <= 8 * PIECE
