"""Everything that is reachable from a module's attributes, to compare and to put back.

Numbers and texts of any type, tensors, arrays, containers, and objects through their attributes and slots are looked
through, and so is what is kept beside attributes (`elsewhere`); functions, classes, loggers and objects of plrvo are
not, nor are parameters of the module, which are the optimizer's. `Digest` makes a value of it that is equal where all
numbers and texts are; `Contents` remembers what every object holds, and puts it back into the same object.
"""

from __future__ import annotations

import array
import enum
import functools
import hashlib
import itertools
import logging
import random
import types
import weakref
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Hashable, Iterator
from contextlib import suppress
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from plrvo.training.elsewhere import Layers, is_of_the_user, layers_of, places, plain_hooks
from plrvo.validate import InvalidArgument

SMALL = 1 << 16  # numbers in a tensor that is looked at by value in training
_OF_TORCH = frozenset(vars(nn.Module()))
_OF_FSDP = "__composable_api_state_key"  # what it knows of a module, shares among them
_PLAIN = (str, int, bool, type(None), bytes, range, slice, enum.Enum, torch.dtype, torch.device)
# Of exactly these types, which are nearly all values, nothing has to be asked: they are told by themselves. All else is
# told with its type, so that nothing is taken for another thing that looks like it: True equals 1, but is not 1.
_TOLD_AS_THEY_ARE = frozenset({str, int, type(None), bytes, torch.dtype, torch.device})
_SINGLE = _TOLD_AS_THEY_ARE | {bool}
_FLAGS = {flag: ("bool", flag) for flag in (False, True)}
# Of exactly these types nothing has to be asked either: there is nothing but their items to be looked at.
_ITEMS_ALONE = frozenset({dict, list, tuple, set, frozenset})
_OPAQUE = (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, logging.Logger)
_MOST = 100_000  # objects below one module: whoever refers to more refers to the whole program
_DEPTH = 100
_PROXIES = weakref.ProxyTypes  # to what is kept elsewhere; every look at one that is dead is an error
_BYTES = (bytearray, array.array, memoryview)
_CONTAINERS = (dict, list, tuple, set, frozenset, deque)
_LONG = 1000  # items of a container (a vocabulary) that is looked through where values are, and else told by its length


def attributes(layers: Layers) -> Iterator[tuple[str, Any]]:
    """(name, value) of all buffers and of all attributes that are not torch's own."""
    for path, m in layers:
        within = f"{path}." if path else ""
        for key, value in m._buffers.items():
            yield within + key, value
        for key, value in own_attributes(m).items():
            yield within + key, value


def own_attributes(m: nn.Module) -> dict[str, Any]:
    """Those of one layer that are not torch's."""
    return {k: value for k, value in vars(m).items() if k not in _OF_TORCH and not k.startswith(_OF_FSDP)}


