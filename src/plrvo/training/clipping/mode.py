"""Which way of forming clipped sums a module is given."""

from __future__ import annotations

import warnings

from torch import nn

from plrvo.accounting import Clipping
from plrvo.training.clipping.module import unsupported_layers
from plrvo.validate import InvalidArgument

# Opacus's other modes fail on the empty batches of Poisson sampling.
MODES = ("auto", "bookkeeping", "hooks", "ghost")


def check_mode(mode: str) -> None:
    """Refuse a mode that is none here."""
    if mode not in MODES:
        instead = "; what has no rule is computed by functorch in any of them" if mode in ("functorch", "ew") else ""
        raise InvalidArgument("grad_sample_mode", mode, "one of " + ", ".join(MODES) + instead)


def chosen_mode(mode: str, module: nn.Module, clipping: Clipping, batch_first: bool) -> str:
    """Book-keeping where it can work; what prevents it is an error if it was asked for, else a warning."""
    if mode == "hooks":
        return mode
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
    warnings.warn(f"grad_sample_mode: hooks instead of bookkeeping, which is faster: {reason}", stacklevel=3)
    return "hooks"
