"""How long each row of a batch is by itself: without the padding at its end, or at its beginning.

Padding is a run of one value (a position's numbers, all features together) in which rows end and which they have
nowhere else: of any value, as spectrograms are padded by their floor, -80 dB, or by zeros that were normalised since,
and time series by their own last value. What all rows have of it is no padding of theirs.

Signals may end in silence, and texts in a word that comes twice, so that one row shows nothing: whole numbers take two
rows, real numbers half of all. So do values that other rows have among their data (an unknown word that is written as
padding is, digital silence), and last values that differ from row to row; they count where nothing else is certain.

A mask is made of runs at both ends, and so are kinds of words. So inputs that belong together are asked together: the
lengths are those beyond which most of them have one value in each row (`guesses`), and a vector of lengths is believed
before what a signal ends in. Where as much speaks for two guesses, both are given: one wrong guess refuses nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from plrvo.training.call import Call

RUN = 2  # positions of padding, in so many rows, at least: equal values at an end may be data
_WHOLE = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)

Place = tuple[int, int]  # the number of an input tensor, and one of its dimensions


@dataclass(frozen=True)
class Guess:
    """How long the rows may be."""

    own: Tensor  # of each
    at_end: bool  # padding follows it, or comes before it


def guesses(call: Call, places: list[Place]) -> list[Guess]:
    """What the rows' lengths may be, the likeliest first; several where as much speaks for each of them."""
    length = call.tensors()[places[0][0]].shape[places[0][1]]
    given, found = _given_lengths(call, length), list[tuple[tuple[int, bool], Guess]]()
    for at_end in (True, False):
        inputs = _positions(call, places, at_end)
        runs = _found_runs(inputs)
        certain = [own for own, is_certain in runs if is_certain]
        ways = [(own, False) for own in given] + [(_together(runs, call, length), False)]
        ways += [(own, True) for own, _ in runs] if len(inputs) > 1 else []
        for own, is_of_one in ways:
            votes = sum(_is_constant_beyond(own, t) for t in inputs.values())
            if votes and int(own.max()) and int(own.min()) < length:
                is_given = any(own is other for other in given)
                is_certain = is_given or any(torch.equal(own, other) for other in certain) or not is_of_one
                found.append(((votes + is_given, is_certain), Guess(own, at_end)))
    if not found:
        return []
    best = max(score for score, _ in found)
    ordered = sorted((guess for score, guess in found if score == best), key=lambda guess: int(guess.own.sum()))
    several = len({number for number, _ in places}) > 1
    return [
        guess
        for i, guess in enumerate(ordered)
        if not i or (several and not any(_same(guess, other) for other in ordered[:i]))
    ]


def _same(one: Guess, other: Guess) -> bool:
    return one.at_end == other.at_end and torch.equal(one.own, other.own)


def own_lengths(call: Call, places: list[Place], at_end: bool) -> Tensor:
    """How long each row is without padding at its end, or beginning, by the input in which it is longest."""
    whole = call.tensors()[places[0][0]].shape[places[0][1]]
    return _together(_found_runs(_positions(call, places, at_end)), call, whole)


def _together(runs: list[tuple[Tensor, bool]], call: Call, whole: int) -> Tensor:
    found = [own for own, is_certain in runs if is_certain] or [own for own, _ in runs]
    return torch.stack(found).amax(dim=0) if found else torch.full((call.rows,), whole)


def _positions(call: Call, places: list[Place], at_end: bool) -> dict[Place, Tensor]:
    """Inputs as (rows, positions, features), with the padding last."""
    found = dict[Place, Tensor]()
    for number, d in places:
        t = call.tensors()[number]
        has_rows = call.has_rows(t) and d != call.dimension
        # Numbers with more dimensions are images, whose borders are data.
        if has_rows and (t.dtype in _WHOLE or (t.ndim <= 3 and [i for i, _ in places].count(number) == 1)):
            positions = t.detach().movedim((call.dimension, d), (0, 1)).reshape(call.rows, t.shape[d], -1)
            found[number, d] = positions if at_end else positions.flip(1)
    if any(not _has_ignored(t) for t in found.values()):  # labels to ignore are beside examples as long as these
        found = {place: t for place, t in found.items() if not _has_ignored(t)}
    return found


def _found_runs(inputs: Mapping[Place, Tensor]) -> list[tuple[Tensor, bool]]:
    """The rows' lengths by each input that has padding, and whether those are certain."""
    tokens, found = [t for t in inputs.values() if t.dtype in _WHOLE and t.max() > 1], list[tuple[Tensor, bool]]()
    for t in inputs.values():
        runs, is_certain = _runs(t)
        if runs is None:
            continue
        if t.max() <= 1 and tokens:  # of a mask alone, nobody knows which of its values is the padding's
            outside = torch.arange(t.shape[1], device=t.device) >= t.shape[1] - runs[:, None]
            if all(bool((other[outside] != other[outside][0]).any()) for other in tokens):
                continue
        found.append((t.shape[1] - runs, is_certain))
    return found


def _given_lengths(call: Call, length: int) -> list[Tensor]:
    """Those that are among the inputs: a whole number for each row, the largest of which is the length of all."""
    found = list[Tensor]()
    for t in call.tensors():
        if call.has_rows(t) and t.numel() == call.rows and t.dtype in _WHOLE[1:]:
            found.append(t.detach().flatten().long())
    for given in call.lists():
        if len(given) == call.rows and all(isinstance(n, (int, np.integer)) for n in given):
            found.append(torch.tensor([int(n) for n in given]))
    return [own for own in found if int(own.min()) >= 0 and int(own.max()) == length]


def _is_constant_beyond(own: Tensor, positions: Tensor) -> bool:
    """Whether each row has one value from there on."""
    within = torch.arange(positions.shape[1], device=positions.device) < own.to(positions.device)[:, None]
    return positions.shape[2] > 0 and bool((within | _equal(positions, positions[:, -1:])).all())


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
