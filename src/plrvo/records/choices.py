"""Choices that a run makes and its receipt names: one spelling for both sides."""

from __future__ import annotations

from enum import StrEnum


class GradSampleMode(StrEnum):
    """How per-example gradients were clipped; `ghost` is what older receipts call a form of book-keeping."""

    bookkeeping = "bookkeeping"
    hooks = "hooks"
    ghost = "ghost"
    functorch = "functorch"
    alone = "alone"


class Postprocess(StrEnum):
    """What is done to a released gradient before the optimizer uses it."""

    score = "score"
    clamp = "clamp"
