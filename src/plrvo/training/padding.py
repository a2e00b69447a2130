"""Tries whether an example's outputs depend on how far it is padded.

Where batches are padded to their longest example, the length of one decides how much padding all others get. A model
that does not mask it (a mean over all positions, a recurrent network read at its end) then gives others another
gradient because of that one, and no clip bounds it. Lengths that change between passes are the sign of such padding.
Rows that end (or begin) in a run of one value that is nowhere else, beyond what all rows have of it, are tried alone
without that run: their outputs must be what they are in the batch, at the positions that are left.

Passes are in eval mode, since dropout falls differently in other shapes. A module that is random even so is not tried.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from plrvo.training.call import Call
from plrvo.training.probe import passes_in_eval
from plrvo.training.structure import tensors_in
from plrvo.validate import InvalidArgument

_TRIED = 3  # batches after the first change of a length
_AGAIN = 64  # one in so many later ones, at random
_ROWS = 4  # of a batch
_RUN = 2  # positions of padding, in so many rows, at least: equal values at an end may be data
_CLOSE = 1e-3  # relative: other shapes round differently, by far less
_CLOSE_HALF = 5e-2
_WHOLE = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)

Place = tuple[int, int]  # the number of an input tensor, and one of its dimensions


class Padding:
    """Watches the lengths of one module's inputs; `on_try` hears when passes begin and end that are no steps."""

    def __init__(self, on_try: Callable[[bool], None]) -> None:
        self._on_try = on_try
        self._sizes: list[list[int]] = []  # of the first pass
        self._changing: set[Place] = set()
        self._tried = 0

    def check(self, module: nn.Module, call: Call) -> None:
        """Refuse a module whose outputs depend on padding; nothing is tried as long as all lengths stay the same."""
        self._note(call)
        if not self._changing or (self._tried >= _TRIED and secrets.randbelow(_AGAIN)):
            return
        self._on_try(True)
        try:
            self._tried += self._try(module, call)
        finally:
            self._on_try(False)

    def _note(self, call: Call) -> None:
        sizes = [list(t.shape) for t in call.tensors()]
        if [len(s) for s in sizes] != [len(s) for s in self._sizes]:  # the first pass, or a call of another form
            self._sizes, self._changing = sizes, set()
        for number, (now, first) in enumerate(zip(sizes, self._sizes, strict=True)):
            has_rows = len(now) > call.dimension and now[call.dimension] == call.rows
            self._changing |= {
                (number, d)
                for d, (a, b) in enumerate(zip(now, first, strict=True))
                if a != b and not (has_rows and d == call.dimension)
            }

    def _try(self, module: nn.Module, call: Call) -> bool:
        """Whether anything could be compared."""
        inputs, compared = call.tensors(), False
        with passes_in_eval(module) as outputs:
            for length in {inputs[i].shape[d] for i, d in self._changing}:
                places = [(i, d) for i, d in self._changing if inputs[i].shape[d] == length]
                own, at_end = min(
                    ((_own_lengths(call, places, at_end), at_end) for at_end in (True, False)),
                    key=lambda found: int(found[0].sum()),
                )
                compared |= _compare(module, call, places, own, at_end, outputs)
        return compared


def _own_lengths(call: Call, places: list[Place], at_end: bool) -> Tensor:
    """How long each row is without padding at its end, or beginning, by the input in which it is longest."""
    by_position = {}
    for number, d in places:
        t = call.tensors()[number]
        has_rows = t.ndim > call.dimension and t.shape[call.dimension] == call.rows and d != call.dimension
        # Numbers with more dimensions are images, whose borders are data.
        if has_rows and (t.dtype in _WHOLE or (t.ndim <= 3 and [i for i, _ in places].count(number) == 1)):
            positions = t.detach().movedim((call.dimension, d), (0, 1)).reshape(call.rows, t.shape[d], -1)
            by_position[number, d] = positions if at_end else positions.flip(1)
    tokens = [t for t in by_position.values() if t.dtype in _WHOLE and t.max() > 1]
    found = []
    for t in by_position.values():
        runs = _runs(t)
        if runs is None:
            continue
        if t.max() <= 1 and tokens:  # of a mask alone, nobody knows which of its values is the padding's
            outside = torch.arange(t.shape[1], device=t.device) >= t.shape[1] - runs[:, None]
            if all(bool((other[outside] != other[outside][0]).any()) for other in tokens):
                continue
        found.append(t.shape[1] - runs)
    whole = call.tensors()[places[0][0]].shape[places[0][1]]
    return torch.stack(found).amax(dim=0) if found else torch.full((call.rows,), whole)


