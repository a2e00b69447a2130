"""The volumes of the l1 and l2 balls of radius C = 1, and their ratio by the paper's formula.

    V1 = 2^n / n!,   V2 = pi^(n/2) / Gamma(n/2 + 1),   V1/V2 as printed = (2/sqrt(pi))^n (n/2)! / n!

The measured volumes come from recursions in n (V1(n) = V1(n-1) 2/n, V2(n) = V2(n-2) 2 pi/n), the printed ratio from
factorials, where (n/2)! of an odd n is read as Gamma(n/2 + 1).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import numpy as np
from scipy import special

from plrvo.paper.analytic import needs, power_of_ten, whole_points
from plrvo.paper.entry import Context, Entry, Measured, Panel, Result, Row, Scale
from plrvo.paper.flags import Flag, flagged
from plrvo.paper.wording import share

CNN_DIMENSION = 26_010
LARGEST = 10**6
LN10 = math.log(10)
_AGREE = 1e-9  # relative, of logarithms that are sums of up to a million terms


def log_volume_l1(n: int) -> float:
    """log V1 by its recursion."""
    return float(np.sum(math.log(2) - np.log(np.arange(1, n + 1))))


def log_volume_l2(n: int) -> float:
    """log V2 by its recursion, from V2(0) = 1 or V2(1) = 2."""
    first = math.log(2) if n % 2 else 0.0
    return first + float(np.sum(math.log(2 * math.pi) - np.log(np.arange(2 + n % 2, n + 1, 2))))


def printed_log_ratio(n: int) -> float:
    """log of (2/sqrt(pi))^n (n/2)!/n!."""
    return float(n * math.log(2 / math.sqrt(math.pi)) + special.gammaln(n / 2 + 1) - special.gammaln(n + 1))


def _measure(n: int, context: Context) -> Measured:
    l1, l2 = log_volume_l1(n), log_volume_l2(n)
    ratio, printed = l1 - l2, printed_log_ratio(n)
    wrong = abs(ratio - printed) > _AGREE * max(1.0, abs(ratio))
    values = {
        "log10_l1": l1 / LN10,
        "log10_l2": l2 / LN10,
        "log10_ratio": ratio / LN10,
        # The l2 ball that has the volume of the l1 ball: what the ratio means for one gradient.
        "equal_radius": math.exp(ratio / n),
    }
    remark = f"the printed ratio is {power_of_ten(printed / LN10)}, that of the volumes another"
    return Measured(values, {}, flagged(Flag.differs, remark, wrong))


def _rows(scale: Scale) -> Sequence[Row]:
    small = [n for n in range(1, 31) if scale is not Scale.smoke or n < 3]
    large = whole_points(scale, 40, LARGEST, 13, 40)
    return [
        Row(
            key=f"n-{n}",
            label=f"n = {n:,}",
            parameters={"n": n},
            printed={
                "log10_l1": None,
                "log10_l2": None,
                "log10_ratio": printed_log_ratio(n) / LN10,
                "equal_radius": None,
            },
            measure=partial(_measure, n),
        )
        for n in sorted({*small, *large, CNN_DIMENSION})
    ]


def findings(rows: Sequence[Result]) -> list[str]:
    """Whether the formula holds, how fast the ratio falls, and what it means."""
    wrong = [row for row in rows if row["flags"]]
    cnn = next(row for row in rows if row["parameters"]["n"] == CNN_DIMENSION)["measured"]
    last = rows[-1]
    n, radius = last["parameters"]["n"], last["measured"]["equal_radius"]
    each = [row["measured"]["log10_ratio"] / row["parameters"]["n"] for row in (rows[-2], last)]
    faster = abs(each[1]) > abs(each[0])
    held = f"{'fails' if wrong else 'holds'} at {share(len(wrong) or len(rows), len(rows), 'dimension')}"
    return [
        f"The printed ratio of the volumes {held}, (n/2)! of an odd n read as Gamma(n/2 + 1).",
        f"It shrinks {'faster than exponentially' if faster else 'exponentially'}: log10 of it is "
        f"{each[0]:.2f} per dimension at n = {rows[-2]['parameters']['n']:,} and {each[1]:.2f} at "
        f"n = {n:,}.",
        f"At the dimension of the paper's CNN, {CNN_DIMENSION:,}, the l1 ball has {power_of_ten(cnn['log10_ratio'])} "
        f"of the volume of the l2 ball: that of an l2 ball whose radius is {cnn['equal_radius']:.4f} of the clip.",
        f"As a radius the loss is {radius * math.sqrt(n):.3f}/sqrt(n) at n = {n:,}: of the order of 1/sqrt(n), as the "
        "inequality between the norms says. Laplace noise can be certified for the l2 clip itself, so that nobody has "
        "to pay it (entry table-mechanisms).",
    ]


ENTRIES = (
    Entry(
        name="figure-volumes",
        title="Volume of the l1 and l2 balls of radius 1",
        where="figure of the clipped volumes (fig:l1vsl2vol)",
        rows=_rows,
        needs=needs(0.05, 0.1),
        panels=(
            Panel(
                "n",
                ("log10_l1", "log10_l2", "log10_ratio"),
                "dimension n",
                "log10 of the volume",
                "volumes, C = 1",
                only=lambda row: bool(row["parameters"]["n"] <= 30),
            ),
            Panel(
                "n",
                ("equal_radius",),
                "dimension n",
                "radius, in units of C",
                "l2 ball that has the volume of the l1 ball",
                xlog=True,
                ylog=True,
            ),
        ),
        findings=findings,
    ),
)
