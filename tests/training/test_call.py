"""Calls with other rows, and inputs that have none though they are as large as the batch."""

import math

import numpy as np
import pytest
import torch
from tests.misuse.setting import Private
from torch import nn
from torch.utils.data import TensorDataset

from plrvo.training import retries, watch
from plrvo.training.call import Call, Inputs, Lists
from plrvo.validate import InvalidArgument

T = 5
MASK = torch.triu(torch.ones(T, T, dtype=torch.bool), 1)
X = torch.randint(0, 7, (9, T), generator=torch.Generator().manual_seed(0))


class Attends(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.head = nn.Embedding(7, 8), nn.Linear(8, 7)

    def forward(self, x, mask):
        h = self.embedding(x)
        return self.head((h @ h.transpose(1, 2)).masked_fill(mask, -1e9).softmax(-1) @ h)


def _train(mode, sizes, mask_of):
    run = Private(mode, Attends(), examples=TensorDataset(X, X), clip=1.0)
    for size in sizes:
        run.released(X[:size], X[:size], forward=lambda x: run.module(x, mask_of(x)).transpose(1, 2))


@pytest.mark.parametrize("mode", ["bookkeeping", "hooks"])
def test_a_shared_mask_may_be_as_large_as_a_later_batch(mode, monkeypatch):
    monkeypatch.setattr(watch, "_MODULE_AGAIN", 1)  # every batch is tried,
    monkeypatch.setattr(retries, "SHARE", math.inf)  # however long it takes
    _train(mode, [T + 2, T], lambda x: MASK.clone())


@pytest.mark.parametrize("mode", ["bookkeeping", "hooks"])
def test_in_a_first_batch_it_says_so_by_its_first_dimension(mode):
    with pytest.raises(InvalidArgument, match=r"mask\[None\]"):
        _train(mode, [T], lambda x: MASK)
    _train(mode, [T], lambda x: MASK[None])


def test_an_input_that_follows_the_batch_is_never_taken_for_shared():
    inputs = Inputs()
    for rows in (4, 6, 5):
        call = Call((torch.ones(rows, 2), torch.ones(rows, 3)), {}, rows)
        assert inputs.shared(call) == frozenset()
        inputs.note(call)


def test_what_is_shared_is_known_by_its_size_or_by_being_the_same_tensor():
    inputs, prototypes = Inputs(), torch.ones(4, 3)
    call = Call((torch.ones(4, 2), prototypes), {}, 4)
    assert inputs.shared(call) == frozenset()
    inputs.note(call)
    assert inputs.shared(call) == frozenset()  # both passes of a step may be given the same rows
    inputs.new_step()
    assert inputs.shared(call) == {1}  # never the batch itself
    prototypes += 1
    assert inputs.shared(call) == frozenset()
    inputs.note(Call((torch.ones(7, 2), prototypes), {}, 7))
    assert inputs.shared(Call((torch.ones(4, 2), torch.ones(4, 3)), {}, 4)) == {1}


def test_what_had_another_size_is_shared_only_if_it_follows_the_batch_in_another_dimension():
    inputs = Inputs()
    for rows, length in ((9, 5), (7, 6)):
        inputs.note(Call((torch.ones(rows, length), torch.ones(3, 2), torch.eye(length)), {}, rows))
        inputs.new_step()
    assert inputs.shared(Call((torch.ones(8, 8), torch.ones(8, 2), torch.eye(8)), {}, 8)) == {2}


def test_what_has_no_rows_has_none_in_a_part_of_the_batch():
    mask = torch.eye(3)
    part = Call((torch.ones(6, 2), mask), {}, 6).picked([0, 2, 5])
    assert part.copies(1).one_more().tensors()[1] is mask
    assert [len(t) for t in part.one_more().tensors()] == [4, 3]


def test_what_all_examples_share_is_remembered_through_calls_of_another_form():
    """A call with a mask, one without, and one with a mask that is as large as its batch by chance."""
    from plrvo.training.call import Inputs

    inputs = Inputs()
    inputs.note(Call((torch.zeros(5, 3), torch.zeros(4, 4)), {}, 5))
    inputs.note(Call((torch.zeros(5, 3),), {}, 5))
    assert inputs.shared(Call((torch.zeros(4, 3), torch.zeros(4, 4)), {}, 4)) == {1}


def test_lists_and_arrays_with_an_item_for_each_row_follow_the_rows():
    call = Call((torch.arange(4), [1, 2, 3, 4]), {"names": tuple("abcd"), "a": np.array([1.0, 2.0, 3.0, 4.0])}, 4)
    part = call.picked([3, 1])
    assert part.args[1] == [4, 2]
    assert part.kwargs["names"] == ("d", "b")
    assert part.kwargs["a"].tolist() == [4.0, 2.0]
    assert call.copies(2).args[1] == [3] * 4
    assert call.copies(2).kwargs["names"] == tuple("cccc")
    assert call.extreme(0, 10.0).kwargs["a"].tolist() == [1.0, 20.0, 30.0, 40.0]


def test_a_list_that_has_no_rows_has_none_in_a_part_of_the_batch_or_in_a_later_one():
    part = Call((torch.ones(6, 2), [7, 8]), {}, 6).picked([0, 5])
    assert part.copies(1).args[1] == [7, 8]
    lists = Lists()
    lists.known(Call((torch.ones(6, 2), (7, 8)), {}, 6))
    assert lists.known(Call((torch.ones(2, 2), (7, 8)), {}, 2)).copies(0).args[1] == (7, 8)
    assert Lists().known(Call((torch.ones(2, 2), (7, 8)), {}, 2)).copies(0).args[1] == (7, 7)


def test_few_rows_may_be_a_size():
    assert Call((torch.ones(2, 2), (7, 8)), {}, 2).without_lists().copies(0).args[1] == (7, 8)
    assert Call((torch.ones(2, 2), (7, 8, 9)), {}, 2).without_lists() is None
    assert Call((torch.ones(5, 2), [1] * 5), {}, 5).without_lists() is None
