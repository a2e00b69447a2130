"""Choices that a run makes and its receipt names: one spelling for both sides."""

from __future__ import annotations

from enum import StrEnum


class Clipping(StrEnum):
    """Which norm of an example's gradient is bounded: l2 of all parameters or of each, or l1."""

    flat = "flat"
    per_layer = "per_layer"
    l1 = "l1"


class GradSampleMode(StrEnum):
    """How per-example gradients were clipped; `ghost` is what older receipts call a form of book-keeping."""

    bookkeeping = "bookkeeping"
    hooks = "hooks"
    ghost = "ghost"


class Postprocess(StrEnum):
    """What is done to a released gradient before the optimizer uses it."""

    score = "score"
    clamp = "clamp"
