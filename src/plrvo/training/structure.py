"""Containers of any depth: lists, tuples, named tuples, dicts and what behaves like them, and dataclasses."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from torch import Tensor


def leaves(value: Any) -> Iterator[Any]:
    """Everything in a structure that is no container, in order."""
    inside = inside_of(value)
    if inside is None:
        yield value
    else:
        for item in inside.values():
            yield from leaves(item)


def map_leaves(value: Any, change: Callable[[Any], Any], *, until: Callable[[Any], bool] | None = None) -> Any:
    """The same structure, of the same types, with every leaf changed; what `until` is true of is one."""
    inside = None if until is not None and until(value) else inside_of(value)
    if inside is None:
        return change(value)
    return _made_of(value, {key: map_leaves(item, change, until=until) for key, item in inside.items()})


def tensors_in(value: Any) -> list[Tensor]:
    """All tensors of a structure, in order."""
    return [leaf for leaf in leaves(value) if isinstance(leaf, Tensor)]


def map_tensors(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """The same structure, with every tensor changed."""
    return map_leaves(value, lambda leaf: change(leaf) if isinstance(leaf, Tensor) else leaf)


def inside_of(value: Any) -> dict[Any, Any] | None:
    """What a container holds, by key; None for a leaf."""
    if isinstance(value, Mapping):
        return dict(value.items())
    if isinstance(value, (list, tuple)):
        return dict(enumerate(value))
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: getattr(value, f.name) for f in fields(value) if hasattr(value, f.name)}
    return None


def _made_of(value: Any, inside: dict[Any, Any]) -> Any:
    """A container of the same type with other contents."""
    made: Any = type(value)
    if made is dict:
        return inside
    if isinstance(value, Mapping):
        try:  # a copy first: what a constructor takes is its own affair
            copied: Any = copy.copy(value)
            for key, item in inside.items():
                copied[key] = item
            return copied
        except TypeError:  # it cannot be copied, or written to
            return made(inside)
    if isinstance(value, (list, tuple)):
        return made(*inside.values()) if hasattr(value, "_fields") else made(inside.values())
    copied = copy.copy(value)
    for key, item in inside.items():
        object.__setattr__(copied, key, item)
    return copied
