"""A module whose parameters are shared out among processes: FSDP2, `torch.distributed.fsdp.fully_shard`.

Each process has a share of every parameter, gathers those of a unit while that unit computes, and lets go of them
afterwards. Examples are shared out as with whole modules: an example is in one process, which has all of its gradient,
so norms, clips and sensitivity are those of one process. A step goes like this:

1. FSDP gathers parameters for the pass and the way back. Layers compute with detached ones (`clipping.module`), so that
   autograd has no gradient for FSDP to reduce; the book has what clipped sums are made of.
2. Parameter by parameter, a process computes the clipped sum of its own examples, whole; the sums of all processes are
   added up and scattered, so that each keeps its share of the total (`ShardedMixin`).
3. Each process adds noise to its shares. All have the noise's keystream of the first, draw one vector of noise
   together, and each takes what falls on its shares: so a scale that all coordinates have in common is one scale,
   no number is used twice, and what is released is what one process would release from that stream.

What this module is about is a fourth thing, the tries. A process tries a module when its own examples ask for it
(`watch`), in passes whose number depends on them, and FSDP's passes are collective: all processes must make the same.
So a try has no part of FSDP in it. Before a pass, after it and before the way back, processes have one *turn*: they
vote, once, whether any of them wants to try the module. Then all gather the parameters, once; whoever has asked puts
whole plain ones in the place of shares, silences FSDP's hooks and tries by itself, as if there were no others; the rest
gather and let go. They vote again at its end: what one refuses is an error in all of them, and nobody is left waiting.

A process that tries therefore needs room for the whole module, on its first batches and now and then later on.

Between the passes, parameters are known by the shares: those are what the optimizer has and what the account's
dimension counts (`numel` of a share is that of the whole), and no pass writes to them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from enum import IntEnum
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule

from plrvo.validate import InvalidArgument

_HOOKS = ("_forward_pre_hooks", "_forward_hooks")


class RefusedElsewhere(RuntimeError):
    """Another process has refused the pass: its own error says why. Nothing of it was released."""


class _Vote(IntEnum):
    """What a process has to say in a turn; the largest counts."""

    nothing = 0
    wants_to_try = 1
    has_failed = 2


class Whole:
    """A module that is in one piece: nothing to gather, and nobody to ask."""

    is_sharded = False

    @contextmanager
    def turn(self) -> Iterator[None]:
        """A part of a pass in which a process may try the module: all have it at the same point of their passes."""
        yield

    def ask(self) -> None:
        """Before a try, in a turn: from here to its end parameters are plain and whole."""

    @contextmanager
    def whole(self) -> Iterator[None]:
        """With plain whole parameters; all processes call it together."""
        yield

    @contextmanager
    def at_rest(self) -> Iterator[None]:
        """With the parameters of which the optimizer knows, as they are between passes."""
        yield

    def rest(self) -> None:
        """Let go of what an earlier pass has gathered, such as one without a way back."""

    def known(self, layer: nn.Module, parameter: nn.Parameter) -> nn.Parameter:
        """The optimizer's, for one that a layer has computed with."""
        return parameter

    def is_unit(self, layer: nn.Module) -> bool:
        """Whether its own hooks gather its parameters."""
        return False

    @contextmanager
    def quiet(self, outputs: Sequence[Tensor]) -> Iterator[None]:
        """With gradients of a loss at outputs that are nobody's, and for which nothing is gathered."""
        yield

    def begin_backward(self) -> None:
        """Have no gradient on parameters, so that one that comes is seen."""

    def end_backward(self) -> None:
        """Refuse a gradient that autograd has computed for a parameter, which is not clipped."""


