"""What a loss is made of beside a module's outputs: targets, with the rows that they have, and constants."""

from __future__ import annotations

import weakref
from collections.abc import Hashable, Iterable, Iterator, Sequence

from torch import Tensor

from plrvo.training.kept import tensor_bits
from plrvo.training.layout import Layout

_MOST = 1 << 12  # numbers of which a digest is kept
Laid = tuple[Tensor, Layout | None]  # with the place of its rows; None for a number


class Seen:
    """Tensors that losses of a step were made of: what comes again, itself or by its numbers, is a constant."""

    def __init__(self) -> None:
        self.tensors: dict[int, tuple[weakref.ref[Tensor], int]] = {}
        self._values = set[Hashable]()

    def add(self, tensors: Iterable[Tensor]) -> None:
        for t in tensors:
            self.tensors[id(t)] = weakref.ref(t), t._version
            if t.numel() <= _MOST:
                self._values.add(_value(t))

    def add_made(self, tensors: Iterable[Tensor]) -> None:
        """What was computed on the way, a constant perhaps that is used again: by itself, not by its numbers."""
        for t in tensors:
            self.tensors[id(t)] = weakref.ref(t), t._version

    def has(self, t: Tensor) -> bool:
        """Whether it is one of them, and not written to since."""
        found = self.tensors.get(id(t))
        return found is not None and found[0]() is t and found[1] == t._version

    def has_value(self, t: Tensor) -> bool:
        """Whether one of them had the same numbers."""
        return t.numel() <= _MOST and _value(t) in self._values


def _value(t: Tensor) -> Hashable:
    return t.dtype, tuple(t.shape), tensor_bits(t)


class Form:
    """In which tensors, and where, the examples of a batch have rows."""

    def __init__(self, rows: int, dimension: int, outputs: Sequence[Laid]) -> None:
        self._rows = rows
        layouts = [layout for _, layout in outputs if layout is not None]
        self._by_row = list(dict.fromkeys([Layout(dimension), Layout(0), *(Layout(o.dimension) for o in layouts)]))
        # Labels of all positions in one row come in the order of the outputs, where that is known.
        own = next((o for o in layouts if not o.rows_first or o.dimension > dimension), None)
        self._flat = Layout(0, rows_first=own is None)
        self._positions = {n for t, layout in outputs if layout is not None for n in _positions(t, layout, rows)} - {1}

    def layout(self, values: Tensor) -> Layout | None:
        for layout in self._by_row:
            if values.ndim > layout.dimension and values.shape[layout.dimension] == self._rows:
                return layout
        # As many as the outputs have: other sizes are not the batch's.
        if values.ndim == 1 and not values.is_floating_point() and len(values):
            positions, rest = divmod(len(values), self._rows)
            return self._flat if rest == 0 and positions in self._positions else None
        return None


def _positions(output: Tensor, layout: Layout, rows: int) -> Iterator[int]:
    """How many labels each row of an output may have."""
    yield output.shape[layout.dimension] // rows
    inner = [n for d, n in enumerate(output.shape) if d != layout.dimension]
    if len(inner) > 1:
        yield from (output.numel() // rows // n for n in inner if n)
