"""An epsilon in a few digits, rounded to the side on which it stays true."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Context


def rounded_up(value: float, digits: int = 4) -> str:
    """A certified value to so many significant digits, never printed smaller than it is.

    >>> rounded_up(2.38150628), rounded_down(1.77485)
    ('2.382', '1.774')
    """
    return _rounded(value, digits, ROUND_CEILING)


def rounded_down(value: float, digits: int = 4) -> str:
    """A lower bound to so many significant digits, never printed larger than it is."""
    return _rounded(value, digits, ROUND_FLOOR)


def _rounded(value: float, digits: int, direction: str) -> str:
    if not math.isfinite(value):
        return str(value)
    # From the decimal digits that Python writes: 0.1 is 0.1, and whoever reads the result gets no less, or no more.
    cut = Context(prec=digits, rounding=direction).create_decimal(repr(float(value)))
    return f"{float(cut):.{digits}g}"
