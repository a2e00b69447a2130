"""Parameters that a module uses itself, beside its layers: positions, first tokens, scales of layers.

In a pass such a parameter is replaced by copies of it, one for each example, which broadcast against a batch as the
parameter does: (1, T, D) becomes (B, T, D), and (D) in a module on (B, T, D) becomes (B, 1, D). The gradient of each
copy is that example's. Copies let through only operations that keep examples apart (`copies`). Whether the module
computes the same with them is tried too: their gradients must add up to autograd's for the parameter. Where they do
not, or the pass fails, the module is computed once more for each example instead, as in the mode "hooks".
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from plrvo.training.clipping.again import by_replay
from plrvo.training.clipping.contributions import PerExample
from plrvo.training.clipping.copies import copies_of
from plrvo.training.clipping.layers import has_rules_for
from plrvo.training.clipping.module import (
    Book,
    Recorder,
    direct_owners,
    holders,
    own_parameters,
    refuse_within_itself,
)
from plrvo.training.clipping.precision import in_full_precision, wide
from plrvo.training.clipping.rows import Rows
from plrvo.training.clipping.samples import SamplesModule
from plrvo.training.structure import tensors_in

_CLOSE = 1e-3  # relative: rounding is far below, and a wrong copy far above


class _Shown(torch.autograd.Function):
    """Shows the gradient of copies; `handle` makes the pass come back to them."""

    @staticmethod
    def forward(ctx: Any, handle: Tensor, values: Tensor, show: Any) -> Tensor:
        ctx.show = show
        return values

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, None, None]:
        ctx.show(gradient)
        return None, None, None


class DirectModule(SamplesModule):
    """Keeps books of a module with parameters of its own; replays the owners that do not come out right with copies."""

    def _new_book(self) -> Book:
        return Book()

    def _recorders(self, m: nn.Module) -> list[tuple[str, nn.Module, Recorder]]:
        self._owners = dict(direct_owners(m))
        self._replaced: dict[nn.Module, list[tuple[nn.Module, dict[str, Any]]]] = {}
        self._failed: list[str] = []  # owners in which a pass has failed, from within
        self._reason = ""
        for name, owner in self._owners.items():
            leave = partial(self._leave, name, by_replay(self._dimension, self.loss_reduction))
            self._hooks += [
                owner.register_forward_pre_hook(partial(self._enter, name), with_kwargs=True),
                owner.register_forward_hook(leave, with_kwargs=True, always_call=True),
            ]
        recorders = super()._recorders(m)
        # Those that override what a layer of torch's does have that layer's parameters, which are no copies.
        self._replaying = {name for name, owner in self._owners.items() if has_rules_for(owner)}
        self._replayed |= {self._owners[name] for name in self._replaying}
        return recorders

    @property
    def replaying(self) -> list[str]:
        """Names of the owners that are computed once more for each example."""
        return sorted(self._replaying)

    @property
    def is_whole(self) -> bool:
        return "" in self._replaying

    def _within(self, name: str, m: nn.Module, covered: set[nn.Parameter]) -> Any:
        return super()._within(name, m, covered | {p for owner in self._owners.values() for p in own_parameters(owner)})

    def _enter(self, name: str, owner: nn.Module, args: Any, kwargs: Any) -> Any:
        if self._reason and not self.watch.is_trying:  # where warnings are not heard
            warnings.warn(
                f"grad_sample_mode: hooks instead of bookkeeping, which is faster: {self._reason}", stacklevel=3
            )
            self._reason = ""
        if any(_is_within(name, other) for other in self._replaying):
            return None
        if name in self._replaying:
            return self._detach_parameters(owner, args, kwargs)
        if self._is_recording():
            refuse_within_itself(owner, self._replaced)
            self._replaced[owner] = [(m, dict(m._parameters)) for m in holders(owner)]
            dimensions = max((t.ndim for t in tensors_in((args, kwargs))), default=0)
            for m, own in self._replaced[owner]:
                for key, p in own.items():
                    if p is not None and p.requires_grad:
                        # No examples, no copies: what goes through in their place is nobody's.
                        m._parameters[key] = (
                            self._copies(name, owner, p, dimensions) if self.book.batch_size else p.detach()
                        )
        return None

    def _leave(self, name: str, replay: Recorder, owner: nn.Module, args: Any, kwargs: Any, output: Any) -> Any:
        if owner in self._replaced:
            for m, own in self._replaced.pop(owner):
                m._parameters.update(own)
            if output is None:
                self._failed.append(name)
        return self._tap(name, replay, owner, args, kwargs, output)

    def _copies(self, name: str, owner: nn.Module, p: nn.Parameter, dimensions: int) -> Any:
        rows = self.book.batch_size
        shape = p.shape[1:] if p.ndim > 1 and p.shape[0] == 1 else p.shape
        between = [1] * max(0, dimensions - 1 - len(shape)) if shape == p.shape else []

        @in_full_precision
        def show(gradient: Tensor) -> None:
            if self._is_wanted():
                own = wide(gradient).reshape(rows, *p.shape)
                self._note(name, owner, rows, iter([(p, PerExample(own))]))

        shown: Any = _Shown.apply
        return copies_of(shown(self._handle, p.detach().expand(rows, *between, *shape).clone(), show))

    def _gradients(self, score: Callable[[], Tensor], rows: int) -> dict[nn.Parameter, Rows]:
        generator = torch.get_rng_state()
        while self._replaying != set(self._owners):
            self._failed.clear()
            torch.set_rng_state(generator)
            try:
                found = super()._gradients(score, rows)
                torch.set_rng_state(generator)
                name = self._apart(found, score)
                if name is None:
                    return found
                self._replay(name, "its copies do not broadcast as the parameter does")
            except Exception as error:  # of the module's, on copies
                reason = f"{type(error).__name__}: {' '.join(str(error).split())[:240]}"
                for name in self._failed[:1] or list(self._owners):
                    self._replay(name, reason)
        torch.set_rng_state(generator)
        return super()._gradients(score, rows)

    def _apart(self, found: dict[nn.Parameter, Rows], score: Callable[[], Tensor]) -> str | None:
        """An owner whose copies do not add up to what autograd has for the parameter."""
        trained = [(n, p) for n, m in self._owners.items() if n not in self._replaying for p in own_parameters(m)]
        parameters = [p for _, p in trained]
        expected = torch.autograd.grad(score(), parameters, allow_unused=True, materialize_grads=True)
        for (name, p), e in zip(trained, expected, strict=True):
            own = torch.stack(list(found[p])).double() if p in found else torch.zeros_like(e).double()[None]
            size = float(own.norm()) * math.sqrt(len(own)) + float(e.double().norm())
            if not float((own.sum(dim=0) - e.double()).norm()) <= _CLOSE * size:
                return name
        return None

    def _replay(self, name: str, reason: str) -> None:
        """From now on; layers within are computed as parts of their owner."""
        owner = self._owners[name]
        self._reason = f"{name or 'module'} ({type(owner).__name__}): {reason}"
        self._replaying |= {name, *(other for other in self._owners if _is_within(other, name))}
        self._replayed.add(owner)
        for layer in owner.modules():
            for hook in self._of_layer.pop(layer, []):
                hook.remove()


def _is_within(name: str, other: str) -> bool:
    return name != other and (not other or name.startswith(f"{other}."))
