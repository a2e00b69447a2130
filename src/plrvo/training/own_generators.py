"""Generators that a data set or a collate function has of its own, left as they were found.

Examples are asked for beside the steps (`collated`, `together`). A data set that augments them with a generator of its
own would give other examples in the steps that follow, and in a resumed run, where it is asked anew, others again.
"""

from __future__ import annotations

import functools
import random
import types
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import torch
from torch import Tensor

from plrvo.training.elsewhere import is_of_the_user
from plrvo.training.kept import children, inside_of_function

_MOST = 10_000  # objects that are looked at
_LONG = 1000  # items of a container, beyond which it is data
_NOTHING_INSIDE: tuple[Any, ...] = (
    str, bytes, int, float, complex, type(None), type, types.ModuleType, Tensor, np.ndarray, *weakref.ProxyTypes,
)  # fmt: skip
_CONTAINERS = (dict, list, tuple, set, frozenset)


@contextmanager
def own_generators_aside(*of: Any) -> Iterator[None]:
    """Afterwards each generator that these objects lead to is as it was."""
    put_back = [how for value in _reached(of) if (how := _put_back(value)) is not None]
    try:
        yield
    finally:
        for how in put_back:
            how()


def _reached(of: tuple[Any, ...]) -> Iterator[Any]:
    """Through attributes, items, wrapped data sets, transforms, and what their functions refer to by name."""
    waiting, seen, alive = [*of], set[int](), list[Any]()
    while waiting and len(seen) < _MOST:
        value = waiting.pop()
        if type(value) in _NOTHING_INSIDE or id(value) in seen:
            continue
        seen.add(id(value))
        alive.append(value)  # items may be made anew each time: none takes the address of another
        yield value
        if isinstance(value, _NOTHING_INSIDE) or (isinstance(value, _CONTAINERS) and len(value) > _LONG):
            continue
        with suppress(Exception):  # an object that cannot be looked into
            waiting += _inside(value)


def _inside(value: Any) -> list[Any]:
    if isinstance(value, types.FunctionType):
        return [*inside_of_function(value), *_by_name(value)] if is_of_the_user(value) else []
    found = children(value)
    if isinstance(value, types.MethodType):
        return [*found, value.__func__]
    return found + [own for kind in type(value).__mro__ if is_of_the_user(kind) for own in vars(kind).values()]


def _by_name(function: types.FunctionType) -> list[Any]:
    """Globals that it may draw from."""
    names = function.__code__.co_names
    return [function.__globals__[name] for name in names if name in function.__globals__]


def _put_back(value: Any) -> Callable[[], Any] | None:
    """What makes a generator what it is at the moment; None for what is none."""
    if isinstance(value, torch.Generator):
        return functools.partial(value.set_state, value.get_state())
    if isinstance(value, np.random.Generator):
        return functools.partial(setattr, value.bit_generator, "state", value.bit_generator.state)
    if isinstance(value, np.random.RandomState):
        return functools.partial(value.set_state, value.get_state(legacy=False))
    if isinstance(value, random.Random) and not isinstance(value, random.SystemRandom):
        return functools.partial(value.setstate, value.getstate())
    return None
