"""An epsilon in a few digits, rounded to the side on which it stays true."""

from __future__ import annotations

import math
from collections.abc import Callable


def rounded_up(value: float, digits: int = 4) -> str:
    """A certified value to so many significant digits, never printed smaller than it is.

    >>> rounded_up(2.38150628), rounded_down(1.77485)
    ('2.382', '1.774')
    """
    return _rounded(value, digits, math.ceil)


def rounded_down(value: float, digits: int = 4) -> str:
    """A lower bound to so many significant digits, never printed larger than it is."""
    return _rounded(value, digits, math.floor)


def _rounded(value: float, digits: int, direction: Callable[[float], int]) -> str:
    if not math.isfinite(value):
        return str(value)
    if value == 0:
        return "0"
    unit = 10.0 ** (math.floor(math.log10(abs(value))) + 1 - digits)
    return f"{direction(value / unit * (1 - 1e-15)) * unit:.{digits}g}"
