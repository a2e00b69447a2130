"""Which way of forming clipped sums a module is given."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from torch import nn

from plrvo.accounting import Clipping
from plrvo.training.clipping.direct import DirectModule
from plrvo.training.clipping.fallback import falling_back
from plrvo.training.clipping.layers import rule_of
from plrvo.training.clipping.module import BookkeepingModule, direct_owners, unsupported_layers
from plrvo.training.clipping.samples import SamplesModule, WholeModule
from plrvo.training.views import EachView
from plrvo.validate import InvalidArgument


def wrapper_of(mode: str, module: nn.Module, asked: str = "") -> type[BookkeepingModule]:
    """The wrapper of a mode that was chosen; where "auto" was asked for, it may come to another in a try."""
    books = DirectModule if direct_owners(module) else BookkeepingModule
    wrapper = {"bookkeeping": books, "functorch": WholeModule}.get(mode, SamplesModule)
    return falling_back(wrapper) if asked == "auto" else wrapper


def chosen_mode(mode: str, module: nn.Module, clipping: Clipping, batch_first: bool) -> str:
    """Book-keeping where it can work; what prevents it is an error if it was asked for, else a warning."""
    if mode in ("hooks", "functorch", "alone"):
        return mode
    if mode == "auto" and isinstance(module, EachView):
        return "functorch"
    unsupported = unsupported_layers(module)
    reason = (
        f"no rule for {', '.join(unsupported[:3])}{' and others' if len(unsupported) > 3 else ''}"
        if unsupported
        else "l1 norms need the gradients themselves"
        if clipping is Clipping.l1
        else "the example is not the first dimension"
        if not batch_first
        else None
    )
    if reason is None:
        return "bookkeeping"
    if mode != "auto":
        raise InvalidArgument("grad_sample_mode", mode, f"hooks, or auto: {reason}")
    if any(isinstance(m, nn.EmbeddingBag) and m.weight.requires_grad and not rule_of(m) for m in module.modules()):
        warnings.warn(f"grad_sample_mode: functorch instead of bookkeeping, which is faster: {reason}", stacklevel=3)
        return "functorch"
    if clipping is Clipping.l1:
        return "hooks"  # there is no other way
    warnings.warn(f"grad_sample_mode: hooks instead of bookkeeping, which is faster: {reason}", stacklevel=3)
    return "hooks"


def fitting_mode(module: nn.Module, clipping: Clipping, loss_of: Callable[[nn.Module], Any]) -> str:
    """What "auto" comes to, tried on a loss of a few examples: "functorch" for a module whose layers mix their rows."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # which say the mode's reason, and come again when it is chosen
        mode = chosen_mode("auto", module, clipping, batch_first=True)
        wrapper = wrapper_of(mode, module)(module)
        try:
            loss_of(wrapper).backward()
        except (InvalidArgument, RuntimeError):  # a layer that was asked for rows of its own may fail in its own way
            return "functorch"
        finally:
            wrapper.cleanup()
    return "auto"
