"""Two pieces of plain data side by side: what is written, and what it should be."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from plrvo.validate import shortened

_TOLERANCE = 1e-9  # relative: the same formula on another computer


def same(written: Any, due: Any) -> bool:
    """Equal but for the last digits of a number. Nothing equals NaN or an infinity, and True is not 1."""
    return not any(True for _ in differing("", written, due))


def differing(where: str, written: Any, due: Any, older: bool = False) -> Iterator[str]:
    """A sentence for every leaf that is not as it should be.

    What older code wrote may certify more than what is proved today, and never less; its lower bounds are its own, as
    long as they are below what was certified, then and today.
    """
    if isinstance(due, dict) and isinstance(written, dict):
        for key in due.keys() - written.keys():
            yield f"{_under(where, key)} is missing"
        for key in written.keys() - due.keys():
            yield f"{_under(where, key)} is not a part of it"
        for key in due.keys() & written.keys():
            yield from differing(_under(where, key), written[key], due[key], older)
        yield from _crossed(where, written, due)
    elif isinstance(due, list | tuple) and isinstance(written, list | tuple) and len(due) == len(written):
        for i, (one, other) in enumerate(zip(written, due, strict=True)):
            yield from differing(f"{where}[{i}]", one, other, older)
    elif not _same_leaf(written, due) and not (older and _still_holds(where, written, due)):
        yield f"it says {where} {shortened(written)}; recomputed, it is {shortened(due)}"


def _crossed(where: str, written: dict[str, Any], due: dict[str, Any]) -> Iterator[str]:
    """A lower bound above what is certified, then or today: one of the two is wrong, whoever wrote it."""
    for prefix in ("", "epsilon_"):
        lower, certified = f"{prefix}lower", f"{prefix}certified"
        if not {lower, certified} <= due.keys() & written.keys() or not is_finite(written[lower]):
            continue
        for top in (written[certified], due[certified]):
            if is_finite(top) and written[lower] > top * (1 + _TOLERANCE):
                yield f"it says {_under(where, lower)} {shortened(written[lower])}, above {shortened(top)}, a certified"
                break


def is_finite(value: Any) -> bool:
    """A number that a computation can start from."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number of 400 digits
        return False


def is_count(value: Any) -> bool:
    """A whole number of zero or above, and written as one."""
    return type(value) is int and value >= 0 and is_finite(value)


def _same_leaf(written: Any, due: Any) -> bool:
    if isinstance(due, int | float) and not isinstance(due, bool):
        if not is_finite(due) or not is_finite(written):
            return False
        return bool(written == due if isinstance(due, int) else abs(written - due) <= _TOLERANCE * abs(due))
    return type(written) is type(due) and bool(written == due)


def _still_holds(where: str, written: Any, due: Any) -> bool:
    name = where.rpartition(".")[2].removeprefix("epsilon_")
    if not is_finite(written) or not is_finite(due):
        return False
    return bool(written >= due if name == "certified" else written >= 0 and name == "lower")


def _under(where: str, key: str) -> str:
    return f"{where}.{key}" if where else str(key)