class Digest:
    """Hashable values of what a module keeps, by name.

    Tensors are told by their values, or (`identity`) by which they are and how often they were written to, and besides
    by their values if they are small and `values` says so. Tensors stay alive with the digest: no other is like them.
    A `strict` one looks at tensors of any size, into functions (closures, defaults, caches), and at generators.
    """

    def __init__(self, module: nn.Module, *, identity: bool = False, values: bool = True, strict: bool = False) -> None:
        self._identity, self._values, self._strict = identity, values, strict
        self._module, self._seen = module, dict[int, Hashable]()
        self._alive: list[Any] = []
        self._first: dict[str, int] = {}  # how much was seen before each name
        self._in_sets = 0  # which have no order that objects in them could be counted by
        layers = layers_of(module)
        self._own = _of_the_tree(layers)
        self.names: dict[str, Hashable] = {}
        for self._name, value in attributes(layers):
            kind = type(value)
            self.names[self._name] = (
                value if kind in _TOLD_AS_THEY_ARE else _FLAGS[value] if kind is bool else self._of(value, 0)
            )
        for self._name, value, _ in places(layers):
            self.names[self._name] = self._of(value, 0)
        for self._name, value in plain_hooks(layers) if strict else ():
            self.names[self._name] = self._of(value, 0)
        if not identity:  # what it returns may be new each time
            for path, m in layers:
                if type(m).get_extra_state is not nn.Module.get_extra_state:
                    self._name = f"{path}.get_extra_state()".lstrip(".")
                    self.names[self._name] = self._of(m.get_extra_state(), 0)

    def differing(self, other: Digest) -> set[str]:
        """The names whose values are not the same, or are in only one of the two."""
        names = self.names.keys() | other.names.keys()
        return {name for name in names if self.names.get(name, other) != other.names.get(name, self)}

    def _of(self, value: Any, depth: int) -> Hashable:
        kind = type(value)
        if kind in _TOLD_AS_THEY_ARE:
            return cast(Hashable, value)
        if kind is bool:
            return _FLAGS[value]
        if kind is float:
            return "float", repr(value)  # a NaN equals nothing
        # Sizes, attributes of objects with their names: with one item to be looked into at most, none comes twice.
        if kind is tuple and _TOLD_AS_THEY_ARE.issuperset(map(type, value)):
            return "tuple", value
        if kind is tuple and sum([type(v) not in _SINGLE for v in value]) <= 1 and depth <= _DEPTH:
            return "tuple", tuple([v if type(v) in _TOLD_AS_THEY_ARE else self._of(v, depth + 1) for v in value])
        looks_inside = False
        if kind not in _ITEMS_ALONE:
            if kind in _PROXIES:
                return ("a proxy",)
            if isinstance(value, _PLAIN):
                return kind.__name__, value if isinstance(value, Hashable) else repr(value)
            if isinstance(value, (float, complex)):
                return kind.__name__, repr(value)
            if self._strict and (state := drawn_so_far(value)) is not None:
                return state
            looks_inside = self._strict and isinstance(value, types.FunctionType) and is_of_the_user(value)
            if id(value) in self._own or (_is_opaque(value) and not looks_inside):
                return (kind.__name__,)
        if depth > _DEPTH:
            return (kind.__name__,)
        if id(value) in self._seen:
            return "seen in", self._seen[id(value)]
        number = len(self._alive) - self._first.setdefault(self._name, len(self._alive))
        # Which of several in one attribute. A set has no order to count by: what is in it is known by its address.
        self._seen[id(value)] = self._name, -id(value) if self._in_sets else number
        self._alive.append(value)
        if len(self._alive) > _MOST:
            raise InvalidArgument(
                "module",
                type(self._module).__name__,
                f"attributes that can be looked through; {self._name} refers to more than {_MOST} objects",
            )
        if kind not in _ITEMS_ALONE:
            if isinstance(value, Tensor):
                return self._of_tensor(value)
            if isinstance(value, _BYTES):
                return kind.__name__, bytes(value)
            if isinstance(value, (np.ndarray, np.generic)) and value.dtype != object:
                return value.shape, str(value.dtype), _hashed(np.ascontiguousarray(value))
        if self._identity and not self._values and isinstance(value, _CONTAINERS) and len(value) > _LONG:
            return kind.__name__, id(value), len(value)
        below = inside_of_function(value) if looks_inside else children(value)
        is_set = isinstance(value, (set, frozenset))
        self._in_sets += is_set
        inside = [child if type(child) in _TOLD_AS_THEY_ARE else self._of(child, depth + 1) for child in below]
        self._in_sets -= is_set
        # Objects that look alike are several in a set none the less.
        return kind.__name__, frozenset(Counter(inside).items()) if is_set else tuple(inside)

    def _of_tensor(self, t: Tensor) -> Hashable:
        known: tuple[Hashable, ...] = (tuple(t.shape), t.dtype)
        if self._identity:
            known = (id(t), 0 if t.is_inference() else t._version)
        by_value = not self._identity or (self._values and (self._strict or t.numel() <= SMALL))
        return (*known, tensor_bits(t)) if by_value else known


