"""What is padding at the end of a row, whatever it is padded with, and what is not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from plrvo.training.call import Call
from plrvo.training.own_lengths import guesses, own_lengths

LONGEST = 12
LENGTHS = [12, 5, 9, 3, 7, 6, 12, 4]
WHOLE = torch.full((len(LENGTHS),), LONGEST)


def signals() -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(n, 3, generator=generator) for n in LENGTHS]


def words() -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [1 + torch.randperm(30, generator=generator)[:n] for n in LENGTHS]


def padded(rows: list[Tensor], by: Callable[[Tensor], Tensor], left: bool = False) -> Tensor:
    """Each row followed by one position again and again, or behind it."""
    more = [by(t).expand(LONGEST - len(t), *t.shape[1:]) for t in rows]
    return torch.stack([torch.cat([a, t] if left else [t, a]) for t, a in zip(rows, more, strict=True)])


def found(*inputs: Tensor, at_end: bool = True) -> Tensor:
    return own_lengths(Call(inputs, {}, len(LENGTHS)), [(i, 1) for i in range(len(inputs))], at_end)


WITH: dict[str, Callable[[Tensor], Tensor]] = {
    "zero": lambda t: torch.zeros(3),
    "the floor of a spectrogram": lambda t: torch.full((3,), -80.0),
    "zeros that were normalised": lambda t: torch.tensor([-1.5, 0.25, 3.0]),
    "no numbers": lambda t: torch.full((3,), torch.nan),
    "the last value of each": lambda t: t[-1],
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("by", WITH)
def test_signals_padded_by_any_value(by: str, dtype: torch.dtype) -> None:
    rows = [t.to(dtype) for t in signals()]
    assert found(padded(rows, lambda t: WITH[by](t).to(dtype))).tolist() == LENGTHS


@pytest.mark.parametrize("value", [0, 99, -1])
@pytest.mark.parametrize("left", [False, True])
def test_words_padded_by_any_value(value: int, left: bool) -> None:
    assert found(padded(words(), lambda _: torch.tensor(value), left), at_end=not left).tolist() == LENGTHS


def test_the_same_value_among_the_data_of_one_row_hides_no_padding_of_others() -> None:
    """An unknown word that is written as padding is; silence within a signal; a row that is all silent."""
    unknown = words()
    unknown[2][4] = 0
    assert found(padded(unknown, lambda _: torch.tensor(0))).tolist() == [12, 5, 12, 3, 7, 6, 12, 4]
    silent = signals()
    silent[2][4] = -80.0
    assert found(padded(silent, WITH["the floor of a spectrogram"])).tolist() == [12, 5, 12, 3, 7, 6, 12, 4]
    silent[2][:] = -80.0
    assert found(padded(silent, WITH["the floor of a spectrogram"])).tolist() == [12, 5, 0, 3, 7, 6, 12, 4]


def test_where_a_mask_is_certain_other_inputs_are_not_guessed_at() -> None:
    """Kinds of words, of which the last goes on in the padding of some rows."""
    ids = padded(words(), lambda _: torch.tensor(0))
    kinds = (torch.arange(LONGEST) >= 2).long().expand(len(LENGTHS), -1)
    assert found(ids, (ids != 0).long(), kinds).tolist() == LENGTHS
    assert found(padded(signals(), WITH["zero"]), (ids != 0).long()).tolist() == LENGTHS


def test_labels_to_ignore_tell_nothing_of_the_examples_beside_them() -> None:
    labels = padded(words(), lambda _: torch.tensor(-100))
    assert found(torch.randn(len(LENGTHS), LONGEST, 3), labels).tolist() == WHOLE.tolist()
    assert found(labels).tolist() == LENGTHS  # a decoder that is given nothing else


@pytest.mark.parametrize(
    "values",
    [
        torch.randn(8, LONGEST, 3),
        torch.arange(8.0)[:, None, None].expand(8, LONGEST, 3),  # constant signals
        torch.zeros(8, LONGEST, 3),
        torch.cat([torch.randn(8, LONGEST - 3, 3), torch.zeros(8, 3, 3)], dim=1),  # all rows end so
        torch.randn(8, LONGEST, 3) * torch.tensor([0, 0, *[1] * 8, 0, 0])[:, None],  # borders of images
        torch.where(torch.arange(8)[:, None, None] < 3, 0.0, torch.randn(8, LONGEST, 3)),  # three silent rows
    ],
    ids=["noise", "constants", "zeros", "a common end", "borders", "silent rows"],
)
def test_what_is_no_padding(values: Tensor) -> None:
    assert found(values).tolist() == WHOLE.tolist()


def best(*inputs: Tensor, **others: object) -> list[tuple[list[int], bool]]:
    call = Call(inputs, others, len(LENGTHS))
    places = [(i, 1) for i, t in enumerate(inputs) if t.ndim > 1]
    return [(guess.own.tolist(), guess.at_end) for guess in guesses(call, places)]


def mask() -> Tensor:
    return torch.arange(LONGEST)[None] < torch.tensor(LENGTHS)[:, None]


@pytest.mark.parametrize("as_given", [Tensor.float, Tensor.bool, Tensor.long, Tensor.logical_not])
def test_a_mask_does_not_say_by_itself_which_of_its_ends_is_padding(as_given: Callable[[Tensor], Tensor]) -> None:
    assert best(padded(signals(), WITH["zero"]), as_given(mask())) == [(LENGTHS, True)]
    assert best(padded(signals(), WITH["zero"], left=True), as_given(mask().flip(1))) == [(LENGTHS, False)]
    noise = torch.randn(len(LENGTHS), LONGEST, 3)
    assert (LENGTHS, True) in best(noise, as_given(mask()))  # it may be either
    assert len(best(noise, as_given(mask()))) == 2


def test_what_most_inputs_say_counts() -> None:
    ids = padded(words(), lambda _: torch.tensor(0))
    segments = (torch.arange(LONGEST)[None] >= torch.arange(2, 10)[:, None]).long()
    assert best(ids, segments.masked_fill(ids == 0, 2)) == [(LENGTHS, True)]


def test_given_lengths_are_believed_before_the_silence_in_which_a_signal_ends() -> None:
    rows = signals()
    rows[2][5:] = 0
    rows[4][3:] = 0
    values = padded(rows, WITH["zero"])
    assert best(values)[0][0] != LENGTHS
    assert best(values, torch.tensor(LENGTHS)) == [(LENGTHS, True)]
    assert best(values, lengths=LENGTHS) == [(LENGTHS, True)]
    labels = torch.tensor([12, 3, 3, 3, 3, 3, 3, 3])  # whole numbers that are none
    assert best(padded(signals(), WITH["zero"]), labels) == [(LENGTHS, True)]
