"""Hooks on the module's outputs, and on what a loss computes from them, that change the gradient on its way back.

A loop may put a hook on any tensor of its graph (`outputs.register_hook(...)`), as to keep the batch's gradient from
exploding. What it does there, a loss that is carried out again does not show, and it may do nothing until one example
is large. So every such hook is looked at in every backward pass: hooks that look on are fine, and where one has given
back another gradient no step follows. The module's own are tried with it (`probe`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from plrvo.training.loss_form import NotASum
from plrvo.training.operations import Operation
from plrvo.training.recording import Output

Hook = Callable[[Tensor], Any]


class LossHooks:
    """Looks at the hooks of one backward pass."""

    def __init__(self) -> None:
        self._replaced: list[tuple[dict[int, Any], int, Hook, Hook]] = []
        self._changed = False

    def begin(self, outputs: Sequence[Output], steps: Sequence[Operation]) -> None:
        """Before the pass of a loss that these operations lead to; hooks that outputs came with are the module's."""
        own = {id(o.tensor): o.hooks for o in outputs}
        tensors = {id(t): t for s in steps for t in (*s.given(), *s.results)}
        tensors |= {id(o.tensor): o.tensor for o in outputs}
        for name, t in tensors.items():
            hooks: dict[int, Any] = t._backward_hooks or {}
            for key in [key for key in hooks if key not in own.get(name, ())]:
                self._replaced.append((hooks, key, hooks[key], self._seen(hooks[key])))
                hooks[key] = self._replaced[-1][3]

    def end(self) -> None:
        """After it: raise if a hook has changed a gradient."""
        for hooks, key, hook, seen in self._replaced:
            if hooks.get(key) is seen:  # it may have been removed
                hooks[key] = hook
        changed, self._changed, self._replaced = self._changed, False, []
        if changed:
            raise NotASum(
                "loss: expected gradients that no hook changes on their way to the module (register_hook on its "
                "outputs, or on what the loss computes): it may look at the whole batch. Scale each example's loss "
                "instead; clipping bounds every example's gradient by itself"
            )

    def _seen(self, hook: Hook) -> Hook:
        def seen(gradient: Tensor) -> Any:
            before = gradient.detach().clone()  # a hook may write into it
            found = hook(gradient)
            after = gradient if found is None else found
            if not torch.allclose(after.detach(), before, rtol=1e-5, atol=0.0, equal_nan=True):
                self._changed = True
            return found

        return seen
