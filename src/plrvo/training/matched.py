"""Which of the numbers that a module is given are what the loader gave, and how the loop has changed them.

What the loader makes of single examples (`collated`) can take their rows' place only where it is known which input it
belongs to. That is told by its numbers: a loop may move, cast, unpack or shift what the loader gave, lay it out the
other way round, or make a mask of it; what becomes of the rest nobody knows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from plrvo.training.call import Call
from plrvo.training.structure import map_leaves

_NUMBERS = (bool, int, float, np.number, np.bool_)
_WAYS: tuple[Callable[[Tensor], Tensor], ...] = (
    lambda t: t,
    lambda t: t[:, :-1],
    lambda t: t[:, 1:],
    lambda t: t.transpose(0, 1),
    lambda t: t.unsqueeze(1),
    lambda t: t.unsqueeze(-1),
    lambda t: t != 0,
    lambda t: t == 0,
    lambda t: 1 - t.double(),
)

Leaf = Tensor | None  # None for what are no numbers


@dataclass(frozen=True)
class Match:
    """For some places among a call's numbers, the place among the loader's, and what was done with it."""

    call: Call
    ways: Mapping[int, tuple[int, Callable[[Tensor], Tensor]]]

    def alone(self, row: int, given: Sequence[Leaf], lengths: set[int]) -> Call | None:
        """The call of one example, as it would have been with what the loader gives for it alone.

        None where an input that nobody knows is as long as what differs: it would have another length too.
        """
        call, places = self.call, iter(range(len(_inputs(self.call))))
        unknown = False

        def changed(leaf: Any) -> Any:
            nonlocal unknown
            place = next(places)
            t = as_numbers(leaf)
            if place in self.ways:
                number, way = self.ways[place]
                other = _done(way, given[number]) if number < len(given) else None
                dimension = _dimension(leaf, call)
                unknown |= other is None or t is None or other.ndim != t.ndim or other.shape[dimension or 0] != 1
                return leaf if other is None else _like(leaf, other)
            if t is None:
                return leaf
            dimension = _dimension(leaf, call)
            unknown |= any(n in lengths for d, n in enumerate(t.shape) if d != dimension)
            return leaf if dimension is None else _like(leaf, t.narrow(dimension, row, 1))

        args = tuple(map_leaves(value, changed, until=is_numbers) for value in call.args)
        kwargs = {key: map_leaves(value, changed, until=is_numbers) for key, value in call.kwargs.items()}
        return None if unknown else replace(call, args=args, kwargs=kwargs, rows=1)

    def differing(self, together: Sequence[Leaf], place: int, given: Sequence[Leaf], count: int) -> set[int] | None:
        """How long one of `count` examples is beside others, in the dimensions in which it is not that long alone.

        Empty where only its numbers are others; None where they are the same.
        """
        differs, lengths = False, set[int]()
        for one, other in self._pairs(together, place, given, count):
            lengths |= {a for a, b in zip(one.shape, other.shape, strict=True) if a != b}
            differs |= not _equal(one, other)
        return lengths if differs else None

    def place_of(self, given: Sequence[Leaf], place: int, together: Sequence[Leaf], count: int) -> int:
        """Where among those together that example is, as a collate function may put them in another order."""
        for other in (place, *(i for i in range(count) if i != place)):
            pairs = list(self._pairs(together, other, given, count))
            several = [pair for pair in pairs if pair[1].numel() > 1]  # one number may be that of the place
            if all(_agree(long, short) for long, short in several or pairs):
                return other
        return place

    def _pairs(
        self, together: Sequence[Leaf], place: int, given: Sequence[Leaf], count: int
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Of each input that is known, one example beside others, and alone."""
        for number in {number for number, _ in self.ways.values()}:
            whole, other = together[number], given[number] if number < len(given) else None
            if whole is None or other is None or whole.ndim != other.ndim or not whole.ndim:
                continue
            dimension = 0 if whole.shape[0] == count else min(1, whole.ndim - 1)
            if whole.shape[dimension] == count and other.shape[dimension] == 1:
                yield whole.narrow(dimension, place, 1), other

    @property
    def is_complete(self) -> bool:
        """Whether all inputs with rows are known."""
        inputs = enumerate(_inputs(self.call))
        return all(t is None or _dimension(t, self.call) is None or place in self.ways for place, t in inputs)


