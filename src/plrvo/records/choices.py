"""Choices that a run makes and its receipt names: one spelling for both sides, and what is refused of them."""

from __future__ import annotations

from enum import StrEnum

from plrvo.validate import InvalidArgument

_SMALLEST_CLIP = 1e-20
_LARGEST_NORMALISED = 1e4  # clips of automatic clipping


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


MODES = ("auto", *(mode.value for mode in GradSampleMode))


def check_mode(mode: str) -> None:
    """Refuse a mode of per-example gradients that is none here."""
    if mode not in MODES:
        raise InvalidArgument("grad_sample_mode", mode, "one of " + ", ".join(MODES))


def refuse_alone(mode: str) -> None:
    """Where there is no loop of the caller's."""
    if mode == GradSampleMode.alone:
        raise InvalidArgument(
            "grad_sample_mode", mode, "another mode: this one asks a loop of your own for the loss of one example"
        )


def check_exact(distributed: bool, grad_sample_mode: str) -> str:
    """Refuse what exact mode does not cover; returns the mode of per-example gradients."""
    if distributed:
        raise InvalidArgument("exact", True, "one process: several add up their sums in floating point")
    if grad_sample_mode not in ("auto", GradSampleMode.hooks, GradSampleMode.alone):
        raise InvalidArgument(
            "grad_sample_mode",
            grad_sample_mode,
            "hooks, or alone: exact mode rounds each example's gradient, which others never form",
        )
    return "hooks" if grad_sample_mode == "auto" else grad_sample_mode


def check_postprocess(kind: str | None) -> None:
    """Refuse what is none of them; None leaves the release as it is."""
    if kind is not None and kind not in list(Postprocess):
        raise InvalidArgument("postprocess", kind, "score, clamp or None")


def check_clip(clip: float, clipping: str = "flat") -> None:
    """Refuse a clip below which single precision has too few numbers, and one that would lengthen by too much."""
    if clipping == "automatic" and clip > _LARGEST_NORMALISED:
        raise InvalidArgument("clip", clip, "at most 1e4 with automatic clipping, where it is a unit and no more")
    if clip < _SMALLEST_CLIP:
        raise InvalidArgument("clip", clip, "at least 1e-20 for training: measure the loss in other units")
