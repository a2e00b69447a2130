"""What a module keeps beside its attributes: where its own code can write to, and most looks do not go.

That is: objects that are registered as hooks, attributes of parameters, attributes of its classes, and what functions
of those classes refer to by name (defaults, closures, globals of their file, and of functions that they call by name).
Classes and functions of libraries are not looked at: they keep nothing of a user's. Of closures and globals, numbers,
tensors, arrays and containers are; objects are not, which may be the whole program (a trainer with its data). A plain
function that is registered as a hook may write to the outside, as many do to look at values: if that comes
back into outputs, they change with other examples (`probe`).
"""

from __future__ import annotations

import array
import functools
import sys
import types
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor, nn

from plrvo.training.sharded import is_of_fsdp

_LIBRARIES = frozenset(sys.stdlib_module_names) | {
    "accelerate", "einops", "numpy", "opacus", "pandas", "peft", "plrvo", "safetensors", "scipy", "timm", "tokenizers",
    "torch", "torchaudio", "torchvision", "transformers",
}  # fmt: skip
_HOOKS = (
    "_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks", "_state_dict_hooks",
)  # fmt: skip
# What Opacus puts on parameters, and torch on those of its other kinds of tensors.
_OF_LIBRARIES = {"grad_sample", "summed_grad", "_forward_counter", "max_batch_len", "_is_param"}
_FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType)
_DATA = (int, float, complex, str, bytes, Tensor, np.ndarray, np.generic, bytearray, array.array, memoryview)
_CONTAINERS = (dict, list, tuple, set, frozenset, deque)
_LONG = 1000  # items of a container (a vocabulary), beyond which it is told by its length


class Place(NamedTuple):
    """A name for it, what is there, and what puts another value there."""

    name: str
    value: Any
    put: Callable[[Any], None]


Layers = Sequence[tuple[str, nn.Module]]  # with their paths


def layers_of(module: nn.Module) -> Layers:
    """What `named_modules` gives, in its order, without its nested generators: it is asked for many times a step."""
    found, seen = list[tuple[str, nn.Module]](), set[int]()
    waiting = [("", module)]
    while waiting:
        path, m = waiting.pop()
        if id(m) not in seen:
            seen.add(id(m))
            found.append((path, m))
            within = f"{path}." if path else ""
            waiting += [(within + name, child) for name, child in reversed(m._modules.items()) if child is not None]
    return found


def places(layers: Layers) -> Iterator[Place]:
    """Everything of this kind that belongs to a module or to one of its layers."""
    seen: set[Any] = set()
    for path, m in layers:
        yield from _of_layer(path, m)
        its_class: Any = type(m)
        for kind in _own_classes(its_class):
            if kind not in seen:
                seen.add(kind)
                yield from _of_class(kind, seen)


def _of_layer(path: str, m: nn.Module) -> Iterator[Place]:
    # Four times a step: most layers have no hooks, and most of those that there are are ours.
    for kind in _HOOKS:
        if hooks := getattr(m, kind):
            yield from _of_hooks(f"{path}.{kind}".lstrip("."), hooks)
    for name, p in m._parameters.items():
        if p is not None:
            full = f"{path}.{name}".lstrip(".")
            if own := vars(p):
                for key, value in own.items():
                    if key not in _OF_LIBRARIES:
                        yield Place(f"{full}.{key}", value, functools.partial(own.__setitem__, key))
            if p._backward_hooks:
                yield from _of_hooks(f"{full}._backward_hooks", p._backward_hooks)


def _of_hooks(name: str, hooks: Mapping[Any, Any]) -> Iterator[Place]:
    for i, hook in enumerate(hooks.values()):
        if not isinstance(hook, _FUNCTIONS) and not _is_ours(hook):
            yield Place(f"{name}[{i}]", hook, lambda value: None)


def plain_hooks(layers: Layers) -> Iterator[tuple[str, Any]]:
    """Functions of the user's that are registered as hooks, which `places` leaves out."""
    for path, m in layers:
        for kind in _HOOKS:
            for i, hook in enumerate(getattr(m, kind).values()):
                if isinstance(hook, types.FunctionType) and is_of_the_user(hook):
                    yield f"{path}.{kind}[{i}]".lstrip("."), hook


def is_of_the_user(value: Any) -> bool:
    """Whether it comes from no library."""
    return _library(value) not in _LIBRARIES


def _is_ours(hook: Any) -> bool:
    """Or FSDP's, which keeps no more than parameters."""
    while isinstance(hook, functools.partial):
        hook = hook.func
    kinds: list[Any] = [type(getattr(hook, "__self__", None)), type(hook)]
    return any(is_class_of_ours(kind) for kind in kinds) or _library(hook) == "plrvo" or is_of_fsdp(hook)


@functools.lru_cache(maxsize=4096)
def is_class_of_ours(kind: type) -> bool:
    """Whether plrvo has made it."""
    return _library(kind) == "plrvo"


def _library(value: Any) -> str:
    return str(getattr(value, "__module__", None) or "").partition(".")[0]


@functools.lru_cache(maxsize=4096)
def _own_classes(kind: type) -> tuple[type, ...]:
    return tuple(base for base in kind.__mro__ if _library(base) not in _LIBRARIES)


def _of_class(kind: type, seen: set[Any]) -> Iterator[Place]:
    for key, value in list(vars(kind).items()):
        function = getattr(value, "__func__", getattr(value, "fget", value))
        if isinstance(function, types.FunctionType):
            yield from _of_function(function, seen)
        elif not (key.startswith("__") or callable(value) or hasattr(value, "__get__")):
            yield Place(f"{kind.__qualname__}.{key}", value, functools.partial(setattr, kind, key))


def _of_function(function: types.FunctionType, seen: set[Any]) -> Iterator[Place]:
    """What it may write to by name."""
    if function in seen or _library(function) in _LIBRARIES:
        return
    seen.add(function)
    name = function.__qualname__
    kept = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values(), function.__dict__]
    for i, value in enumerate(kept):
        if isinstance(value, _CONTAINERS) and value:
            yield Place(f"{name}, default {i}", _short(value), lambda value: None)
    found: list[tuple[str, Any, Callable[[Any], None]]] = []
    for variable, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            found.append(
                (f"{variable} of {name}", cell.cell_contents, functools.partial(setattr, cell, "cell_contents"))
            )
        except ValueError:  # a name that has no value yet
            continue
    own = function.__globals__
    for variable in _names(function.__code__):
        if variable in own and not variable.startswith("__"):
            found.append((f"global {variable}", own[variable], functools.partial(own.__setitem__, variable)))
    for described, value, put in found:
        if isinstance(value, types.FunctionType):
            yield from _of_function(value, seen)
        elif isinstance(value, (*_DATA, *_CONTAINERS)):
            short = _short(value)
            yield Place(described, short, put if short is value else lambda value: None)


def _short(value: Any) -> Any:
    return (id(value), len(value)) if isinstance(value, _CONTAINERS) and len(value) > _LONG else value


@functools.lru_cache(maxsize=4096)
def _names(code: types.CodeType) -> tuple[str, ...]:
    """Those that its code, and code inside of it, looks up."""
    inside = [name for c in code.co_consts if isinstance(c, types.CodeType) for name in _names(c)]
    return tuple(sorted({*code.co_names, *inside}))
