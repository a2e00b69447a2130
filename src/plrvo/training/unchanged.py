"""What the passes of a module may leave behind in it: whatever depends neither on examples nor on how many there are.

Parameters are the optimizer's alone: a pass that changes one is refused. Buffers and attributes may change in a pass
(counters, tables for a length). Whether that depends on the examples is tried, on a few rows, from every state that a
pass begins in: passes with other rows, and with one row more, must leave the same behind, and so must the pass itself
with all rows of the batch. Going back is tried likewise, with other gradients: hooks on gradients write as well.
"""

from __future__ import annotations

import secrets
import warnings
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.utils import _python_dispatch

from plrvo.training.call import Call
from plrvo.training.kept import SMALL, Digest
from plrvo.training.sharded import Whole
from plrvo.training.state import State, seed_torch, sums
from plrvo.training.structure import tensors_in
from plrvo.validate import InvalidArgument

_Mode: Any = _python_dispatch.TorchDispatchMode  # which has no types

_VALUES_EVERY = 16  # one in so many passes is looked at by value: writes to `.data` leave no other trace
EVERY_PASS = "every pass, even with the same examples (a clock?)"  # and so perhaps not with them
_FEW = 4  # rows that are tried
_FACTOR = 2.0**13  # between gradients that are tried: some hooks look at large ones only


class _Left(NamedTuple):
    """What passes over a few rows leave behind."""

    forward: frozenset[str] = frozenset()  # what they change
    backward: frozenset[str] = frozenset()  # what changes on the way back
    values: Digest | None = None  # all that is kept after the pass
    drawn: frozenset[str] = frozenset()  # what of it is drawn at random


class Unchanged:
    """Sees to it that training passes change only what passes with other examples change in the same way.

    A pass begins only in a state in which a few rows were tried: whenever the last one has left another state (or the
    caller has), rows are tried once more.
    """

    def __init__(self, module: nn.Module, shards: Whole | None = None) -> None:
        self._module, self._shards = module, shards or Whole()
        self._left: _Left | None = None  # what may be left behind; None: anything
        self._tried: Digest | None = None
        self._longest: list[list[int]] = []

    def begin(self, call: Call | None, on_try: Callable[[bool], None]) -> None:
        """Of a pass without examples (None) nothing depends on them."""
        self._by_value = self._tried is None or secrets.randbelow(_VALUES_EVERY) == 0
        kept = self._kept(values=False)
        if call is None:
            self._left = self._tried = None
        else:
            longer = self._is_longer(call)  # than all before: tables grow with it
            if self._left is None or self._tried is None or longer or self._tried.differing(kept):
                on_try(True)
                try:
                    # Where nothing changes on the way back, that is seen in every step, and need not be tried again.
                    go_back = self._left is None or longer or bool(self._left.backward)
                    self._left = _left_behind(self._module, call, go_back=go_back)
                finally:
                    on_try(False)
                kept = self._kept(values=False)
            self._tried = kept
        self._before = self._kept() if self._by_value else kept, self._marks()

    def end(self) -> None:
        changed = self._changed()
        if self._left is None:
            return
        self._refuse(changed - self._left.forward, "forward")
        if changed and self._left.values is not None:
            self._refuse(Digest(self._module).differing(self._left.values) - self._left.drawn, "forward")

    def begin_backward(self) -> None:
        self._before = self._kept(), self._marks()

    def end_backward(self) -> None:
        changed = self._changed()
        if self._left is not None:
            self._refuse(changed - self._left.backward, "backward")

    def _refuse(self, names: frozenset[str] | set[str], where: str) -> None:
        if names:
            refuse_dependent(self._module, min(names), where)

    def _changed(self) -> set[str]:
        """What is kept otherwise than before."""
        before, weights = self._before
        refuse_parameters(self._module, weights, self._marks())
        return self._kept().differing(before)

    def _is_longer(self, call: Call) -> bool:
        """In any dimension but that of the rows."""
        sizes = [
            [n for d, n in enumerate(t.shape) if d != call.dimension or not call.has_rows(t)] for t in call.tensors()
        ]
        if [len(s) for s in sizes] != [len(s) for s in self._longest]:
            self._longest = [[0] * len(s) for s in sizes]
        pairs = list(zip(sizes, self._longest, strict=True))
        self._longest = [list(map(max, now, most)) for now, most in pairs]
        return any(a > b for now, most in pairs for a, b in zip(now, most, strict=True))

    def _kept(self, values: bool | None = None) -> Digest:
        with self._shards.at_rest():
            return Digest(self._module, identity=True, values=self._by_value if values is None else values)

    def _marks(self) -> dict[str, Any]:
        """By name what changes with a parameter: which it is, how often written to, and its sum."""
        with self._shards.at_rest():
            parameters = dict(self._module.named_parameters())
        marks: dict[str, Any] = {name: (id(p), p._version) for name, p in parameters.items()}
        if self._by_value:
            small = {name: p for name, p in parameters.items() if p.numel() <= SMALL}
            marks |= {name: (marks[name], total) for name, total in sums(small).items()}
        return marks


