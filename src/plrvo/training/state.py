"""What a module keeps from one pass to the next: parameters, buffers, and numbers in attributes of its own.

All of it is copied and written with the module, and only parameters that train get noise. So nothing of it may depend
on examples. Parameters are the optimizer's alone: a pass that changes one is refused. Buffers and attributes may change
in a pass (counters, tables for a length), but not with the examples: the probe compares what two passes leave behind.
"""

from __future__ import annotations

import random
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from plrvo.validate import InvalidArgument

_OF_TORCH = vars(nn.Module()).keys()
_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_VALUES_EVERY = 16  # one in so many passes is looked at by value: writes to `.data` leave no other trace
_SMALL = 1 << 16  # numbers in a tensor that is looked at by value in training


class State:
    """Buffers, attributes, modes and generators of a module, to start every pass from."""

    def __init__(self, module: nn.Module) -> None:
        self._module = module
        self._buffers = {name: b.detach().clone() for name, b in module.named_buffers()}
        self._attributes = [(m, key, value, _copied(value)) for m, key, _, value in _attributes(module)]
        self._parameters = _sums(dict(module.named_parameters()))
        self._modes = [(m, m.training) for m in module.modules()]
        self._device = next((p.device for p in module.parameters()), torch.device("cpu"))
        self.drew = False  # whether the pass that came last has drawn random numbers
        self.reseed()

    def reseed(self) -> None:
        """From now on passes draw from another seed, which nobody can have reckoned with."""
        self._seed = secrets.randbits(32)

    @contextmanager
    def fresh(self, seed: int | None = None) -> Iterator[None]:
        """As at the beginning, with generators in the same state each time, and as they were afterwards."""
        self.restore()
        devices = [self._device] if self._device.type == "cuda" else []
        # Python's and NumPy's global generators too: a module that draws from them is nobody's business but its own.
        python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002
        try:
            with torch.random.fork_rng(devices=devices):
                seed = self._seed if seed is None else seed
                torch.manual_seed(seed)
                random.seed(seed)
                np.random.seed(seed)  # noqa: NPY002
                before = _generators()
                yield
                self.drew = bool(devices) or before != _generators()
        finally:
            random.setstate(python)
            np.random.set_state(numpy)  # noqa: NPY002

    def now(self) -> dict[str, list[Tensor]]:
        """Buffers and attributes, as they are at the moment."""
        return {name: [t.detach().clone() for t in held] for name, held in _held(self._module).items()}

    def check_parameters(self) -> None:
        """Refuse a module whose passes have changed a parameter."""
        now = _sums(dict(self._module.named_parameters()))
        for name, before in self._parameters.items():
            if now.get(name) != before:
                _refuse_parameter(self._module, name)

    def restore(self) -> None:
        with torch.no_grad():
            for name, b in self._module.named_buffers():
                kept = self._buffers.get(name)
                if kept is not None and kept.shape == b.shape:
                    b.copy_(kept)
            known = {(id(m), key) for m, key, _, _ in self._attributes}
            for m, key, _, _ in list(_attributes(self._module)):
                if (id(m), key) not in known:
                    del vars(m)[key]  # the pass has made it, and will make it again
            for m, key, value, kept in self._attributes:
                vars(m)[key] = _put_back(value, kept)
        for m, training in self._modes:
            m.training = training


class Unchanged:
    """Sees to it that training passes change nothing but what the first one, which was tried out, has changed."""

    def __init__(self, module: nn.Module) -> None:
        self._module = module
        self._may_change: set[str] | None = None
        self._before: dict[str, Any] = {}

    def __reduce__(self) -> Any:
        return Unchanged, (nn.Module(),)

    def begin(self) -> None:
        self._by_value = self._may_change is None or secrets.randbelow(_VALUES_EVERY) == 0
        self._before = self._marks()

    def end(self, *, was_tried: bool) -> None:
        changed = {name for name, mark in self._marks().items() if self._before.get(name) != mark}
        parameters = dict(self._module.named_parameters())
        for name in sorted(changed & parameters.keys()):
            _refuse_parameter(self._module, name)
        if self._may_change is None:
            if was_tried:
                self._may_change = changed
        elif changed - self._may_change:
            refuse_dependent(self._module, min(changed - self._may_change))

    def _marks(self) -> dict[str, Any]:
        """By name, what changes with a tensor: which it is, how often it was written to, and its sum."""
        tensors: dict[str, Any] = {**dict(self._module.named_parameters()), **dict(self._module.named_buffers())}
        marks: dict[str, Any] = {name: (id(t), t._version) for name, t in tensors.items()}
        if self._by_value:
            small = {name: t for name, t in tensors.items() if t.numel() <= _SMALL}
            for name, held in _held(self._module).items():
                if name not in tensors:
                    small.update({f"{name}[{i}]": t for i, t in enumerate(held) if t.numel() <= _SMALL})
            marks |= {name: (marks.get(name), total) for name, total in _sums(small).items()}
        return marks


