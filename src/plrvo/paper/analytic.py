"""What the entries that train nothing have in common: their needs, and how many points a scale has."""

from __future__ import annotations

import math

import numpy as np

from plrvo.paper.entry import Needs, Scale


def needs(quick: float, full: float) -> dict[Scale, Needs]:
    """Minutes on two cores, and nothing but the means to draw."""
    return Needs.at_scales(quick, quick, full, packages=("matplotlib",))


def points(scale: Scale, low: float, high: float, quick: int, full: int) -> list[float]:
    """Logarithmically even values, of four digits, with both ends; at smoke scale the ends alone."""
    count = {Scale.smoke: 2, Scale.quick: quick, Scale.full: full}[scale]
    return [float(f"{value:.4g}") for value in np.geomspace(low, high, count)]


def whole_points(scale: Scale, low: int, high: int, quick: int, full: int) -> list[int]:
    """The same in whole numbers, each once."""
    return list(dict.fromkeys(round(value) for value in points(scale, low, high, quick, full)))


def power_of_ten(logarithm: float) -> str:
    """A number as people write it, from its decimal logarithm, however far it is beyond a float.

    >>> power_of_ten(-2.0), power_of_ten(-45_000.3)
    ('0.01', '5.0e-45001')
    """
    if abs(logarithm) < 4:
        return f"{10**logarithm:.3g}"
    exponent = math.floor(logarithm)
    return f"{10 ** (logarithm - exponent):.1f}e{exponent:+d}"