def match(call: Call, rows: Sequence[int], together: Sequence[Leaf]) -> Match | None:
    """By what the loader gives for these rows together; None where no input is known."""
    ways = dict[int, tuple[int, Callable[[Tensor], Tensor]]]()
    for place, leaf in enumerate(_inputs(call)):
        dimension = None if leaf is None else _dimension(leaf, call)
        if leaf is None or dimension is None:
            continue
        t = leaf.index_select(dimension, torch.tensor(rows, device=leaf.device)).cpu()
        found = next(
            ((number, way) for number, way in _ways(together) if _equal(t, _done(way, together[number]))), None
        )
        if found:
            ways[place] = found
    return Match(call, ways) if ways else None


def same(one: Sequence[Leaf], other: Sequence[Leaf]) -> bool:
    """Whether two answers of a loader are the same numbers."""
    return len(one) == len(other) and all(
        (a is None and b is None) or (a is not None and _equal(a, b)) for a, b in zip(one, other, strict=True)
    )


def _agree(long: Tensor, short: Tensor) -> bool:
    """At the beginning or at the end, as far as both go."""
    shape = [min(a, b) for a, b in zip(long.shape, short.shape, strict=True)]
    first, last = tuple(slice(n) for n in shape), tuple(slice(-n if n else None, None) for n in shape)
    return _equal(long[first], short[first]) or _equal(long[last], short[last])


def _ways(together: Sequence[Leaf]) -> Iterator[tuple[int, Callable[[Tensor], Tensor]]]:
    for way in _WAYS:
        for number in range(len(together)):
            yield number, way


def _done(way: Callable[[Tensor], Tensor], t: Leaf) -> Leaf:
    try:
        return None if t is None else way(t)
    except (IndexError, RuntimeError):
        return None


def _equal(one: Tensor, other: Leaf) -> bool:
    """As numbers, whatever type they are of; numbers that are none equal each other."""
    if other is None or one.shape != other.shape:
        return False
    if one.dtype != other.dtype and one.is_floating_point() and other.is_floating_point():
        other = other.to(one.dtype)
    return torch.equal(one.double().nan_to_num(nan=1e300), other.double().nan_to_num(nan=1e300))


def _dimension(leaf: Any, call: Call) -> int | None:
    """That of the rows; lists have them in their first one, whatever tensors have."""
    t = as_numbers(leaf)
    if t is None or not t.ndim:
        return None
    dimension = call.dimension if t.ndim > call.dimension else 0
    return dimension if t.shape[dimension] == call.rows else None


def _like(leaf: Any, t: Tensor) -> Any:
    """The same kind of thing with other numbers."""
    if isinstance(leaf, Tensor):
        return t.detach().to(leaf)
    if isinstance(leaf, np.ndarray):
        return t.cpu().numpy().astype(leaf.dtype)
    return type(leaf)(t.tolist())


def _inputs(call: Call) -> list[Leaf]:
    return [t for value in (*call.args, *call.kwargs.values()) for t in _leaves(value)]


def numbers_in(batch: Any) -> list[Leaf]:
    """All tensors, arrays and lists of numbers in a batch, as tensors; None in the place of anything else.

    A list of lists may be one of rows, and one of inputs.
    """
    whole = [as_numbers(batch)] if type(batch) is list else []
    return whole + [t for value in batch for t in _leaves(value)] if type(batch) in (list, tuple) else _leaves(batch)


def _leaves(value: Any) -> list[Leaf]:
    found: list[Leaf] = []
    map_leaves(value, lambda leaf: found.append(as_numbers(leaf)), until=is_numbers)
    return found


def is_numbers(value: Any) -> bool:
    """Whether it is a tensor, an array, or a list of numbers or of lists of numbers."""
    if type(value) not in (list, tuple):
        return isinstance(value, (Tensor, np.ndarray))
    return len(value) > 0 and all(
        isinstance(v, _NUMBERS) or (type(v) in (list, tuple) and is_numbers(v)) for v in value
    )


def as_numbers(leaf: Any) -> Leaf:
    """A tensor of it; None where it is no array of numbers."""
    if isinstance(leaf, Tensor):
        return leaf.detach() if leaf.layout == torch.strided and not leaf.is_complex() else None
    if not is_numbers(leaf):
        return None
    try:
        array = np.ascontiguousarray(leaf) if np.ndim(leaf) else np.asarray(leaf)
        return torch.from_numpy(array.copy()) if array.dtype.kind in "biuf" else None
    except (TypeError, ValueError):  # lists of many lengths, types that torch does not have
        return None