def _left_behind(module: nn.Module, call: Call, *, go_back: bool) -> _Left:
    """What passes leave behind, of a few rows or (where the module takes no few) all; refused if it depends on them."""
    state = State(module)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the pass itself will say what there is to say
            for rows in (call.some(_FEW), call):
                found = _Passes(module, state, go_back).compared(rows)
                if found is not None:
                    return found
            return _Left()  # its own error will come
    finally:
        state.restore()


class _Passes:
    """Passes of a module, always from the same state and with the same draws, and what they have changed so far."""

    def __init__(self, module: nn.Module, state: State, go_back: bool) -> None:
        self._module, self._state, self._goes_back = module, state, go_back
        self._before = Digest(module, identity=True)
        self._forward, self._backward = set[str](), set[str]()
        self._gradients = secrets.randbits(60)

    def compared(self, call: Call) -> _Left | None:
        """None if the module takes no such rows."""
        first = self._leaves(call)
        if first is None:
            return None
        drew, tried = self._state.drew, False
        others = (call.copies(0), call.copies(call.rows - 1)) if call.rows > 1 else (call.blank(),)
        for other, factor in zip(others, (_FACTOR, 1 / _FACTOR), strict=False):
            then = self._leaves(other, factor)
            if then is not None:
                tried = True
                self._refuse_where_apart(call, first, then)
        more = self._leaves(call.one_more())
        if more is not None:
            self._refuse_where_apart(call, first, more, "the number of rows")
        if not tried:
            return _Left()
        again = self._leaves(call, seed=secrets.randbits(32)) if drew else None
        drawn = again[0].differing(first[0]) if again is not None else set[str]()
        return _Left(frozenset(self._forward), frozenset(self._backward), first[0], frozenset(drawn))

    def _leaves(self, call: Call, factor: float = 1.0, seed: int | None = None) -> tuple[Digest, Digest] | None:
        """What the module keeps after a pass, and after the way back; None where it takes no such rows."""
        try:
            with self._state.fresh(seed) as used, torch.enable_grad(), _DrawsApart(used):
                output = self._module(*call.args, **call.kwargs)
                between, forward = Digest(self._module, identity=True), self._state.now()
                self._forward |= between.differing(self._before)
                if not self._goes_back:
                    return forward, forward
                _go_back(self._module, output, factor, self._gradients)
                self._backward |= between.differing(Digest(self._module, identity=True))
                return forward, self._state.now()
        except InvalidArgument:
            raise
        except Exception:  # it takes no such rows
            return None

    def _refuse_where_apart(self, call: Call, first: Any, then: Any, what: str = "them") -> None:
        for where, one, other in zip(("forward", "backward"), first, then, strict=True):
            if names := one.differing(other):
                again = self._leaves(call)
                if again is not None and any(a.differing(b) & names for a, b in zip(first, again, strict=True)):
                    what = EVERY_PASS
                refuse_dependent(self._module, min(names), where, what)


class _DrawsApart(_Mode):
    """Every operation that draws begins a sequence of its own, whatever those before it have drawn.

    One row more makes dropout draw more: what is drawn after it would be another number.
    """

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._next = seed

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if torch.Tag.nondeterministic_seeded in function.tags:
            self._next += 1
            seed_torch(self._next)
        return function(*args, **(kwargs or {}))


def _go_back(module: nn.Module, output: Any, factor: float, seed: int) -> None:
    """From gradients at random, others for each factor."""
    learned = [t for t in tensors_in(output) if t.requires_grad]
    parameters = [p for p in module.parameters() if p.requires_grad]
    if learned and parameters:
        generator = torch.Generator().manual_seed(seed + int(_FACTOR * factor))
        gradients = [(factor * torch.randn(t.shape, generator=generator)).to(t) for t in learned]
        torch.autograd.grad(learned, parameters, gradients, allow_unused=True)


def refuse_dependent(module: nn.Module, name: str, where: str = "forward", what: str = "them") -> None:
    """The refusal of a buffer or an attribute that changes with examples."""
    raise InvalidArgument(
        "module",
        type(module).__name__,
        f"buffers and attributes that do not depend on examples, nor on how many there are; {name} changes with {what} "
        f"in {where}, and would be released without noise (running statistics: track_running_stats=False, or eval() "
        "for that layer; counts: of passes, not of rows; tables: by length, not by the number of rows; values to look "
        "at, clocks: return them, or keep them outside of the module)",
    )


def refuse_parameters(module: nn.Module, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Unless what tells a change of each is as it was."""
    for name in sorted(name for name, mark in now.items() if before.get(name) != mark):
        raise InvalidArgument(
            "module",
            type(module).__name__,
            f"parameters that only the optimizer changes; a pass changes {name}, without noise (statistics of "
            "examples, and Embedding's max_norm, cannot be private; an average of weights may be updated after "
            "optimizer.step())",
        )
