"""Tries whether a number that a module is given tells the others of the longest example.

A loop may pad to one length, and hand the length of the batch's longest text to the module as a number, by which it
cuts its inputs, or divides. No size changes, and one long text changes what all others are computed from. A whole
number (or a tensor of one) that has been the batch's longest in every pass, and not always the same, is such a one: an
example's outputs must then be the same with a number of its own. The first batch alone shows nothing: a constant may
be as large by chance.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from plrvo.training.apart import close_where_both_are, closeness
from plrvo.training.call import Call
from plrvo.training.loss_form import ALONE
from plrvo.training.probe import passes_in_eval
from plrvo.training.structure import tensors_in
from plrvo.validate import InvalidArgument

_ROWS = 4  # that are tried
_TRIED = 3  # batches after the number has changed
_AGAIN = 64  # one in so many later ones
Place = int | str


class Longest:
    """Watches the whole numbers among the arguments of one module's calls."""

    def __init__(self, on_try: Callable[[bool], None]) -> None:
        self._on_try = on_try
        self._values: dict[Place, set[int]] = {}  # that each has had
        self._other = set[Place]()  # those that once were not the longest of their batch
        self._tried: dict[Place, int] = {}

    def check(self, module: nn.Module, call: Call) -> None:
        """Refuse a module whose outputs change with the length of other examples."""
        numbers = dict(_whole_numbers(call))
        if not numbers or call.rows < 2:
            return
        lengths = [found for t in call.tensors() if (found := _lengths(t, call)) is not None]
        for place, value in numbers.items():
            if not any(value == max(of_rows) for of_rows in lengths):
                self._other.add(place)
            self._values.setdefault(place, set()).add(value)
            if place in self._other or len(self._values[place]) < 2:
                continue
            if self._tried.get(place, 0) < _TRIED or not secrets.randbelow(_AGAIN):
                of_rows = next(found for found in lengths if value == max(found))
                self._try(module, call, place, value, of_rows)

    def _try(self, module: nn.Module, call: Call, place: Place, value: int, lengths: list[int]) -> None:
        shorter = [row for row, length in enumerate(lengths) if 0 < length < value]
        self._on_try(True)
        try:
            with passes_in_eval(module) as outputs:
                for row in secrets.SystemRandom().sample(shorter, min(_ROWS, len(shorter))):
                    given = call.single(row)
                    alone = _with(_cut(given, value, lengths[row]), place, lengths[row])
                    try:
                        first, again, other = outputs(given), outputs(given), outputs(alone)
                    except Exception:  # a module that takes no such call cannot be tried with it
                        continue
                    if not _alike(first, again, module):
                        return  # random even in eval mode
                    if not _alike(first, other, module):
                        raise InvalidArgument(
                            "module",
                            f"the number {value} ({place})",
                            "outputs of an example that do not change with it: it is the length of the longest example "
                            "of the batch, so that one changes what others are computed from; give a constant, or "
                            f"mask what is padding. {ALONE}",
                        )
            self._tried[place] = self._tried.get(place, 0) + bool(shorter)
        finally:
            self._on_try(False)


def _whole_numbers(call: Call) -> Iterator[tuple[Place, int]]:
    found: list[tuple[Place, Any]] = [*enumerate(call.args), *call.kwargs.items()]
    for place, value in found:
        if type(value) is int:
            yield place, value
        elif isinstance(value, Tensor) and value.numel() == 1 and value.dtype in (torch.int32, torch.int64):
            yield place, int(value)


def _cut(call: Call, value: int, length: int) -> Call:
    """With inputs that are as wide as the number cut to the row's own length, as they would come without the others."""
    places = [(i, d) for i, t in enumerate(call.tensors()) for d, n in enumerate(t.shape) if n == value]
    return call.cut({place: (0, length) for place in places if place[1] != call.dimension})


def _with(call: Call, place: Place, value: int) -> Call:
    """With another number at a place."""
    args, kwargs = list(call.args), dict(call.kwargs)
    held: Any = args if isinstance(place, int) else kwargs
    before = held[place]
    held[place] = torch.full_like(before, value) if isinstance(before, Tensor) else value
    return Call(tuple(args), kwargs, call.rows, call.dimension, call.shared, call.plain)


def _lengths(t: Tensor, call: Call) -> list[int] | None:
    """Of each row: numbers that are not zero, up to the last; or the row itself, where it is one whole number."""
    if not call.has_rows(t) or t.is_complex() or t.ndim > call.dimension + 3:
        return None
    by_row = t.detach().movedim(call.dimension, 0)
    if by_row.ndim == 1:
        return None if t.is_floating_point() or t.dtype == torch.bool else [int(v) for v in by_row]
    there = by_row != 0
    there = there if there.ndim == 2 else there.flatten(2).any(dim=2)
    places = torch.arange(1, there.shape[1] + 1, device=t.device)
    return [int(v) for v in (there * places).amax(dim=1)]


def _alike(one: Any, two: Any, module: nn.Module) -> bool:
    """Where both are: outputs may be cut to the number as well."""
    pairs = zip(tensors_in(one), tensors_in(two), strict=False)
    return all(
        close_where_both_are(a, b, closeness(module)) for a, b in pairs if a.ndim == b.ndim and a.is_floating_point()
    )
