"""One row stays, and all others are what they are said to be."""

import torch

from plrvo.training.layout import Layout
from plrvo.training.others import Others, Turned

VALUES = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])


def placed(others, values=VALUES):
    return others.placed_in(values, Layout(0), 3)


def test_copies_and_their_sizes():
    assert placed(Others(0, 2)).tolist() == [[1, 2], [5, 6], [5, 6]]
    assert placed(Others(1, 0, of_others=10.0)).tolist() == [[10, 20], [3, 4], [10, 20]]
    assert placed(Others(1, 0, of_others=10.0, of_row=2.0)).tolist() == [[10, 20], [6, 8], [10, 20]]
    assert VALUES.tolist() == [[1, 2], [3, 4], [5, 6]]  # as they were
    spiked = placed(Others(0, 1, of_others=10.0, spikes=True))
    assert spiked[0].tolist() == [1, 2]
    assert (spiked[1:] == torch.tensor([3.0, 4.0])).sum(1).tolist() == [1, 1]


def test_labels_that_are_passed_over_stay_and_real_targets_may_be_missing():
    labels = torch.tensor([0, 1, -100])
    assert placed(Others(0, 2, label=7), labels).tolist() == [0, -100, -100]
    assert placed(Others(0, 1, label=7), labels).tolist() == [0, 7, 7]
    missing = placed(Others(0, 1, holes=True))
    assert missing[0].tolist() == [1, 2]
    assert missing[1:].isnan().all()


def test_neighbours_are_near_and_the_row_is_itself():
    near = placed(Others(0, 0, noise=0.01))
    assert near[0].tolist() == [1, 2]
    assert 0 < (near[1:] - VALUES[0]).abs().max() < 0.2


def test_outputs_and_targets_may_come_from_two_rows():
    both = Others(0, 1, 2)
    assert placed(both.outputs).tolist() == [[1, 2], [3, 4], [3, 4]]
    assert placed(both.targets).tolist() == [[1, 2], [5, 6], [5, 6]]
    assert placed(Others(0, 1, label=3).outputs).tolist() == [[1, 2]] * 3


def test_turned_rows_change_places():
    assert placed(Turned()).tolist() == [[3, 4], [5, 6], [1, 2]]
