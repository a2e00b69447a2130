"""Clipping has singles at least, whatever the caller computes in."""

import pytest
import torch

from plrvo.training.clipping.precision import check_matmul_precision, in_full_precision, wide
from plrvo.validate import InvalidArgument


@in_full_precision
def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a @ b


def test_autocast_is_off_inside_and_on_again_behind() -> None:
    a, b = torch.ones(2, 3), torch.ones(3, 2)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert (a @ b).dtype == torch.bfloat16
        assert product(a, b).dtype == torch.float32
        assert torch.is_autocast_enabled("cpu")


@pytest.mark.parametrize("precision", ["high", "medium"])
def test_products_of_fewer_bits_are_refused(precision: str) -> None:
    torch.set_float32_matmul_precision(precision)
    try:
        with pytest.raises(InvalidArgument, match=precision):
            product(torch.ones(2, 2), torch.ones(2, 2))
    finally:
        torch.set_float32_matmul_precision("highest")
    check_matmul_precision()


def test_numbers_become_singles_and_token_numbers_stay() -> None:
    for narrow in (torch.float16, torch.bfloat16):
        assert wide(torch.ones(2, dtype=narrow)).dtype == torch.float32
    for kept in (torch.float32, torch.float64, torch.int64, torch.bool):
        values = torch.ones(2, dtype=kept)
        assert wide(values) is values
