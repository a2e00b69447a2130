"""Which Python code is called when something is, and whether all of it is known not to look at weights.

Known is a function that was defined in one of a few packages, wherever it has been put since: on a class of torch's, in
a list of hooks, in the closure of a function of accelerate's. The module is that of its globals: `functools.wraps`
gives a wrapper the name of what it wraps, and not its globals.

Not found is code that takes the place of a function in a module (`torch.nn.functional.linear = own`), runs in another
thread, or lies in an extension that is not written in Python.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property, lru_cache, partial, partialmethod
from types import CellType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch

_KNOWN = frozenset(("torch", "transformers", "peft", "opacus", "accelerate", "safetensors", "datasets", "plrvo"))
# What makes and wraps methods: dataclasses and the like. No callbacks of others are in there that are not found.
_MAKERS = frozenset(
    (
        *("abc", "_collections_abc", "collections", "contextlib", "copy", "dataclasses", "enum", "functools"),
        *("operator", "types", "typing", "weakref", "_weakrefset", "typing_extensions", "tokenizers"),
        "huggingface_hub",
    )
)
_ALL = _KNOWN | _MAKERS
_DATA = (torch.Tensor, np.ndarray, str, bytes, int, float, bool, type(None), torch.dtype, torch.device, ModuleType)
_WRAPPERS: tuple[type, ...] = (MethodType, partial, partialmethod, staticmethod, classmethod, property, cached_property)
_CONTAINERS: tuple[type, ...] = (dict, list, tuple, set, frozenset)
_MOST = 1000  # elements of a container: larger ones hold examples, or parameters
_OF_FUNCTIONS = ("func", "__func__", "__wrapped__", "fget", "fset", "args", "keywords", "__self__")
_CALLS = ("__call__", "__getitem__", "step")  # what objects have that are called: layers, data sets, schedules
_HOOKS_OF_TENSORS = ("_backward_hooks", "_post_accumulate_grad_hooks")


def is_known(function: FunctionType) -> bool:
    """Whether a function is of a package whose code does not look, by where it was defined."""
    return str(function.__globals__.get("__name__", "")).partition(".")[0] in _ALL


def all_known(things: Iterable[Any]) -> bool:
    """Whether calling these, and methods of theirs, calls known functions only."""
    return all(is_known(function) for function in functions_of(things))


def functions_of(things: Iterable[Any]) -> Iterator[FunctionType]:
    """All that calling these may call: their methods, hooks and layers, what wraps them, what they hold in closures."""
    seen: set[int] = set()
    kept = []  # what was made on the way: an id is of one thing only while that is there
    found = list(things)
    while found:
        thing = found.pop()
        if isinstance(thing, torch.nn.Parameter):
            found += [hooks for kind in _HOOKS_OF_TENSORS if (hooks := getattr(thing, kind, None))]
        if isinstance(thing, _DATA) or id(thing) in seen:
            continue
        if not isinstance(thing, type):  # of which each is looked through once, with those it inherits from
            seen.add(id(thing))
        kept.append(thing)
        if isinstance(thing, FunctionType):
            yield thing
        found += _within(thing, seen)


def _within(thing: Any, seen: set[int]) -> list[Any]:
    if isinstance(thing, FunctionType):
        return _called([*(thing.__closure__ or ()), *vars(thing).values(), *(thing.__defaults__ or ())])
    if isinstance(thing, CellType):
        try:
            return _called([thing.cell_contents])
        except ValueError:  # nothing is in it yet
            return []
    if type(thing) in _CONTAINERS:
        return _elements(thing)
    if isinstance(thing, type):
        return _of_class(thing, seen)
    if isinstance(thing, _WRAPPERS):
        return _called(getattr(thing, name) for name in _OF_FUNCTIONS if hasattr(thing, name))
    held = getattr(thing, "__dict__", None)
    found = _of_class(type(thing), seen) + (_called(held.values()) if isinstance(held, dict) else [])
    return found + (_elements(thing) if isinstance(thing, _CONTAINERS) else [])


def _elements(thing: Any) -> list[Any]:
    items = thing.values() if isinstance(thing, dict) else thing
    return _called(items) if len(thing) <= _MOST else []


def _of_class(kind: type, seen: set[int]) -> list[Any]:
    """What is found on a class and those it inherits from, each of them once; not how its objects were made."""
    found = []
    for each in kind.__mro__[:-1]:
        if id(each) not in seen:
            seen.add(id(each))
            found += [
                value for name, value in vars(each).items() if name != "__init__" and not isinstance(value, type | str)
            ]
    return _called(found)


def _called(values: Iterable[Any]) -> list[Any]:
    """Those that may be called, or hold what may be."""
    kinds: Iterable[tuple[Any, Any]] = ((value, type(value)) for value in values)
    return [value for value, kind in kinds if _may_be_called(kind) or issubclass(kind, torch.nn.Parameter)]


@lru_cache(maxsize=1 << 12)
def _may_be_called(kind: Any) -> bool:
    if issubclass(kind, _DATA):
        return False
    if issubclass(kind, _CONTAINERS + _WRAPPERS + (CellType,)):
        return True
    return any(name in vars(each) for each in kind.__mro__ for name in _CALLS)