def refuse_dependent(module: nn.Module, name: str) -> None:
    """The refusal of a buffer or an attribute that changes with examples."""
    raise InvalidArgument(
        "module",
        type(module).__name__,
        f"buffers and attributes that do not depend on examples; {name} changes with them in forward, and would be "
        "released without noise (running statistics: track_running_stats=False, or eval() for that layer; values to "
        "look at: return them, or keep them outside of the module)",
    )


def _refuse_parameter(module: nn.Module, name: str) -> None:
    raise InvalidArgument(
        "module",
        type(module).__name__,
        f"parameters that only the optimizer changes; forward changes {name}, without noise (statistics of examples, "
        "and Embedding's max_norm, cannot be private; an average of weights may be updated after optimizer.step())",
    )


def _attributes(module: nn.Module) -> Iterator[tuple[nn.Module, str, str, Any]]:
    """(module, key, name, value) of all attributes that hold numbers, other than parameters and buffers."""
    parameters = {id(p) for p in module.parameters()}
    for path, m in module.named_modules():
        for key, value in list(vars(m).items()):
            if key in _OF_TORCH or not isinstance(value, (Tensor, float, np.ndarray, list, tuple, Mapping)):
                continue
            if any(id(t) not in parameters for t in _numbers_in(value)):
                yield m, key, f"{path}.{key}".lstrip("."), value


def _held(module: nn.Module) -> dict[str, list[Tensor]]:
    found = {name: [b] for name, b in module.named_buffers()}
    found.update({name: _numbers_in(value) for _, _, name, value in _attributes(module)})
    return found


def _numbers_in(value: Any) -> list[Tensor]:
    """As tensors; whole numbers and flags, which say how a layer is made, are left out."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, float):
        return [torch.tensor(value, dtype=torch.float64)]
    if isinstance(value, np.ndarray):
        return [torch.from_numpy(value)] if value.dtype.kind in "fiub" else []
    if isinstance(value, Mapping):
        value = list(value.values())
    return [t for item in value for t in _numbers_in(item)] if isinstance(value, (list, tuple)) else []


def _copied(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().clone()
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, dict):
        return {key: (item, _copied(item)) for key, item in value.items()}
    return [(item, _copied(item)) for item in value] if isinstance(value, list) else value


def _put_back(value: Any, kept: Any) -> Any:
    """The same object with the values that were kept of it."""
    if isinstance(value, Tensor) and value.shape == kept.shape:
        value.detach().copy_(kept)
    elif isinstance(value, np.ndarray) and value.flags.writeable:
        value[...] = kept
    elif isinstance(value, list):
        value[:] = [_put_back(*pair) for pair in kept]
    elif isinstance(value, dict):
        value.clear()
        value.update({key: _put_back(*pair) for key, pair in kept.items()})
    return value


def _sums(tensors: dict[str, Tensor]) -> dict[str, int]:
    """The sum of each tensor's bits, read as integers: a change of any number changes it."""
    return {
        name: 0 if t.is_meta or t.layout != torch.strided else int(_bits(t).sum(dtype=torch.int64))
        for name, t in tensors.items()
    }


def _bits(t: Tensor) -> Tensor:
    t = torch.view_as_real(t.detach()) if t.is_complex() else t.detach()
    return t if t.dtype == torch.bool else t.contiguous().view(_INTEGERS[t.element_size()])


def _generators() -> Any:
    numpy: Any = np.random.get_state()  # noqa: NPY002
    return torch.get_rng_state().numpy().tobytes(), random.getstate(), numpy[1].tobytes(), numpy[2:]
