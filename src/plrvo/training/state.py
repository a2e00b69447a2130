"""What a module keeps from one pass to the next: parameters, buffers, and whatever its attributes lead to.

All of it is copied and written with the module, and only parameters that train get noise. So nothing of it may depend
on examples. Parameters are the optimizer's alone: a pass that changes one is refused. Buffers and attributes may change
in a pass (counters, tables for a length), but not with the examples: passes with other rows of the same sizes must
leave the same behind. That is tried from every state that a pass has left (`Unchanged`), not once and for all.
"""

from __future__ import annotations

import random
import secrets
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from plrvo.training.call import Call
from plrvo.training.kept import SMALL, Contents, Digest
from plrvo.validate import InvalidArgument

_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_VALUES_EVERY = 16  # one in so many passes is looked at by value: writes to `.data` leave no other trace
_FEW = 4  # rows that are tried where the state is another one


class State:
    """What a module keeps, modes and generators, to start every pass from."""

    def __init__(self, module: nn.Module) -> None:
        self._module = module
        self._contents = Contents(module)
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

    def now(self) -> Digest:
        """What the module keeps, as it is at the moment."""
        return Digest(self._module)

    def check_parameters(self) -> None:
        """Refuse a module whose passes have changed a parameter."""
        now = _sums(dict(self._module.named_parameters()))
        for name, before in self._parameters.items():
            if now.get(name) != before:
                _refuse_parameter(self._module, name)

    def restore(self) -> None:
        with torch.no_grad():
            self._contents.put_back()
        for m, training in self._modes:
            m.training = training


class Unchanged:
    """Sees to it that training passes change only what passes with other examples change in the same way.

    A pass begins only in a state in which a few rows were tried: whenever the last one has left another state (or the
    caller has), rows are tried once more. What changes in a pass and did not in the try is refused.
    """

    def __init__(self, module: nn.Module) -> None:
        self._module = module
        self._may_change: set[str] | None = set()
        self._tried: Digest | None = None
        self._largest: list[list[int]] = []

    def __reduce__(self) -> Any:
        return Unchanged, (nn.Module(),)

    def begin(self, call: Call | None, on_try: Callable[[bool], None]) -> None:
        """Of a pass without examples (None) nothing depends on them."""
        self._by_value = self._tried is None or secrets.randbelow(_VALUES_EVERY) == 0
        if call is None:
            self._may_change = None
            self._tried = None
        else:
            larger = self._is_larger(call)  # than all before: tables grow with it
            if (
                larger
                or self._tried is None
                or self._tried.differing(Digest(self._module, identity=True, values=False))
            ):
                on_try(True)
                try:
                    self._may_change = changed_by(self._module, call if larger else call.some(_FEW), call)
                finally:
                    on_try(False)
                self._tried = Digest(self._module, identity=True, values=False)
        self._before, self._weights = self._now()

    def end(self) -> None:
        after, weights = self._now()
        for name in sorted(name for name, mark in weights.items() if self._weights.get(name) != mark):
            _refuse_parameter(self._module, name)
        changed = after.differing(self._before)
        if self._may_change is not None and changed - self._may_change:
            refuse_dependent(self._module, min(changed - self._may_change))

    def _is_larger(self, call: Call) -> bool:
        sizes = [list(t.shape) for t in call.tensors()]
        if [len(s) for s in sizes] != [len(s) for s in self._largest]:
            self._largest = [[0] * len(s) for s in sizes]
        pairs = list(zip(sizes, self._largest, strict=True))
        self._largest = [list(map(max, now, most)) for now, most in pairs]
        return any(a > b for now, most in pairs for a, b in zip(now, most, strict=True))

    def _now(self) -> tuple[Digest, dict[str, Any]]:
        """What is kept, and by name what changes with a parameter: which it is, how often written to, and its sum."""
        parameters = dict(self._module.named_parameters())
        marks: dict[str, Any] = {name: (id(p), p._version) for name, p in parameters.items()}
        if self._by_value:
            small: dict[str, Tensor] = {name: p for name, p in parameters.items() if p.numel() <= SMALL}
            marks |= {name: (marks[name], total) for name, total in _sums(small).items()}
        return Digest(self._module, identity=True, values=self._by_value), marks


def changed_by(module: nn.Module, *calls: Call) -> set[str]:
    """What passes change, by the first of the calls that the module takes; refused where it depends on the rows."""
    state = State(module)
    before, changed = Digest(module, identity=True), set[str]()

    def leaves_behind(call: Call) -> Digest | None:
        nonlocal changed
        try:
            with state.fresh(), torch.no_grad():
                module(*call.args, **call.kwargs)
                changed |= before.differing(Digest(module, identity=True))
                return state.now()
        except InvalidArgument:
            raise
        except Exception:  # it takes no such rows
            return None

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for call in calls:
                first = leaves_behind(call)
                if first is None:
                    continue
                others = (call.copies(0), call.copies(call.rows - 1)) if call.rows > 1 else (call.blank(),)
                found = [then for then in map(leaves_behind, others) if then is not None]
                for then in found:
                    if first.differing(then):
                        refuse_dependent(module, min(first.differing(then)))
                return changed if found else set()
            return set()  # its own error will come
    finally:
        state.restore()


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
