"""In which form a module is called: what may make it compute something else than in the calls that were tried.

Told are the structure of the arguments, texts, flags and numbers among them, and of tensors the number of dimensions
and whether they have rows; not their lengths, which differ from batch to batch. Of what takes ever new values
(counters, seeds, names) only the first ones are told apart, and of whole numbers then their size in bits: a module that
is given the number of the step is tried in its first steps, and whenever that number has doubled.
"""

from __future__ import annotations

import enum
from collections import Counter, defaultdict
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from plrvo.training.call import Call
from plrvo.training.kept import switches
from plrvo.training.structure import inside_of

_NUMBERS, _TEXTS = 8, 64  # values of one place that are told apart
_SAME_BUT_NUMBERS = 64  # forms that differ in numbers only; those after them are told by which numbers are zero
_ITEMS = 32  # of a container that is looked at item by item
_DEPTH, _ATTRIBUTES_DEPTH = 8, 2  # settings are objects in the arguments; what they refer to may be the whole program
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


@dataclass(frozen=True)
class Form:
    """`numbers` are the whole numbers in it; all else is in `kind`."""

    kind: Hashable
    numbers: Hashable


class Forms:
    """Tells forms of calls of one module, and remembers the values that each place has had."""

    def __init__(self) -> None:
        self._values: dict[Hashable, set[Hashable]] = defaultdict(set)
        self._same_but_numbers = Counter[Hashable]()
        self._known: set[Form] = set()

    def of(self, module: nn.Module, call: Call) -> Form:
        """The form of a call that is about to be made."""
        look = _Look(self._values, call)
        kind = (_of_layers(module), look.arguments())
        form = Form(kind, tuple(look.numbers))
        if form not in self._known:
            if self._same_but_numbers[kind] >= _SAME_BUT_NUMBERS:
                return Form(kind, ())
            self._same_but_numbers[kind] += 1
            self._known.add(form)
        return form


class _Look:
    """One look at everything that decides about a form."""

    def __init__(self, values: dict[Hashable, set[Hashable]], call: Call) -> None:
        self._values, self._call = values, call
        self.numbers: list[Hashable] = []

    def arguments(self) -> Hashable:
        named = sorted(self._call.kwargs.items())
        args = [self._of(value, ("argument", i), 0) for i, value in enumerate(self._call.args)]
        return tuple(args), tuple((key, self._of(value, ("argument", key), 0)) for key, value in named)

    def _of(self, value: Any, place: tuple[Hashable, ...], depth: int) -> Hashable:
        if isinstance(value, (Tensor, np.ndarray, np.generic)) and value.ndim == 0:
            value = None if isinstance(value, Tensor) and value.is_meta else value.item()
        if isinstance(value, Tensor):
            return self._of_tensor(value)
        if isinstance(value, np.ndarray):
            return "array", value.ndim
        if value is None or isinstance(value, (bool, enum.Enum, torch.dtype, torch.device)):
            return value if isinstance(value, Hashable) else repr(value)
        if isinstance(value, int):
            return self._of_number(value, place)
        if isinstance(value, (float, complex)):
            return "number", value == 0
        if isinstance(value, (str, bytes)):
            return self._first(value, place, _TEXTS)
        return self._of_items(value, place, depth)

    def _of_items(self, value: Any, place: tuple[Hashable, ...], depth: int) -> Hashable:
        name, items = type(value).__qualname__, inside_of(value)
        if items is None and depth <= _ATTRIBUTES_DEPTH and not isinstance(value, (nn.Module, type)):
            items = getattr(value, "__dict__", None)
        if items is None or depth > _DEPTH:
            return name
        by_example = isinstance(value, (list, tuple)) and len(value) == self._call.rows
        by_key = not isinstance(value, Mapping) or all(isinstance(key, str) for key in items)
        if by_example or not by_key or len(items) > _ITEMS:
            # As many as the batch or the data say: which kinds of items there are, whatever their number.
            numbers = len(self.numbers)
            kinds = frozenset(self._of(item, (*place, "items"), depth + 1) for item in items.values())
            del self.numbers[numbers:]
            return name, kinds
        return name, tuple((key, self._of(item, (*place, key), depth + 1)) for key, item in items.items())

    def _of_tensor(self, t: Tensor) -> Hashable:
        size = t.shape[self._call.dimension] if t.ndim > self._call.dimension else 0
        rows = "rows" if size == self._call.rows else "one" if size == 1 else "other"
        return "tensor", t.ndim, rows, t.is_floating_point(), t.dtype == torch.bool

    def _of_number(self, value: int, place: tuple[Hashable, ...]) -> Hashable:
        told = self._first(value, place, _NUMBERS)
        self.numbers.append((place, ("bits", value > 0, value.bit_length()) if told is None else told))
        return "number", value == 0

    def _first(self, value: Hashable, place: tuple[Hashable, ...], most: int) -> Hashable:
        """The value if it is one of the first that the place has had, else None."""
        seen = self._values[place]
        if value not in seen and len(seen) >= most:
            return None
        seen.add(value)
        return value


def _of_layers(module: nn.Module) -> Hashable:
    """Changes when a layer is replaced, patched, hooked or switched, by train() or by an attribute."""
    return tuple(
        (id(m), m.training, "forward" in vars(m), switches(m), *(len(getattr(m, hooks)) for hooks in _HOOKS))
        for m in module.modules()
    )
