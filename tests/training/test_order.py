"""Which operations of a pass move rows, by the graph of what comes out."""

import pytest
import torch

from plrvo.training.order import moved_rows

ROWS = 5
BACKWARDS = torch.arange(ROWS).flip(0)
SAME = torch.arange(ROWS)
EACH = BACKWARDS[:, None].expand(ROWS, 3)


@pytest.mark.parametrize(
    "move",
    [
        lambda x: x[BACKWARDS],
        lambda x: x.index_select(0, BACKWARDS),
        lambda x: x.t()[:, BACKWARDS],
        lambda x: x.t().index_select(-1, BACKWARDS),
        lambda x: x.gather(0, EACH),
        lambda x: torch.take_along_dim(x, EACH, 0),
        lambda x: x.sort(dim=0)[0],
        lambda x: x.topk(ROWS, dim=0)[0],
        lambda x: x.flip(0),
        lambda x: x.roll(1, dims=0),
        lambda x: torch.zeros(ROWS, 3).scatter(0, EACH, x),
        lambda x: torch.zeros(ROWS, 3).index_put((BACKWARDS,), x),
        lambda x: torch.zeros(ROWS, 3).index_copy(0, BACKWARDS, x),
        lambda x: torch.zeros(ROWS, 3).index_add(0, BACKWARDS, x),
    ],
)
def test_what_moves_rows_is_seen_below_other_operations(move):
    x = torch.randn(ROWS, 3, generator=torch.Generator().manual_seed(0)).requires_grad_()
    (found,) = moved_rows([(move(x * 2).tanh() + 1).sum()], ROWS).values()
    assert 1 < len(found) <= 4
    assert all(0 <= row < ROWS for row in found)


@pytest.mark.parametrize(
    "keep",
    [
        lambda x: x[SAME],
        lambda x: x[SAME, torch.tensor([2, 1, 0, 1, 2])],  # one number of each row
        lambda x: x[:, [2, 0, 1]],
        lambda x: x[:, -1],
        lambda x: x[x.sum(dim=1) > -1e9],
        lambda x: x.gather(1, torch.tensor([[2], [1], [0], [1], [2]])),
        lambda x: x.flip(1),
        lambda x: x.sort(dim=1)[0],
        lambda x: x @ torch.ones(3, 4),
    ],
)
def test_what_keeps_rows_is_let_through(keep):
    x = torch.randn(ROWS, 3, generator=torch.Generator().manual_seed(0)).requires_grad_()
    assert moved_rows([keep(x * 2)], ROWS) == {}


def test_exchanged_rows_are_those_that_a_sort_has_exchanged():
    """The third of five is the only one out of order."""
    order = torch.tensor([4.0, 3.0, 9.0, 2.0, 1.0]).argsort(descending=True)
    x = torch.zeros(ROWS, 3, requires_grad=True)
    for moved in (x[order], x[order.argsort()]):
        assert list(moved_rows([moved], ROWS)) == ["Index 1"]
        assert 2 in moved_rows([moved], ROWS)["Index 1"]


def test_an_operation_does_not_hide_another_one():
    x = torch.zeros(ROWS, 3, requires_grad=True)
    found = moved_rows([x[BACKWARDS] + x.index_select(0, torch.tensor([1, 0, 2, 3, 4]))], ROWS)
    assert sorted(name.split()[0] for name in found) == ["Index", "IndexSelect"]