class Contents:
    """What every object that a module keeps holds at the moment."""

    def __init__(self, module: nn.Module) -> None:
        self._module = module
        self._undo: list[Callable[[], None]] = []
        layers = layers_of(module)
        self._modules = [(m, own_attributes(m), dict(m._buffers)) for _, m in layers]
        elsewhere = list(places(layers))
        self._undo += [functools.partial(place.put, place.value) for place in elsewhere]
        own, seen = _of_the_tree(layers), set[int]()
        waiting = [*(value for _, value in attributes(layers)), *(place.value for place in elsewhere)]
        while waiting:
            value = waiting.pop()
            if (
                type(value) in _PROXIES
                or isinstance(value, (*_PLAIN, float, complex))
                or id(value) in own
                or id(value) in seen
            ):
                continue
            if _is_opaque(value):
                continue
            seen.add(id(value))
            self._undo += _undo(value)
            if not isinstance(value, (Tensor, np.generic)):
                waiting += children(value)
            if len(seen) > _MOST:
                break  # the digest of it is refused

    def put_back(self) -> None:
        for m, kept, buffers in self._modules:
            for key in own_attributes(m).keys() - kept.keys():
                del vars(m)[key]
            vars(m).update(kept)
            _fill(m._buffers, buffers)
        for undo in self._undo:
            undo()


def children(value: Any) -> list[Any]:
    """What an object refers to: items, keys, attributes."""
    kind = type(value)
    if kind in (list, tuple, set, frozenset):  # which have no attributes
        return list(value)
    if kind is dict:
        return [*value.keys(), *value.values()]
    if isinstance(value, types.MethodType):
        return [value.__self__]
    if isinstance(value, functools.partial):
        return [value.func, *value.args, *value.keywords.items()]
    found: list[Any] = []
    if isinstance(value, dict):
        found += [*value.keys(), *value.values()]
    elif isinstance(value, (list, tuple, deque, set, frozenset)) or (
        isinstance(value, np.ndarray) and value.dtype == object
    ):
        found += value
    found += getattr(value, "__dict__", {}).items()
    return found + list(_slots(value).items())


def inside_of_function(function: types.FunctionType) -> list[Any]:
    """What it keeps from call to call: variables of the function around it, defaults, attributes."""
    cells = []
    for cell in function.__closure__ or ():
        with suppress(ValueError):  # a name that has no value yet
            cells.append(cell.cell_contents)
    defaults = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    return [*cells, *defaults, *function.__dict__.items()]


def drawn_so_far(value: Any) -> Hashable | None:
    """How far something has come that has no attributes: a generator, a cache, a counter; None for what is none."""
    if isinstance(value, torch.Generator):
        return _hashed(value.get_state().numpy())
    if isinstance(value, np.random.Generator):
        return repr(value.bit_generator.state)
    if isinstance(value, np.random.RandomState):
        return repr(value.get_state(legacy=False))
    if isinstance(value, random.Random):
        return value.getstate()
    if isinstance(value, functools._lru_cache_wrapper):
        return tuple(value.cache_info())
    return repr(value) if isinstance(value, itertools.count) else None


def tensor_bits(t: Tensor) -> Hashable:
    """A digest of a tensor's numbers."""
    if t.is_meta:
        return None
    if t.layout != torch.strided:
        try:
            any_kind: Any = t.detach()
            sparse = any_kind.to_sparse_coo().coalesce()
        except (RuntimeError, NotImplementedError):  # of a kind that cannot be looked into
            return None
        return tensor_bits(sparse.indices()), tensor_bits(sparse.values())
    t = t.detach().resolve_conj().resolve_neg().cpu().contiguous()
    return _hashed(t.reshape(-1).view(torch.uint8).numpy())


def _hashed(array: Any) -> bytes:
    return hashlib.blake2b(array.data if array.size else b"", digest_size=16).digest()


def _of_the_tree(layers: Layers) -> set[int]:
    """What is not looked through: layers, which are looked at one by one, and parameters."""
    found = set[int]()
    for _, m in layers:
        found.add(id(m))
        found.update(id(p) for p in m._parameters.values() if p is not None)
    return found