class Shards(Whole):
    """Of one module; made while its parameters are shared out."""

    is_sharded = True

    def __init__(self, module: nn.Module) -> None:
        self._module = module
        self.rest()
        self._own = {(m, n): p for m in module.modules() for n, p in m._parameters.items() if p is not None}
        self._names = {p: name for name, p in module.named_parameters()}
        self._answer: _Vote | None = None  # of all, in the turn under way
        self._until: ExitStack | None = None  # its end

    @contextmanager
    def turn(self) -> Iterator[None]:
        self._answer, error = None, None
        try:
            with ExitStack() as self._until:
                yield
        except BaseException as refused:
            error = refused
        self._until = None
        own = _Vote.nothing if error is None else _Vote.has_failed
        if self._answer is None:
            self._answer = self._vote(own)
            if self._answer is _Vote.wants_to_try:
                for _ in self._gathered():
                    pass  # for those who want them
        if self._answer is _Vote.wants_to_try:
            self._answer = self._vote(own)
        if error is not None:
            raise error
        self._refuse_if_failed()

    def ask(self) -> None:
        if self._until is None:
            raise RuntimeError("a try outside of a turn: processes would wait for each other")
        if self._answer is None:
            self._answer = self._vote(_Vote.wants_to_try)
            self._refuse_if_failed()
            self._until.enter_context(self.whole())

    @contextmanager
    def whole(self) -> Iterator[None]:
        plain = dict(self._gathered())
        hooks = [getattr(m, kind) for m in self._module.modules() for kind in _HOOKS]
        with self._in_place({place: plain[p] for place, p in self._own.items()}), _silenced(hooks):
            yield

    @contextmanager
    def at_rest(self) -> Iterator[None]:
        with self._in_place(self._own):
            yield

    def rest(self) -> None:
        for m in self._module.modules():
            if isinstance(m, FSDPModule):
                m.reshard()

    def known(self, layer: nn.Module, parameter: nn.Parameter) -> nn.Parameter:
        if self._until is not None:  # in a try, in which the plain ones are asked for
            return parameter
        name = next(n for n, p in layer._parameters.items() if p is parameter)
        own = self._own[layer, name]
        if (own.shape, own.dtype) != (parameter.shape, parameter.dtype):
            raise InvalidArgument(
                "module", f"{self._names[own]} as {parameter.dtype} {tuple(parameter.shape)}", "fully_shard's defaults"
            )
        return own

    def is_unit(self, layer: nn.Module) -> bool:
        return any(is_of_fsdp(hook) for hook in layer._forward_pre_hooks.values())

    @contextmanager
    def quiet(self, outputs: Sequence[Tensor]) -> Iterator[None]:
        with _silenced([t._backward_hooks for t in outputs if t._backward_hooks]):
            yield

    def begin_backward(self) -> None:
        for p in self._names:
            p.grad = None

    def end_backward(self) -> None:
        found = [name for p, name in self._names.items() if p.grad is not None]
        self.begin_backward()
        if found:
            raise InvalidArgument(
                "module", found[0], "parameters that are used by calling their layer; it got a gradient without a clip"
            )

    def _vote(self, own: _Vote) -> _Vote:
        any_share: Any = next(iter(self._names))
        vote = torch.tensor(int(own), device=any_share.device)
        torch.distributed.all_reduce(vote, torch.distributed.ReduceOp.MAX, group=any_share.device_mesh.get_group())
        return _Vote(int(vote))

    def _refuse_if_failed(self) -> None:
        if self._answer is _Vote.has_failed:
            raise RefusedElsewhere("another process has refused this pass: see its own error; no step was taken")

    def _gathered(self) -> Iterator[tuple[nn.Parameter, nn.Parameter]]:
        """Plain whole parameters, one by one, in the same order everywhere."""
        for p in self._names:
            share: Any = p.detach()
            yield p, nn.Parameter(share.full_tensor(), requires_grad=p.requires_grad)

    @contextmanager
    def _in_place(self, parameters: dict[tuple[nn.Module, str], nn.Parameter]) -> Iterator[None]:
        before = {(m, name): m._parameters[name] for m, name in parameters}
        try:
            for (m, name), p in parameters.items():
                m._parameters[name] = p
            yield
        finally:
            for (m, name), earlier in before.items():
                m._parameters[name] = earlier


def shards_of(module: nn.Module) -> Whole:
    """What there is to know of how its parameters are shared out."""
    return Shards(module) if is_sharded(module) else Whole()


def is_sharded(module: nn.Module) -> bool:
    """Whether `fully_shard` was called for it, or for a layer of it."""
    return any(isinstance(m, FSDPModule) for m in module.modules())


def is_of_fsdp(hook: Any) -> bool:
    """Whether a hook is one of those that gather and let go."""
    return str(getattr(hook, "__module__", "")).startswith("torch.distributed.fsdp.")


@contextmanager
def _silenced(registers: Sequence[dict[int, Any]]) -> Iterator[None]:
    """Without FSDP's hooks; others stay in their order."""
    kept = [(hooks, key, hook) for hooks in registers for key, hook in hooks.items() if is_of_fsdp(hook)]
    try:
        for hooks, key, _ in kept:
            hooks[key] = _nothing
        yield
    finally:
        for hooks, key, hook in kept:
            hooks[key] = hook


def _nothing(*_: Any) -> None:
    """In the place of a hook."""
