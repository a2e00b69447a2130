"""Calls whose rows were all of one length, with rows of different ones."""

import numpy as np
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


def test_lengths_may_be_real_numbers_a_column_a_list_or_an_array():
    x = torch.zeros(ROWS, WIDTH, 3)
    for lengths in (torch.full((ROWS,), float(WIDTH)), torch.full((ROWS, 1), WIDTH), [WIDTH] * ROWS, (WIDTH,) * ROWS,
                    np.full(ROWS, WIDTH)):  # fmt: skip
        varied = ragged(Call((x, lengths), {}, ROWS)).args[1]
        assert type(varied) is type(lengths)
        found = torch.as_tensor(varied)
        assert found.shape == torch.as_tensor(lengths).shape
        assert found.min() == 2
        assert found.max() == WIDTH


def test_masks_of_more_dimensions_and_those_of_padding_or_added_to_scores():
    for shape in ((ROWS, WIDTH), (ROWS, 1, WIDTH), (ROWS, 1, 1, WIDTH), (ROWS, 2, WIDTH, WIDTH)):
        (kept,) = ragged(Call((torch.ones(shape),), {}, ROWS)).args
        assert set(kept.unique().tolist()) == {0.0, 1.0}
        (padding,) = ragged(Call((torch.zeros(shape, dtype=torch.bool),), {}, ROWS)).args
        assert (padding.sum(dim=-1) <= WIDTH - 2).all()
        assert len(padding.sum(dim=-1).unique()) >= ROWS - 1
    added = torch.zeros(ROWS, 1, 1, WIDTH)
    (varied,) = ragged(Call((added,), {}, ROWS)).args
    assert set(varied.unique().tolist()) == {-1e4, 0.0}
    added[0, ..., -1] = torch.finfo(torch.float32).min
    (varied,) = ragged(Call((added,), {}, ROWS)).args
    assert set(varied.unique().tolist()) == {torch.finfo(torch.float32).min, 0.0}


def test_rows_may_be_in_the_second_dimension():
    words, lengths = torch.ones(WIDTH, ROWS, dtype=torch.long) * 5, torch.full((1, ROWS), WIDTH)
    varied = ragged(Call((words, lengths), {}, ROWS, 1)).args
    assert torch.equal((varied[0] != 0).sum(dim=0), varied[1][0])
    assert varied[1].min() == 2


def test_names_are_left_alone():
    names = [f"text {i}" for i in range(ROWS)]
    call = Call((torch.zeros(ROWS, 3), [WIDTH] * ROWS), {"names": names}, ROWS)
    assert ragged(call).kwargs["names"] == names
