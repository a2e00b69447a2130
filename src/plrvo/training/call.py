"""A call of a module with the rows of a batch, and the same call with other rows."""

from __future__ import annotations

import secrets
import weakref
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from plrvo.training.structure import map_leaves, map_tensors, tensors_in
from plrvo.validate import InvalidArgument

_FEW = 4  # rows: so many items may be a size, such as (height, width)
_NUMBERS = (bool, int, float, np.number, np.bool_)
_ITEMS = (*_NUMBERS, str, bytes, type(None))

__all__ = ["Call", "Inputs", "Lists", "tensors_in", "without_rows"]


@dataclass(frozen=True)
class Call:
    """A call of the module: its arguments, the number of rows, and the dimension in which the rows lie."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    rows: int
    dimension: int = 0
    shared: frozenset[int] = frozenset()  # which of its `tensors()` have no rows, whatever their size
    plain: frozenset[int] | None = frozenset()  # and which of its lists and arrays have none; None for all

    def picked(self, rows: Sequence[int]) -> Call:
        """With some rows only."""
        return self.mapped(lambda t: t.index_select(self.dimension, torch.tensor(rows, device=t.device)), len(rows))

    def some(self, count: int) -> Call:
        """With the first, the last and others at random."""
        most = min(count, self.rows)
        middle = secrets.SystemRandom().sample(range(1, self.rows - 1), most - 2) if most > 2 else []
        return self.picked([0, *sorted(middle), self.rows - 1][-most:])

    def one_more(self) -> Call:
        """With the first row once more at the end."""
        return self.picked([*range(self.rows), 0])

    def extreme(self, row: int, factor: float) -> Call:
        """With all other rows times a factor."""

        def scaled(t: Tensor) -> Tensor:
            if not t.is_floating_point():
                return t
            kept = torch.arange(self.rows, device=t.device) == row
            return torch.where(kept.view([-1] + [1] * (t.ndim - self.dimension - 1)), t, t * factor)

        return self.mapped(scaled, self.rows)

    def copies(self, row: int) -> Call:
        """With one row in the place of all others."""
        return self.mapped(lambda t: t.narrow(self.dimension, row, 1).expand_as(t).contiguous(), self.rows)

    def filled(self, row: int) -> Call:
        """With one row's numbers in all others, where neither has a zero: lengths, masks and padding stay."""

        def changed(t: Tensor) -> Tensor:
            if t.ndim < self.dimension + 2:
                return t
            own = t.narrow(self.dimension, row, 1).expand_as(t)
            return torch.where((t == 0) | (own == 0), t, own)

        return self.mapped(changed, self.rows)

    def blank(self) -> Call:
        """With zeros in all rows."""
        return self.mapped(torch.zeros_like, self.rows)

    def single(self, row: int) -> Call:
        """With one row only."""
        return self.mapped(lambda t: t.narrow(self.dimension, row, 1), 1)

    def one_made_up(self) -> Call:
        """Of a call without rows: with one row of ones."""

        def ones(t: Tensor) -> Tensor:
            return t.new_ones([1 if d == self.dimension else n for d, n in enumerate(t.shape)])

        return self.mapped(ones, 1)

    def times(self, factor: float) -> Call:
        """With all numbers of all rows so many times as large; whole numbers stay."""
        return self.mapped(lambda t: t * factor if t.is_floating_point() else t, self.rows)

    def finite(self) -> Call:
        """With zeros in the place of numbers that are none."""
        return self.mapped(lambda t: t.nan_to_num(0, 0, 0) if t.is_floating_point() else t, self.rows)

    def holed(self, row: int, value: float) -> Call:
        """With a value that is no number in the place of a third of one row's, at random."""
        generator = torch.Generator().manual_seed(secrets.randbits(60))

        def changed(t: Tensor) -> Tensor:
            if not t.is_floating_point() or not t.numel():
                return t
            t = t.clone()
            of_row = t.select(self.dimension, row)
            count = of_row.numel()
            chosen = torch.zeros(count, dtype=torch.bool)
            chosen[torch.randperm(count, generator=generator)[: -(-count // 3)]] = True
            of_row.masked_fill_(chosen.view(of_row.shape).to(t.device), value)
            return t

        return self.mapped(changed, self.rows)

    def as_it_came(self, most: int) -> Call | None:
        """With so many rows, of which one or two at the ends have numbers that are none; None where none has."""
        with_holes = torch.zeros(self.rows, dtype=torch.bool)
        for number, t in enumerate(self.tensors()):
            if number not in self.shared and self.has_rows(t) and t.is_floating_point():
                by_row = t.detach().movedim(self.dimension, 0).reshape(self.rows, -1)
                with_holes |= (~by_row.isfinite()).any(dim=1).cpu()
        shuffled = secrets.SystemRandom()
        ends = with_holes.nonzero().flatten().tolist()
        if not ends or self.rows < 2:
            return None
        ends = shuffled.sample(ends, min(2, len(ends)))
        between = shuffled.sample([i for i in range(self.rows) if i not in ends], min(most, self.rows) - len(ends))
        return self.picked([*ends[:1], *between, *ends[1:]])

    def cut(self, kept: Mapping[tuple[int, int], tuple[int, int]]) -> Call:
        """With some dimensions of some of its `tensors()` cut to (start, length)."""
        numbers = iter(range(len(self.tensors())))

        def cut(t: Tensor) -> Tensor:
            number = next(numbers)
            for d in range(t.ndim):
                start, length = kept.get((number, d), (0, t.shape[d]))
                t = t.narrow(d, start, length)
            return t

        args, kwargs = map_tensors((self.args, dict(self.kwargs)), cut)
        return Call(args, kwargs, self.rows, self.dimension, self.shared, self.plain)

    def has_rows(self, t: Tensor) -> bool:
        """Whether a tensor is as large as the batch."""
        return t.ndim > self.dimension and t.shape[self.dimension] == self.rows

    @property
    def has_floats(self) -> bool:
        """Whether there are numbers that can be made larger."""
        return any(t.is_floating_point() for t in self.tensors())

    def tensors(self) -> list[Tensor]:
        return tensors_in((self.args, dict(self.kwargs)))

    def without_lists(self) -> Call | None:
        """Without rows in lists and arrays; None where there are none, or too many to be a size that all share."""
        lists = enumerate(self.lists() if self.plain is not None and self.rows <= _FEW else ())
        found = any(_length(v, self.dimension) == self.rows and i not in (self.plain or ()) for i, v in lists)
        return replace(self, plain=None) if found else None

    def lists(self) -> list[Any]:
        """Those that may have an item for each row."""
        found: list[Any] = []
        for value in (*self.args, *self.kwargs.values()):
            map_leaves(value, lambda leaf: found.append(leaf) if _is_list(leaf) else None, until=_is_list)
        return found

    def mapped(self, change: Callable[[Tensor], Tensor], rows: int, *, texts: bool = True) -> Call:
        """With every tensor that has rows changed, to so many rows.

        So are lists and arrays with an item for each row; those of `texts`, and of whatever else is no number, follow
        what becomes of the rows' numbers.
        """
        tensors, lists = self.tensors(), self.lists()
        numbers, list_numbers = iter(range(len(tensors))), iter(range(len(lists)))
        # With fewer rows, a mask or a table may be as large as they are: what has no rows now has none then.
        shared = self.shared | {number for number, t in enumerate(tensors) if not self.has_rows(t)}
        plain = self.plain
        if plain is not None:
            plain |= {number for number, v in enumerate(lists) if _length(v, self.dimension) != self.rows}

        def change_rows(leaf: Any) -> Any:
            if _is_list(leaf):
                number = next(list_numbers)
                return leaf if plain is None or number in plain else _changed(leaf, change, self.dimension, texts)
            if not isinstance(leaf, Tensor) or next(numbers) in shared:
                return leaf
            return change(leaf.detach()).requires_grad_(leaf.requires_grad)  # a leaf, as passes go back more than once

        args = tuple(map_leaves(value, change_rows, until=_is_list) for value in self.args)
        kwargs = {key: map_leaves(value, change_rows, until=_is_list) for key, value in self.kwargs.items()}
        return Call(args, kwargs, rows, self.dimension, shared, plain)


def _is_list(value: Any) -> bool:
    """Whether something may have an item for each example: lengths, names."""
    if isinstance(value, np.ndarray):
        return value.ndim > 0
    return type(value) in (list, tuple) and len(value) > 0 and all(isinstance(v, _ITEMS) for v in value)


def _length(value: Any, dimension: int) -> int:
    if isinstance(value, np.ndarray):
        return int(value.shape[dimension if value.ndim > dimension else 0])
    return len(value)


def _changed(value: Any, change: Callable[[Tensor], Tensor], dimension: int, texts: bool) -> Any:
    """What a change of tensors does to a list or an array."""
    is_array = isinstance(value, np.ndarray)
    numeric = value.dtype.kind in "biuf" if is_array else all(isinstance(v, _NUMBERS) for v in value)
    if not numeric:
        if not texts:
            return value
        index = change(torch.arange(_length(value, dimension)).view([1] * dimension + [-1])).flatten().tolist()
        if is_array:
            return value.take(index, axis=dimension if value.ndim > dimension else 0)
        return type(value)(value[i] for i in index)
    numbers = np.asarray(value)
    t = torch.from_numpy(numbers.astype(np.int64 if numbers.dtype.kind in "iu" else numbers.dtype))
    flat = t.ndim <= dimension
    made = change(t.view([1] * dimension + [-1]) if flat else t)
    made = made.flatten() if flat else made
    return made.numpy().astype(numbers.dtype) if is_array else type(value)(made.tolist())


class Inputs:
    """Which inputs are the same for all examples, though as large as the batch: what earlier passes show of them.

    A mask (T, T) is one, or (K, d) prototypes. They are known by a size that stayed the same, or was that of the
    batch's own other dimensions, while the number of rows was another; or by being the very tensor that came in an
    earlier step. In a first batch that is as large by chance, nothing shows it.
    """

    def __init__(self) -> None:
        # By how many tensors a call has: calls of two forms may take turns.
        self._sizes: dict[int, dict[int, set[int]]] = defaultdict(dict)  # of what had no rows
        self._follows: dict[int, dict[int, set[int]]] = defaultdict(dict)  # dimensions of the batch that it was like
        self._now: dict[int, list[tuple[weakref.ref[Tensor], int]]] = {}  # of the step under way
        self._last: dict[int, list[tuple[weakref.ref[Tensor], int]]] = {}

    def note(self, call: Call) -> None:
        """A pass that has begun."""
        tensors = call.tensors()
        for number, t in enumerate(tensors):
            if t.ndim > call.dimension and not call.has_rows(t):
                size = t.shape[call.dimension]
                self._sizes[len(tensors)].setdefault(number, set()).add(size)
                like = _dimensions_of(call, size)
                self._follows[len(tensors)].setdefault(number, like).intersection_update(like)
        self._now[len(tensors)] = [(weakref.ref(t), t._version) for t in tensors]

    def new_step(self) -> None:
        """Passes of one step may be given the same tensors, though these have rows."""
        self._last |= self._now
        self._now = {}

    def shared(self, call: Call) -> frozenset[int]:
        """Those of a call, by number; the first tensor with rows is the batch."""
        tensors = call.tensors()
        count = len(tensors)
        last = self._last.get(count)
        like = _dimensions_of(call, call.rows)
        with_rows = [number for number, t in enumerate(tensors) if call.has_rows(t)]
        return frozenset(
            number
            for number in with_rows[1:]
            if call.rows in self._sizes[count].get(number, ())
            or like & self._follows[count].get(number, set())
            or (
                last is not None
                and last[number][0]() is tensors[number]
                and last[number][1] == tensors[number]._version
            )
        )


def _dimensions_of(call: Call, size: int) -> set[int]:
    """Which dimensions of the batch, but for that of its rows, have this size."""
    batch = next((t for t in call.tensors() if call.has_rows(t)), None)
    return set() if batch is None else {d for d, n in enumerate(batch.shape) if n == size and d != call.dimension}


class Lists:
    """Which lists and arrays have no item for each example: those of a length that did not follow the batch's."""

    def __init__(self) -> None:
        self._plain: dict[int, frozenset[int]] = {}  # by how many a call has

    def known(self, call: Call) -> Call:
        """With what earlier passes have shown."""
        lists = call.lists()
        plain = self._plain.get(len(lists), frozenset())
        plain |= {number for number, v in enumerate(lists) if _length(v, call.dimension) != call.rows}
        self._plain[len(lists)] = plain
        return replace(call, plain=plain)


def without_rows(output: Any, dimension: int) -> Any:
    """The output of one made-up example without that example."""
    return map_tensors(
        output, lambda t: t.narrow(dimension, 0, 0) if t.ndim > dimension and t.shape[dimension] == 1 else t
    )


def rows_of(args: Any, kwargs: Any, dimension: int = 0) -> int:
    """How many examples a call of the module has: the size of the first tensor's dimension of examples."""
    for value in (*args, *kwargs.values()):
        for tensor in tensors_in(value):
            if tensor.ndim > dimension:
                return int(tensor.shape[dimension])
    raise InvalidArgument("module", "inputs", "a tensor among its inputs, whose first dimension is the example")
