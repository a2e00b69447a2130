"""What binds a module to the one engine that made it private."""

from __future__ import annotations

from torch import nn

from plrvo.validate import InvalidArgument


class Bound:
    """Has a hook on its module, by which the module is known; None in a copy, which is under no engine."""

    def __init__(self, module: nn.Module | None) -> None:
        if module is not None:
            refuse_private(module)
        self.module = module

    def mark(self, *_: object) -> None:
        """The hook of a copy."""


def refuse_private(module: nn.Module) -> None:
    """One engine, one wrapping."""
    for m in module.modules():
        for hook in m._forward_pre_hooks.values():
            owner = getattr(hook, "__self__", None)
            if isinstance(owner, Bound) and owner.module is m:
                raise InvalidArgument(
                    "module",
                    type(module).__name__,
                    "a module that is not private yet; make_private was called with it before (a budget holds for all "
                    "steps on the same data)",
                )
