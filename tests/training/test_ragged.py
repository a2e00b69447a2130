"""Calls whose rows were all of one length, with rows of different ones."""

import torch

from plrvo.training.call import Call
from plrvo.training.ragged import ragged

ROWS, WIDTH = 6, 7


def test_lengths_become_different_and_are_sorted_in_neither_direction():
    lengths = torch.full((ROWS,), WIDTH)
    (x, varied) = ragged(Call((torch.zeros(ROWS, WIDTH, 3), lengths), {}, ROWS)).args
    assert torch.equal(x, torch.zeros(ROWS, WIDTH, 3))
    assert varied.min() == 2
    assert varied.max() == WIDTH
    assert len(varied.unique()) >= ROWS - 1
    assert varied.dtype == lengths.dtype
    rises = varied.diff().sign().tolist()
    assert 1 in rises
    assert -1 in rises


def test_masks_keep_their_first_ones_in_every_type():
    for kind in (torch.bool, torch.int64, torch.float32):
        mask = torch.ones(ROWS, WIDTH, dtype=kind)
        mask[0, 0] = 0  # padded on the left
        (varied,) = ragged(Call((mask,), {}, ROWS)).args
        assert varied.dtype == kind
        assert (varied.long() <= mask.long()).all()
        counts = varied.long().sum(dim=1)
        assert counts.min() == 2
        assert counts.max() == WIDTH
        assert (varied[1:].long().diff(dim=1) <= 0).all()  # ones come first


def test_what_says_no_lengths_is_left_alone():
    assert ragged(Call((torch.randn(ROWS, 4),), {}, ROWS)) is None
    assert ragged(Call((torch.full((1,), WIDTH),), {}, 1)) is None
    assert ragged(Call((torch.zeros(ROWS, dtype=torch.long),), {}, ROWS)) is None


def test_tokens_end_in_padding():
    words = torch.randint(2, 9, (ROWS, WIDTH), generator=torch.Generator().manual_seed(0))
    (varied,) = ragged(Call((words,), {}, ROWS)).args
    kept = varied != 0
    assert torch.equal(varied[kept], words[kept])
    assert (kept.long().diff(dim=1) <= 0).all()


def test_labels_and_choices_of_a_fixed_number_stay():
    classes = torch.randint(0, 3, (ROWS, 2), generator=torch.Generator().manual_seed(0)) + 2
    assert ragged(Call((torch.randn(ROWS, 4),), {"labels": classes}, ROWS)) is None
    chosen = torch.zeros(ROWS, WIDTH, dtype=torch.bool)
    chosen[:, :3] = True
    assert ragged(Call((chosen,), {}, ROWS)) is None
