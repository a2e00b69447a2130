"""How long each row of a batch is by itself: without the padding at its end, or at its beginning.

Padding is a run of one value (a position's numbers, all features together) in which rows end and which they have
nowhere else: of any value, as spectrograms are padded by their floor, -80 dB, or by zeros that were normalised since,
and time series by their own last value. What all rows have of it is no padding of theirs.

Signals may end in silence, and texts in a word that comes twice, so that one row shows nothing: whole numbers take two
rows, real numbers half of all. So do values that other rows have among their data (an unknown word that is written as
padding is, digital silence), and last values that differ from row to row; they count where nothing else is certain.
Only lengths that follow the batch are looked at, and a wrong guess costs a try.
"""

from __future__ import annotations

import torch
from torch import Tensor

from plrvo.training.call import Call

RUN = 2  # positions of padding, in so many rows, at least: equal values at an end may be data
_WHOLE = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)

Place = tuple[int, int]  # the number of an input tensor, and one of its dimensions


def own_lengths(call: Call, places: list[Place], at_end: bool) -> Tensor:
    """How long each row is without padding at its end, or beginning, by the input in which it is longest."""
    by_position = dict[Place, Tensor]()
    for number, d in places:
        t = call.tensors()[number]
        has_rows = t.ndim > call.dimension and t.shape[call.dimension] == call.rows and d != call.dimension
        # Numbers with more dimensions are images, whose borders are data.
        if has_rows and (t.dtype in _WHOLE or (t.ndim <= 3 and [i for i, _ in places].count(number) == 1)):
            positions = t.detach().movedim((call.dimension, d), (0, 1)).reshape(call.rows, t.shape[d], -1)
            by_position[number, d] = positions if at_end else positions.flip(1)
    if any(not _has_ignored(t) for t in by_position.values()):  # labels to ignore are beside examples as long as these
        by_position = {place: t for place, t in by_position.items() if not _has_ignored(t)}
    tokens = [t for t in by_position.values() if t.dtype in _WHOLE and t.max() > 1]
    certain, likely = list[Tensor](), list[Tensor]()
    for t in by_position.values():
        runs, is_certain = _runs(t)
        if runs is None:
            continue
        if t.max() <= 1 and tokens:  # of a mask alone, nobody knows which of its values is the padding's
            outside = torch.arange(t.shape[1], device=t.device) >= t.shape[1] - runs[:, None]
            if all(bool((other[outside] != other[outside][0]).any()) for other in tokens):
                continue
        (certain if is_certain else likely).append(t.shape[1] - runs)
    whole = call.tensors()[places[0][0]].shape[places[0][1]]
    found = certain or likely
    return torch.stack(found).amax(dim=0) if found else torch.full((call.rows,), whole)


def _has_ignored(positions: Tensor) -> bool:
    """Whether there are whole numbers below zero, such as the labels that a loss leaves out."""
    return positions.dtype in _WHOLE and bool((positions < 0).any())


def _runs(positions: Tensor) -> tuple[Tensor | None, bool]:
    """How many of each row's last positions are padding, beyond what all rows have, and whether that is certain."""
    rows, size = positions.shape[:2]
    if size < RUN or not positions.shape[2]:
        return None, False
    half = max(RUN, rows / 2)
    enough = RUN if positions.dtype in _WHOLE else half
    last = positions[:, -1:]
    repeated = _equal(positions[:, -RUN:], last).all(dim=1)
    found, waiting = list[tuple[Tensor, bool]](), repeated.clone()
    while bool(waiting.any()):
        value = last[waiting][:1]
        alike = repeated & _equal(last, value)[:, 0]
        waiting &= ~alike
        if int(alike.sum()) >= enough:
            runs, shows = _runs_of(_equal(positions, value))
            if bool(shows.all()) and int((runs >= RUN).sum()) >= enough:
                found.append((runs, True))
            found.append((runs * shows * ~_equal(positions, value).all(dim=1), False))
    if int(repeated.sum()) >= half:  # each by its own last value, the first of which is its own
        same = _equal(positions[:, 1:], last) & _equal(positions[:, :-1], last)
        runs, shows = _runs_of(same)
        found.append((runs * shows * ~same.all(dim=1), False))  # what is nothing but that is a constant signal
    found = [(runs, certain) for runs, certain in found if certain or int((runs >= RUN).sum()) >= half]
    return max(found, key=lambda one: (one[1], int(one[0].sum())), default=(None, False))


def _equal(positions: Tensor, value: Tensor) -> Tensor:
    """By row and position; numbers that are none equal each other."""
    return ((positions == value) | ((positions != positions) & (value != value))).all(dim=2)


def _runs_of(is_value: Tensor) -> tuple[Tensor, Tensor]:
    """How many there are at the end of each row, beyond what all rows have; and which rows have no others."""
    # What all rows begin with is no data: some decoders are started by the token that pads.
    is_value = is_value & ~is_value.all(dim=0).cumprod(dim=0).bool()
    runs = is_value.flip(1).cumprod(dim=1).sum(dim=1)
    return runs - runs.min(), is_value.sum(dim=1) == runs
