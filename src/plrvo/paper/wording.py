"""How findings tell numbers: a share of rows, and the ends of what was measured."""

from __future__ import annotations

from collections.abc import Iterable

from plrvo.accounting.printed import rounded_down, rounded_up
from plrvo.validate import counted

# Which numbers of a row, by their names, bound an epsilon from above, and which from below.
_UPPER = ("certified", "by_moments")
_LOWER = ("lower", "audited", "could_show_at_most")


def told(name: str, value: float) -> str:
    """A number of a row in four digits; one that bounds an epsilon is rounded to the side on which it stays true.

    >>> told("certified", 2.00001), told("lower", 1.99999), told("accuracy", 91.0001)
    ('2.001', '1.999', '91')
    """
    if name in _UPPER:
        return rounded_up(value)
    return rounded_down(value) if name in _LOWER else f"{value:.4g}"


def share(part: int, whole: int, noun: str = "row") -> str:
    """How many of them it is; it stands behind "in" or "at", and the noun is given in the singular.

    >>> share(0, 4), share(1, 4), share(4, 4)
    ('none of 4 rows', '1 of 4 rows', 'all 4 rows')
    >>> share(2, 2), share(0, 2), share(1, 1), share(0, 1)
    ('both rows', 'neither row', 'the one row', 'no row')
    >>> share(2, 2, "SST-2 row"), share(0, 0)
    ('both SST-2 rows', 'no row')
    """
    if whole == 0:
        return f"no {noun}"
    several = counted(whole, noun)
    all_of, none_of = f"all {several}", f"none of {several}"
    if whole == 1:
        all_of, none_of = f"the one {noun}", f"no {noun}"
    elif whole == 2:
        all_of, none_of = several.replace("2", "both", 1), f"neither {noun}"
    return all_of if part == whole else none_of if part == 0 else f"{part} of {several}"


def spread(values: Iterable[float], form: str) -> str:
    """From the least to the largest, in a form of `format`; one number where both are written alike.

    >>> spread([1.5, -0.2, 3.0], "+.1f"), spread([0.01, -0.01], "+z.1f")
    ('-0.2 to +3.0', '+0.0')
    """
    ends = sorted(values)
    least, most = (f"{end:{form}}" for end in (ends[0], ends[-1]))
    return least if least == most else f"{least} to {most}"
