"""The gradient of one example is that of all of them at its place, for every form in which a book keeps it."""

from collections.abc import Callable

import pytest
import torch
from torch import nn

from plrvo.training.clipping.bags import Bags
from plrvo.training.clipping.contributions import Contribution, Outer, PerExample, Tokens
from plrvo.training.clipping.layers import rule_of
from plrvo.training.clipping.rows import Rows

EXAMPLES, POSITIONS, WIDTH, WORDS = 5, 3, 4, 7


def normal(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


def words(*shape: int) -> torch.Tensor:
    return torch.randint(0, WORDS, shape, generator=torch.Generator().manual_seed(0))


def convolution() -> Contribution:
    layer = nn.Conv2d(8, 16, 3, bias=False)
    rule = rule_of(layer)
    assert rule is not None
    ((_, found),) = rule(layer, normal(EXAMPLES, 8, 4, 4), normal(EXAMPLES, 16, 2, 2))
    return found


def bags() -> Contribution:
    of = torch.tensor([0, 0, 0, 1, 3, 3, 4])  # the third bag is empty
    return Bags(words(7), of, normal(7), normal(EXAMPLES, WIDTH), WORDS)


FORMS: dict[str, Callable[[], Contribution]] = {
    "gradients": lambda: PerExample(normal(EXAMPLES, 2, WIDTH)),
    "gradients, channels last": lambda: PerExample(normal(EXAMPLES, 2, 3, 3, WIDTH), channels_last=True),
    "factors": lambda: Outer(normal(EXAMPLES, POSITIONS, 2), normal(EXAMPLES, POSITIONS, WIDTH)),
    "tokens": lambda: Tokens(words(EXAMPLES, POSITIONS), normal(EXAMPLES, POSITIONS, WIDTH), WORDS),
    "convolution": convolution,
    "bags": bags,
}


@pytest.mark.parametrize("form", FORMS)
def test_one_example_is_a_row_of_all(form: str) -> None:
    contribution = FORMS[form]()
    whole = contribution.per_example()
    rows = Rows(nn.Parameter(torch.zeros(())), [contribution, contribution], EXAMPLES)
    assert len(whole) == EXAMPLES
    for row, one in enumerate(rows):
        torch.testing.assert_close(one, 2 * whole[row], rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(rows.total(), 2 * whole.sum(dim=0), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("form", FORMS)
def test_some_examples_have_their_own_norms(form: str) -> None:
    contribution, chosen = FORMS[form](), torch.tensor([4, 1])
    torch.testing.assert_close(
        contribution.of(chosen).squared_norms(), contribution.squared_norms()[chosen], rtol=1e-5, atol=0
    )
