"""In which form a module is called: what may make it compute something else than in the calls that were tried.

Told are the structure of the arguments, texts, flags and numbers among them, and of tensors the number of dimensions
and whether they have rows; not their lengths, which differ from batch to batch. And of layers: which they are, their
texts, flags and numbers, and the code of functions that they keep or are hooked with. Of what takes ever new values
(counters, seeds, names) only the first ones are told apart, and of whole numbers then their size in bits: a module that
is given the number of the step is tried in its first steps, and whenever that number has doubled.
"""

from __future__ import annotations

import enum
import functools
import types
import weakref
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from plrvo.training.call import Call
from plrvo.training.elsewhere import is_class_of_ours, layers_of
from plrvo.training.kept import own_attributes
from plrvo.training.structure import inside_of

_NUMBERS, _TEXTS = 8, 64  # values of one place that are told apart
_SAME_BUT_NUMBERS = 64  # forms that differ in numbers only; those after them are told by which numbers are zero
_ITEMS = 32  # of a container that is looked at item by item
_DEPTH, _ATTRIBUTES_DEPTH = 8, 2  # settings are objects in the arguments; what they refer to may be the whole program
_SINGLE = (str, bytes, int, float, complex, enum.Enum, torch.dtype, torch.device, np.generic, type(None))
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
        kind = (look.layers(module), look.arguments())
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

    def layers(self, module: nn.Module) -> Hashable:
        """Changes when a layer is replaced, patched, hooked or switched, by train() or by an attribute."""
        # By weak references: an id comes again when a layer is gone.
        return tuple([(weakref.ref(m), self._of_layer(m)) for _, m in layers_of(module)])

    def _of_layer(self, m: nn.Module) -> Hashable:
        place = ("layer", weakref.ref(m))
        attributes = {
            **own_attributes(m),
            "forward": vars(m).get("forward"),
        }  # one that was put in place of its class's
        numbers = {
            key: b.detach().reshape(())
            for key, b in m._buffers.items()
            if b is not None and b.numel() == 1 and not b.is_meta
        }
        own = tuple([(key, self._of_attribute(value, (*place, key))) for key, value in attributes.items()])
        buffers = tuple([(key, self._of(value, (*place, key), 0)) for key, value in numbers.items()])
        hooks = tuple([self._of_hooks(getattr(m, kind), (*place, kind)) for kind in _HOOKS])
        return m.training, own, buffers, hooks

    def _of_hooks(self, hooks: Mapping[int, Any], place: tuple[Hashable, ...]) -> Hashable:
        """Our own stay what they are."""
        return tuple(
            [
                "ours" if _is_ours(hook) else self._of_function(hook, (*place, i), 0)
                for i, hook in enumerate(hooks.values())
            ]
        )

    def _of_attribute(self, value: Any, place: tuple[Hashable, ...], depth: int = 0) -> Hashable:
        """Tables and objects that a layer keeps are told by their type: they may change in every pass."""
        if value is None or value is True or value is False:
            return cast(Hashable, value)
        if type(value) in weakref.ProxyTypes:  # every look at one that is dead is an error
            return "a proxy"
        return self._of(value, place, 0) if isinstance(value, _SINGLE) else self._of_function(value, place, depth)

    def _of_function(self, value: Any, place: tuple[Hashable, ...], depth: int) -> Hashable:
        """By its code and what that refers to: a function that is made anew in every step is the same one."""

        def each(values: Iterable[Any]) -> Hashable:
            return tuple(self._of_attribute(v, (*place, i), depth + 1) for i, v in enumerate(values))

        if depth <= _ATTRIBUTES_DEPTH:
            if isinstance(value, functools.partial):
                return each((value.func, *value.args, *value.keywords.values()))
            if isinstance(value, types.MethodType):
                return each((value.__func__, value.__self__))
            if isinstance(value, types.FunctionType):
                cells = [_contents(cell) for cell in value.__closure__ or ()]
                return value.__code__, each(
                    (*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values(), *cells)
                )
        if isinstance(value, (types.BuiltinFunctionType, type)):
            return value
        if isinstance(value, nn.Module):
            return self._first(weakref.ref(value), place, _NUMBERS)
        return type(value).__qualname__

    def _of(self, value: Any, place: tuple[Hashable, ...], depth: int) -> Hashable:
        if type(value) in weakref.ProxyTypes:
            return "a proxy"
        if isinstance(value, (Tensor, np.ndarray, np.generic)) and value.ndim == 0:
            value = None if isinstance(value, Tensor) and value.is_meta else value.item()
        if isinstance(value, Tensor):
            return self._of_tensor(value)
        if isinstance(value, np.ndarray):
            return "array", value.ndim
        if value is None or isinstance(value, (bool, enum.Enum, torch.dtype, torch.device)):
            return value
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


def _is_ours(hook: Any) -> bool:
    """A method of an object of plrvo's."""
    while isinstance(hook, functools.partial):
        hook = hook.func
    its_class: Any = type(hook.__self__) if isinstance(hook, types.MethodType) else object
    return is_class_of_ours(its_class)


def _contents(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # a name that has no value yet
        return None
