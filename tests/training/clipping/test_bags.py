"""Bags of embeddings: the clipped sum is that of a loop over examples, in whatever form bags are given."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.training.clipping.helpers import assert_equal_to_loop, by_books, by_loop
from tests.training.clipping.test_layers import clips, randomised
from torch import Tensor, nn

from plrvo.training.clipping.bags import Bags
from plrvo.training.clipping.layers import rule_of

quick = settings(max_examples=25, deadline=None)


def tokens(rows: int, count: int, length: int) -> Tensor:
    return torch.randint(0, rows, (count, length), generator=torch.Generator().manual_seed(2))


@quick
@given(
    st.integers(1, 5), st.integers(1, 7), st.integers(2, 6), st.integers(1, 200),
    st.sampled_from(["sum", "mean"]), st.booleans(), clips,
)  # fmt: skip
def test_rows_of_tokens(
    count: int, length: int, rows: int, columns: int, mode: Any, padding: bool, clip: float
) -> None:
    module = randomised(nn.EmbeddingBag(rows, columns, mode=mode, padding_idx=1 if padding else None))
    assert_equal_to_loop(module, tokens(rows, count, length), clip)


class Flat(nn.Module):
    """Bags one after the other, the first number of an example being its length; the last weigh more."""

    def __init__(self, weighted: bool, last: bool, by_name: bool) -> None:
        super().__init__()
        mode: Any = "sum" if weighted else "mean"
        self.bag = nn.EmbeddingBag(5, 3, mode=mode, include_last_offset=last)
        self.weighted, self.last, self.by_name = weighted, last, by_name

    def forward(self, x: Tensor) -> Tensor:
        there = torch.arange(x.shape[1] - 1) < x[:, :1]
        ends = there.sum(dim=1).cumsum(dim=0)
        offsets = torch.cat([ends.new_zeros(1), ends])[: None if self.last else -1]
        flat = x[:, 1:][there]
        weights = (there.cumsum(dim=1)[there] - 1.5).float() if self.weighted else None
        if self.by_name:
            found: Tensor = self.bag(per_sample_weights=weights, offsets=offsets, input=flat)
        else:
            found = self.bag(flat, offsets, weights)
        return found


@pytest.mark.parametrize("clip", [1e-3, 1.0, 1e4])
@pytest.mark.parametrize("by_name", [False, True])
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_bags_one_after_the_other(weighted: bool, last: bool, by_name: bool, clip: float) -> None:
    """With lengths from none to six, and weights of both signs."""
    x = torch.cat([torch.tensor([[3], [0], [6], [1], [0]]), tokens(5, 5, 6)], dim=1)
    module = randomised(Flat(weighted, last, by_name))
    assert_equal_to_loop(module, x, clip)


def test_a_bag_in_which_weights_cancel_is_not_longer_than_it_counts_for() -> None:
    """The norm is never below that of what is released, though 1e6 - 1e6 cancel in it."""
    bags = Bags(torch.tensor([0, 0, 1]), torch.tensor([0, 0, 0]), torch.tensor([1e6, -1e6, 1.0]), torch.ones(1, 4), 2)
    released = bags.weighted_sum(torch.ones(1)).double().norm()
    assert float(bags.squared_norms().sqrt()) >= float(released)
    assert float(bags.squared_norms().sqrt()) >= 2.0**-8 * float(bags.sizes())


def test_an_example_without_numbers_is_left_out() -> None:
    """Its gradient, and its weights, may be infinite: the others are released as without it."""
    bags = Bags(torch.tensor([0, 1]), torch.tensor([0, 1]), torch.tensor([torch.inf, 1.0]), torch.ones(2, 3), 2)
    without = bags.without(torch.tensor([True, False]))
    assert without.weighted_sum(torch.ones(2)).tolist() == [[0, 0, 0], [1, 1, 1]]
    assert bags.largest().tolist() == [torch.inf, 1.0]


class Tied(nn.Module):
    """One table for a bag and for its scores."""

    def __init__(self) -> None:
        super().__init__()
        self.bag, self.scores = nn.EmbeddingBag(6, 4), nn.Linear(4, 6, bias=False)
        self.scores.weight = self.bag.weight

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.scores(self.bag(x))
        return found


def test_a_table_that_is_used_in_two_ways() -> None:
    module, x = randomised(Tied()), tokens(6, 4, 3)
    for clip in (1e-3, 1e4):
        found, expected = by_books(module, x, clip), by_loop(module, x, clip)
        assert float((found[0] - expected[0]).norm()) <= 2.0**-7 * float(expected[0].norm())


@pytest.mark.parametrize("options", [{"mode": "max"}, {"max_norm": 1.0}, {"scale_grad_by_freq": True}])
def test_options_that_no_rule_knows(options: dict[str, Any]) -> None:
    assert rule_of(nn.EmbeddingBag(5, 3, **options)) is None
