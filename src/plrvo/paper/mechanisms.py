"""Table 1, Gaussian, Laplace and PLRV-O noise: each tick and cross of the paper beside one that a computation decides.

The paper gives no criteria. Ours are below, one for each capability: a number that is computed here, and the limit
that makes it a yes. The task is the paper's CNN (q = 0.01, T = 300, delta = 1e-5), noise is fitted to a *certified*
epsilon, and all of it is for the l2 clip. Gamma-PLRV noise has k = 1000, within 0.3 % of the best that it can do.
Every noise is certified by the best of all methods: no part of what is found is a matter of moments.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

from plrvo import appearance
from plrvo.accounting import Ledger, Workload
from plrvo.noise import GammaPLRV, Gaussian, Laplace, Noise
from plrvo.paper.analytic import needs
from plrvo.paper.cnn import CNN_DELTA
from plrvo.paper.entry import Context, Entry, Measured, Panel, Result, Row, Scale, four_epsilons
from plrvo.paper.flags import Flag, flagged
from plrvo.paper.training import fitted
from plrvo.paper.wording import share

KINDS = {"gaussian": "Gaussian", "laplace": "Laplace", "gamma": "PLRV-O"}
SMALL, LARGE = 26_010, 774_030_080  # the CNN, and GPT-2-large
WORK = Workload(sample_rate=0.01, steps=300, clip=1.0, dimension=SMALL)
STRONG, USUAL = 0.1, 1.0  # certified epsilons
ORDER = 256
SHAPES: dict[str, list[Noise]] = {
    "gaussian": [Gaussian(width) for width in (0.5, 1.0, 2.0)],
    "laplace": [Laplace(width) for width in (0.5, 1.0, 2.0)],
    "gamma": [GammaPLRV(k, 1 / k) for k in (3.0, 10.0, 100.0, 1e3, 6e4)],
}


@cache
def noise_for(kind: str, epsilon: float = USUAL, dimension: int = SMALL) -> Noise:
    """The narrowest noise of the kind that certifies the epsilon."""
    return fitted(kind, replace(WORK, dimension=dimension), epsilon, CNN_DELTA).noise


def freedom(kind: str) -> float:
    """How much I E[|z|]^2, the distortion at a given information, varies over the family; the width cancels."""
    values = [noise.fisher_information() * noise.distortion**2 for noise in SHAPES[kind]]
    return max(values) / min(values)


def excess_error(kind: str) -> float:
    """The larger of E|z| and the deviation at a strong guarantee, each over the least of the three noises."""
    noises = {name: noise_for(name, STRONG) for name in KINDS}
    mine = noises[kind]
    return max(
        mine.distortion / min(noise.distortion for noise in noises.values()),
        math.sqrt(mine.variance / min(noise.variance for noise in noises.values())),
    )


def moment_growth(kind: str, dimension: int = SMALL) -> float:
    """The power of the order with which the log moment of an equally spread gradient grows, at order 256."""
    noise, shift = noise_for(kind), WORK.clip / math.sqrt(dimension)
    half, whole = (float(noise.log_moment(shift, order)) for order in (ORDER / 2, ORDER))
    return math.log2(whole / half)


def amplification(kind: str) -> float:
    """The certified epsilon without sampling over the one with it, the noise being the same."""
    noise = noise_for(kind)
    certified = [
        Ledger().plus(noise, replace(WORK, sample_rate=rate)).certified(CNN_DELTA).value
        for rate in (1.0, WORK.sample_rate)
    ]
    return certified[0] / certified[1]


def wider_than_gaussian(kind: str, dimension: int) -> float:
    """E|z| over that of Gaussian noise, both certified for the same epsilon in this dimension."""
    return noise_for(kind, USUAL, dimension).distortion / noise_for("gaussian", USUAL, dimension).distortion


def growth_with_dimension(kind: str) -> float:
    """E|z| in the large dimension over the small one, the same epsilon being certified for the same l2 clip."""
    return noise_for(kind, USUAL, LARGE).distortion / noise_for(kind).distortion


@dataclass(frozen=True)
class Capability:
    """A column of the table: what decides, the limit, which side of it is a yes, and what the paper says."""

    name: str
    criterion: str
    value: Callable[[str], float]
    limit: float
    above: bool
    printed: dict[str, bool]

    def holds(self, value: float) -> bool:
        """Whether the number is a yes."""
        return value > self.limit if self.above else value <= self.limit


def _said(gaussian: bool, laplace: bool, gamma: bool) -> dict[str, bool]:
    return {"gaussian": gaussian, "laplace": laplace, "gamma": gamma}


CAPABILITIES = (
    Capability(
        "optimizing noise",
        "at a given Fisher information, E|z|^2 varies over the family's parameters by a factor above 1.01",
        freedom,
        1.01,
        True,
        _said(False, False, True),
    ),
    Capability(
        "high accuracy at strong DP",
        f"at certified epsilon {STRONG:g}, E|z| and deviation are within 5 % of the least of the three",
        excess_error,
        1.05,
        False,
        _said(False, False, True),
    ),
    Capability(
        "large moments",
        f"at order {ORDER} the log moment of a spread gradient grows slower than order^1.5 (one coordinate of Laplace "
        "noise: order, Gaussian noise: order^2)",
        moment_growth,
        1.5,
        False,
        _said(False, False, True),
    ),
    Capability(
        "subsampling",
        f"sampling at q = {WORK.sample_rate:g} lowers the certified epsilon by a factor above 2",
        amplification,
        2.0,
        True,
        _said(True, False, True),
    ),
    Capability(
        "small model",
        f"certified epsilon {USUAL:g} at n = {SMALL:,} with at most twice the E|z| of Gaussian noise",
        partial(wider_than_gaussian, dimension=SMALL),
        2.0,
        False,
        _said(True, True, True),
    ),
    Capability(
        "large model",
        f"certified epsilon {USUAL:g} at n = {LARGE:,} with at most twice the E|z| of Gaussian noise",
        partial(wider_than_gaussian, dimension=LARGE),
        2.0,
        False,
        _said(True, False, True),
    ),
    Capability(
        "l2 clip",
        f"for the same l2 clip, E|z| at n = {LARGE:,} is at most 1.1 times that at n = {SMALL:,} (by way of the l1 "
        f"norm: {math.sqrt(LARGE / SMALL):.0f} times)",
        growth_with_dimension,
        1.1,
        False,
        _said(True, False, True),
    ),
)


def _measure(capability: Capability, kind: str, context: Context) -> Measured:
    value = capability.value(kind)
    holds, printed = capability.holds(value), capability.printed[kind]
    remark = f"the paper says {_word(printed)}; the number is {value:.3g}, the limit {capability.limit:g}"
    epsilon = STRONG if capability.value is excess_error else USUAL
    dimension = LARGE if capability.name in ("large model", "l2 clip") else SMALL
    bracket = Ledger().plus(noise_for(kind, epsilon, dimension), replace(WORK, dimension=dimension)).epsilon(CNN_DELTA)
    details: dict[str, Any] = {"number": value, "limit": capability.limit, "yes_above": capability.above}
    if capability.value is moment_growth:
        details["number_of_one_coordinate"] = moment_growth(kind, 1)
    if capability.value is freedom:
        details["least_shape"] = min(noise.fisher_information() * noise.distortion**2 for noise in SHAPES[kind])
    return Measured(
        {"supported": float(holds)},
        four_epsilons(None, bracket),
        flagged(Flag.differs, remark, holds != printed),
        details,
    )


def _word(holds: bool) -> str:
    return "yes" if holds else "no"


def _rows(scale: Scale) -> Sequence[Row]:
    shown = CAPABILITIES if scale is not Scale.smoke else CAPABILITIES[3:4]
    return [
        Row(
            key=f"{kind}-{capability.name.replace(' ', '-')}",
            label=f"{KINDS[kind]}: {capability.name}",
            parameters={"mechanism": KINDS[kind], "capability": capability.name, "criterion": capability.criterion},
            printed={"supported": float(capability.printed[kind])},
            measure=partial(_measure, capability, kind),
        )
        for kind in KINDS
        for capability in shown
    ]


def findings(rows: Sequence[Result]) -> list[str]:
    """Which cells differ, and what lies behind the ones that decide."""
    other = [row for row in rows if row["flags"]]
    cell = {(row["parameters"]["mechanism"], row["parameters"]["capability"]): row for row in rows}

    def number(mechanism: str, capability: str) -> float:
        return float(cell[mechanism, capability]["details"]["number"])

    listed = "; ".join(f"{row['label']}: {_word(bool(row['measured']['supported']))}" for row in other)
    best = {name: cell[name, "optimizing noise"]["details"]["least_shape"] for name in KINDS.values()}
    growth = {name: number(name, "large moments") for name in KINDS.values()}
    alone = {name: cell[name, "large moments"]["details"]["number_of_one_coordinate"] for name in KINDS.values()}
    return [
        f"In {share(len(other), len(rows), 'cell')} the answer is not the paper's ({listed}).",
        f"Laplace noise is certified for l2-clipped, subsampled gradients: sampling lowers its epsilon "
        f"{number('Laplace', 'subsampling'):.0f} times, its E|z| grows {number('Laplace', 'l2 clip'):.3f} times from "
        f"n = {SMALL:,} to {LARGE:,}, and is {number('Laplace', 'large model'):.2f} times that of Gaussian noise.",
        f"At certified epsilon {STRONG:g} the error relative to the best noise is "
        + ", ".join(f"{number(name, 'high accuracy at strong DP'):.2f} ({name})" for name in KINDS.values())
        + ".",
        "PLRV-O noise has a shape to optimise; the least I E[|z|]^2 that it reaches is "
        f"{best['PLRV-O']:.4f}, against {best['Laplace']:.4f} of Laplace and {best['Gaussian']:.4f} of Gaussian noise "
        "(less is better).",
        "The log moment grows with the order to the power "
        + ", ".join(f"{growth[name]:.2f} ({name})" for name in KINDS.values())
        + "; for a single coordinate it would be "
        + ", ".join(f"{alone[name]:.2f} ({name})" for name in KINDS.values())
        + ".",
    ]


def _paint(axes: Any, rows: Sequence[Result]) -> None:
    """The table, as the paper prints it: capabilities down, mechanisms across; a frame where the cells differ."""
    capabilities = list(dict.fromkeys(row["parameters"]["capability"] for row in rows))
    mechanisms = list(dict.fromkeys(row["parameters"]["mechanism"] for row in rows))
    for row in rows:
        x = mechanisms.index(row["parameters"]["mechanism"])
        y = capabilities.index(row["parameters"]["capability"])
        holds, printed = bool(row["measured"]["supported"]), bool(row["printed"]["supported"])
        color = appearance.CERTIFIED.colour if holds else appearance.LOWER.colour
        edge = {"edgecolor": "black", "linewidth": 1.5} if holds != printed else {"edgecolor": "none"}
        axes.barh(y, 0.92, left=x - 0.46, height=0.84, color=color, alpha=0.8, **edge)
        number = f"{row['details']['number']:.2f}" if row["details"]["number"] < 100 else "> 100"
        text = f"{_word(holds)} ({number})" + (f"\npaper: {_word(printed)}" if holds != printed else "")
        axes.text(x, y, text, ha="center", va="center", color="white", fontsize=8)
    axes.set_xticks(range(len(mechanisms)), mechanisms)
    axes.set_yticks(range(len(capabilities)), capabilities)
    axes.set_ylim(len(capabilities) - 0.5, -0.5)
    axes.set_xlim(-0.5, len(mechanisms) - 0.5)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


ENTRIES = (
    Entry(
        name="table-mechanisms",
        title="What Gaussian, Laplace and PLRV-O noise can do; framed where the paper says otherwise",
        where="Table 1 (Table:dp-dl)",
        rows=_rows,
        needs=needs(0.3, 0.3),
        panels=(Panel("mechanism", (), "", "", paint=_paint),),
        findings=findings,
    ),
)
