"""A number that is the longest example's length must not change what others are computed from."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from plrvo.training.call import Call
from plrvo.training.longest import Longest
from plrvo.validate import InvalidArgument

ROWS, LENGTH = 6, 20


class Cut(nn.Module):
    """A mean over as many positions as it is told, of all or of those that are there."""

    def __init__(self, masked: bool) -> None:
        super().__init__()
        self.words, self.masked = nn.Embedding(50, 4), masked

    def forward(self, x: Tensor, most: Any) -> Tensor:
        x = x[:, : int(most)]
        there = (x != 0).float()[..., None] if self.masked else torch.ones(*x.shape, 1)
        return (self.words(x) * there).sum(1) / there.sum(1)


def batch(longest: int, most: Any = None, number: type = int) -> Call:
    x = torch.randint(1, 50, (ROWS, LENGTH), generator=torch.Generator().manual_seed(longest))
    lengths = torch.full((ROWS, 1), 3)
    lengths[0] = longest
    x = x * (torch.arange(LENGTH) < lengths)
    most = longest if most is None else most
    return Call((x, torch.tensor(most) if number is Tensor else most), {}, ROWS)


@pytest.mark.parametrize("number", [int, Tensor])
def test_a_number_that_follows_the_longest_is_refused_where_outputs_follow_it(number: type) -> None:
    tried: list[bool] = []
    longest = Longest(tried.append)
    module = Cut(masked=False)
    longest.check(module, batch(5, number=number))
    with pytest.raises(InvalidArgument, match="longest example"):
        longest.check(module, batch(9, number=number))
    assert tried == [True, False]


def test_what_is_masked_what_is_constant_and_what_counts_something_else_pass() -> None:
    for module, calls in (
        (Cut(masked=True), [batch(5), batch(9), batch(12)]),
        (Cut(masked=False), [batch(5, 9), batch(9, 9), batch(7, 9)]),
        (Cut(masked=False), [batch(9, 3), batch(5, 5), batch(7, 7)]),  # a schedule that met a length once
    ):
        longest = Longest(lambda trying: None)
        for call in calls:
            longest.check(module, call)


class Masks(nn.Module):
    """Takes inputs that are as wide as the number, and no other."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(50, 4)

    def forward(self, x: Tensor, lengths: Tensor, most: int) -> Tensor:
        there = (torch.arange(most)[None] < lengths[:, None]).float()[..., None]
        return (self.words(x).view(-1, most, 4) * there).sum(1) / lengths[:, None]


def test_inputs_as_wide_as_the_number_are_cut_with_it() -> None:
    longest, module = Longest(lambda trying: None), Masks()
    for most in (9, 7, 8):
        lengths = torch.arange(1, most + 1)
        x = torch.randint(1, 50, (most, most)) * (torch.arange(most)[None] < lengths[:, None])
        longest.check(module, Call((x, lengths, most), {}, most))


def test_lengths_of_their_own_are_lengths() -> None:
    class Told(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 2)

        def forward(self, x: Tensor, lengths: Tensor, most: int) -> Tensor:
            return self.linear(x) / most

    longest, module = Longest(lambda trying: None), Told()
    lengths = torch.tensor([2, 3, 4])
    longest.check(module, Call((torch.randn(3, 4), lengths), {"most": 4}, 3))
    with pytest.raises(InvalidArgument, match=r"the number 8 \(most\)"):
        longest.check(module, Call((torch.randn(3, 4), 2 * lengths), {"most": 8}, 3))
