"""Products by either library are those of doubles, to within their roundings, however the matrices lie in memory."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from plrvo.training.clipping import matrices
from plrvo.training.clipping.matrices import each_product, linear, often, product
from plrvo.training.clipping.positions import for_each_example
from plrvo.validate import InvalidArgument

UNIT = torch.finfo(torch.float32).eps / 2
SHAPES = [
    (160, 170, 180),
    (300, 250, 260),
    (5, 900, 512),
    (4, 2000, 600),
    (3, 4, 5),
    (0, 4, 5),
    (4, 0, 5),
    (640, 1, 5000),
]


def normal(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def lain(values: Tensor, how: str) -> Tensor:
    """The same numbers, otherwise in memory."""
    if how == "columns":
        return values.transpose(-1, -2).contiguous().transpose(-1, -2)
    if how == "gaps":
        return torch.cat([values, values], dim=-1)[..., : values.shape[-1]]
    return values


def check(found: Tensor, one: Tensor, other: Tensor) -> None:
    exact, sizes = one.double() @ other.double(), one.double().abs() @ other.double().abs()
    assert found.shape == exact.shape
    assert found.dtype == one.dtype
    assert bool(((found - exact).abs() <= (one.shape[-1] + 2) * UNIT * sizes).all())


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("ways", [("rows", "rows"), ("columns", "rows"), ("rows", "columns"), ("gaps", "gaps")])
def test_products_are_those_of_doubles(shape: tuple[int, int, int], ways: tuple[str, str]) -> None:
    rows, terms, columns = shape
    one, other = lain(normal(rows, terms), ways[0]), lain(normal(terms, columns), ways[1])
    check(product(one, other), one, other)
    check(often(one, other), one, other)
    check(product(one.double(), other.double()), one.double(), other.double())
    ones, others = lain(normal(2, rows, terms), ways[0]), lain(normal(2, terms, columns), ways[1])
    check(each_product(ones, others), ones, others)
    assert each_product(ones[:0], others[:0]).shape == (0, rows, columns)


def test_a_bias_is_added_and_dimensions_in_front_stay() -> None:
    x, weight, bias = normal(3, 400, 128), normal(256, 128), normal(256)
    assert torch.allclose(linear(x, weight, bias), x @ weight.t() + bias, atol=1e-4)


def test_large_products_of_singles_go_to_the_other_library() -> None:
    def is_other(one: Tensor, other: Tensor, least: int = 1 << 21) -> bool:
        return matrices.is_for_the_other(one, other, least=least)

    one, other = normal(160, 160), normal(160, 160)
    assert is_other(one, other) == matrices._has_kernel()
    assert not is_other(one, other, 1 << 24)
    for small in (normal(3, 160), normal(64, 160)):
        assert not is_other(small, other)
    assert not is_other(one.double(), other.double())


@pytest.mark.parametrize("name", matrices._FEWER_BITS)
def test_not_where_the_other_library_may_compute_in_fewer_bits(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "BF16")
    assert not matrices._has_kernel()


def test_not_where_it_is_turned_off() -> None:
    before = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)
    try:
        assert not matrices._has_kernel()
    finally:
        torch._C._set_mkldnn_enabled(before)


def test_a_subclass_is_multiplied_as_it_wishes() -> None:
    """One that gives no single row (`positions`) has products all the same."""
    one = for_each_example(normal(2, 160, 170))
    with pytest.raises(InvalidArgument):
        one[0]
    check(each_product(one, normal(2, 170, 160)).as_subclass(Tensor), normal(2, 160, 170), normal(2, 170, 160))


def test_products_that_autograd_follows_have_their_way_back() -> None:
    one, other = normal(160, 160).requires_grad_(), normal(160, 160)
    (found,) = torch.autograd.grad(often(one, other).sum(), one)
    assert torch.allclose(found, other.sum(dim=1).expand_as(found), atol=1e-3)