def _is_opaque(value: Any) -> bool:
    """What is not kept with a module, or is an engine's own, which changes as the module is tried."""
    return isinstance(value, _OPAQUE) or type(value).__module__.startswith("plrvo.training.")


def _slots(value: Any) -> dict[str, Any]:
    return {name: getattr(value, name) for name in _slot_names(value) if hasattr(value, name)}


def _slot_names(value: Any) -> tuple[str, ...]:
    kind: Any = type(value)
    return _slots_of_class(kind)


@functools.lru_cache(maxsize=4096)
def _slots_of_class(kind: type) -> tuple[str, ...]:
    """A class has the slots that it was made with."""
    found = []
    for base in kind.__mro__:
        names = vars(base).get("__slots__", ())
        for name in (names,) if isinstance(names, str) else names:
            found.append(f"_{base.__name__.lstrip('_')}{name}" if name[:2] == "__" != name[-2:] else name)
    return tuple(name for name in found if name not in ("__dict__", "__weakref__"))


def _undo(value: Any) -> Iterator[Callable[[], None]]:
    """What puts the contents of one object back; nothing is written to that has not changed."""
    if isinstance(value, nn.Parameter):
        return  # of a module beside this one: large, and no pass may change it
    if isinstance(value, Tensor):
        if not value.is_meta and value.layout in (torch.strided, torch.sparse_coo):
            version = None if value.is_inference() else value._version
            yield functools.partial(_copy_tensor, value, value.detach().clone(), version)
    elif isinstance(value, np.ndarray):
        if value.flags.writeable:
            yield functools.partial(np.copyto, value, value.copy())
    elif isinstance(value, (array.array, memoryview)):
        if not isinstance(value, memoryview) or not value.readonly:
            yield functools.partial(_rewrite, value, bytes(value))
    elif isinstance(value, dict):
        yield functools.partial(_fill, value, dict(value))
    elif isinstance(value, (list, deque, set, bytearray)):
        yield functools.partial(_refill, value, list(value))
    if isinstance(getattr(value, "__dict__", None), dict) and not isinstance(value, Tensor):
        yield functools.partial(_fill, vars(value), dict(vars(value)))
    if _slot_names(value) and not isinstance(value, (Tensor, tuple)):
        yield functools.partial(_set_slots, value, _slots(value))


def _copy_tensor(t: Tensor, kept: Tensor, version: int | None) -> None:
    """With the count of its changes, so that it is known for the same."""
    if t.shape != kept.shape:
        return
    if tensor_bits(t) != tensor_bits(kept):
        t.detach().copy_(kept)
    if version is not None and t._version != version:
        torch._C._autograd._unsafe_set_version_counter((t,), (version,))


def _fill(held: dict[Any, Any], kept: dict[Any, Any]) -> None:
    if len(held) == len(kept) and all(a is b and held[a] is kept[b] for a, b in zip(list(held), kept, strict=True)):
        return
    kind: Any = OrderedDict if isinstance(held, OrderedDict) else dict  # not a Counter's update
    kind.clear(held)
    for key, value in kept.items():
        kind.__setitem__(held, key, value)


def _refill(held: Any, kept: list[Any]) -> None:
    if len(held) == len(kept) and all(a is b for a, b in zip(list(held), kept, strict=True)):
        return
    held.clear()
    held.update(kept) if isinstance(held, set) else held.extend(kept)


def _rewrite(held: Any, kept: bytes) -> None:
    if bytes(held) != kept:
        if isinstance(held, array.array):
            held[:] = array.array(held.typecode, kept)
        else:
            held.cast("B")[:] = kept


def _set_slots(value: Any, kept: dict[str, Any]) -> None:
    for name in _slots(value).keys() - kept.keys():
        object.__delattr__(value, name)
    for name, item in kept.items():
        if getattr(value, name) is not item:
            object.__setattr__(value, name, item)
