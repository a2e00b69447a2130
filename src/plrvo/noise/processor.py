"""What the processor can do, for choices among ways to the same result that differ in speed."""

from __future__ import annotations

import importlib
from functools import cache


@cache
def has(feature: str) -> bool:
    """Whether NumPy has found this set of instructions; False where it does not know the name."""
    umath = importlib.import_module("numpy._core._multiarray_umath")  # NumPy's own list, which has no public name
    return bool(getattr(umath, "__cpu_features__", {}).get(feature, False))
