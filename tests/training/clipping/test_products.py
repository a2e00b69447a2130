"""Products and lengths against doubles: within what they are said to be off by, and lengths never too small."""

import pytest
import torch

from plrvo.training.clipping.products import gram, roundings_of, squared_lengths

UNIT = torch.finfo(torch.float32).eps / 2


@pytest.mark.parametrize("terms", [1, 511, 512, 513, 1500, 8192])
@pytest.mark.parametrize("positions", [1, 5])
def test_scalar_products_are_off_by_no_more_than_their_roundings(terms: int, positions: int) -> None:
    generator = torch.Generator().manual_seed(terms)
    one, other = (torch.randn(3, positions, terms, generator=generator) for _ in range(2))
    exact = one.double() @ other.double().transpose(1, 2)
    lengths = one.double().norm(dim=2)[:, :, None] * other.double().norm(dim=2)[:, None, :]
    assert bool(((gram(one, other) - exact).abs() <= roundings_of(terms) * UNIT * lengths).all())


def test_long_scalar_products_round_less_often_than_they_have_terms() -> None:
    """A sum of ones and one tiny number: in singles, the tiny one of each part would be lost behind 2^24 of them."""
    assert [roundings_of(n) for n in (1, 512, 513, 8192)] == [1, 512, 514, 528]
    values = torch.full((1, 2, 1 << 14), 2.0**12)
    values[..., ::512] = 1.0
    expected = values.double() @ values.double().transpose(1, 2)
    assert float((gram(values, values) - expected).abs().max() / expected.max()) < 1e-9


@pytest.mark.parametrize("count", [0, 1, 127, 128, 129, 5000])
def test_lengths_are_from_above_and_close(count: int) -> None:
    values = torch.randn(4, count, generator=torch.Generator().manual_seed(count))
    exact = values.double().square().sum(dim=1)
    assert bool((squared_lengths(values) >= exact).all())
    assert torch.allclose(squared_lengths(values), exact, rtol=1e-4, atol=1e-30)
