"""Where the noise of a run came from, in the words of its receipt, and whether somebody may know a seed of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

UNSEEDED = "the operating system"  # the one sentence about noise that nobody can repeat; any other is about a seed
FIXED_SEED = "a fixed seed: not private against whoever knows it"
CALLERS_GENERATORS = "the caller's generators: not private against whoever knows their seeds"


def is_seeded(run: Mapping[str, Any]) -> bool | None:
    """Whether the noise of a run can be repeated by whoever knows a seed; None where its receipt does not say.

    Receipts from before `seeded` was in them have the sentence alone.
    """
    said, sentence = run.get("seeded"), run.get("randomness")
    if isinstance(said, bool):
        return said
    return None if not isinstance(sentence, str) else sentence != UNSEEDED


def warning(run: Mapping[str, Any]) -> str | None:
    """What has to be said before any epsilon of the run, None where its noise is nobody's to repeat."""
    seeded = is_seeded(run)
    if seeded is None:
        return "NOT KNOWN TO BE PRIVATE: the receipt does not say where the noise came from"
    if not seeded:
        return None
    source = str(run.get("randomness") or "a seed").partition(":")[0]
    return (
        f"NOT PRIVATE: the noise came from {source}. Whoever knows or guesses the seed can take the noise away: do not "
        "publish this model"
    )