def _runs(positions: Tensor) -> Tensor | None:
    """How many of each row's last positions are padding, beyond what all rows have."""
    best: Tensor | None = None
    is_whole = positions.dtype in _WHOLE
    last = positions[:, -1, 0]
    repeated = (positions[:, -_RUN:] == last[:, None, None]).all(dim=2).all(dim=1)
    for value in sorted(set(last[repeated].tolist())):
        if value < 0 or (value != 0 and not is_whole):  # labels to ignore; a constant signal
            continue
        is_value = (positions == value).all(dim=2)
        runs = is_value.flip(1).cumprod(dim=1).sum(dim=1)
        if bool((is_value.sum(dim=1) != runs).any()):
            continue  # it is among the data too
        runs = runs - runs.min()
        padded = int((runs >= _RUN).sum())
        # Signals may end in zeros of their own; where half of them do, it is padding.
        if padded >= (_RUN if is_whole else max(_RUN, len(runs) / 2)) and (best is None or runs.sum() > best.sum()):
            best = runs
    return best


def _compare(
    module: nn.Module, call: Call, places: list[Place], own: Tensor, at_end: bool, outputs: Callable[..., Any]
) -> bool:
    length = call.tensors()[places[0][0]].shape[places[0][1]]
    padded = [row for row in own.argsort().tolist() if 0 < own[row] <= length - _RUN]
    if not padded:
        return False
    whole, compared = _numbers(outputs(call)), False
    for row in padded[:: max(1, len(padded) // _ROWS)][:_ROWS]:
        kept = int(own[row])
        start = 0 if at_end else length - kept
        try:
            alone = _numbers(outputs(call.single(row).cut(dict.fromkeys(places, (start, kept)))))
        except Exception:  # too short for it, such as for a kernel
            continue
        in_batch = _of_row(whole, call, row)
        if not in_batch:  # a loss alone: that of the row with its padding
            in_batch = _numbers(outputs(call.single(row)))
        else:
            alone = _of_row(alone, Call((), {}, 1, call.dimension), 0)
        pairs = [_common(a, b, at_end) for a, b in zip(in_batch, alone, strict=False) if a.ndim == b.ndim and b.numel()]
        compared |= bool(pairs)
        if all(_close(a, b) for a, b in pairs):
            continue
        again = _numbers(outputs(call, seed=1))
        if all(_close(a, b) for a, b in zip(whole, again, strict=True)):
            raise InvalidArgument(
                "module",
                type(module).__name__,
                "outputs of an example that do not change with its padding; inputs are padded to the longest of their "
                "batch, so that one example changes what others contribute: mask the padding (an attention mask, "
                "means over real positions, recurrent networks read where the example ends), or pad all batches to one "
                "length",
            )
        return False
    return compared


def _numbers(output: Any) -> list[Tensor]:
    return [t.detach() for t in tensors_in(output) if t.is_floating_point()]


def _of_row(outputs: list[Tensor], call: Call, row: int) -> list[Tensor]:
    """A row of the outputs that have rows; all positions may lie in the first dimension."""
    found = []
    for t in outputs:
        if call.dimension == 0 and t.ndim and t.shape[0] and t.shape[0] % call.rows == 0:
            found.append(t.reshape(call.rows, t.shape[0] // call.rows, *t.shape[1:])[row])
        elif t.ndim > call.dimension > 0 and t.shape[call.dimension] == call.rows:
            found.append(t.select(call.dimension, row))
    return found


def _common(long: Tensor, short: Tensor, at_end: bool) -> tuple[Tensor, Tensor]:
    """Both at the positions that both have."""
    for d, (a, b) in enumerate(zip(long.shape, short.shape, strict=True)):
        both = min(a, b)
        long = long.narrow(d, 0 if at_end else a - both, both)
        short = short.narrow(d, 0 if at_end else b - both, both)
    return long, short


def _close(one: Tensor, other: Tensor) -> bool:
    """Numbers that are none equal anything: they tell nothing."""
    halves = one.dtype in (torch.float16, torch.bfloat16) or torch.is_autocast_enabled(one.device.type)
    difference = torch.nan_to_num((one.double() - other.double()).abs(), 0.0, 0.0)
    size = torch.nan_to_num(one.double().abs(), 0.0, 0.0)
    if not difference.numel():
        return True
    return bool(difference.max() <= (_CLOSE_HALF if halves else _CLOSE) * size.max() + 1e-30)
