"""The search space of Gamma-PLRV noise: the feasible region at one budget, its optimum over task size and budget, and
the corollary's closed bounds on k, tried against the moments that they are meant to describe (`mnli` has the setting).

At the edge of the region the published and the certified accountant are both asked. "As wide as Gaussian" is the theta
at which E|z| equals that of the Gaussian noise certified for the same epsilon: the indicator region begins there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from plrvo import appearance
from plrvo.accounting.printed import rounded_down
from plrvo.designer import Accountant
from plrvo.designer.search_space import printed_bounds, sufficient_k
from plrvo.noise import GammaPLRV
from plrvo.paper.analytic import needs, points
from plrvo.paper.entry import Context, Entry, Measured, Numbers, Panel, Result, Row, Scale
from plrvo.paper.flags import Flag, flagged
from plrvo.paper.mnli import (
    BOTH,
    CLIP,
    EPOCHS,
    MAX_ORDER,
    at_published_edge,
    edge,
    gaussian_distortion,
    space_of,
    work_of,
)
from plrvo.paper.wording import share, spread
from plrvo.validate import counted

Measure = Callable[[Context], Measured]

BUDGET = 1.0  # of the region
SIZES = (1, EPOCHS, 9)  # epochs
LARGE_K = 1e5
REGION = ("smallest", "largest_published", "largest_certified", "as_wide_as_gaussian")
BOUNDS = ("k_from", "k_to")
SNR = ("snr_certified", "snr_published", "snr_gaussian")


def _region(k: float, context: Context) -> Measured:
    space = space_of(Accountant.certified, BUDGET)
    smallest, certified = space.theta_bounds(k)
    published = edge(Accountant.published, BUDGET, k)
    least, most = space.indicator_bounds(k)
    epsilons, flags = at_published_edge(k, published, BUDGET)
    values = dict(zip(REGION, (smallest, published, certified, least), strict=True))
    return Measured(values, epsilons, flags, {"indicator_largest": most})


def roots(theta: float) -> dict[int, tuple[float, float]]:
    """By order, the corollary's two bounds in rising order, where its discriminant has a root."""
    found = {eta: printed_bounds(CLIP, theta, eta) for eta in range(2, MAX_ORDER + 2)}
    return {eta: (min(pair), max(pair)) for eta, pair in found.items() if not math.isnan(pair[0])}


def printed_interval(theta: float) -> tuple[float | None, float | None]:
    """The k that the corollary allows: from the largest k1 to the smallest k2 of all orders."""
    bounds = roots(theta).values()
    return (max(low for low, _ in bounds), min(high for _, high in bounds)) if bounds else (None, None)


def moment_holds(k: float, theta: float, eta: int) -> bool:
    """Whether the moment is no worse than that of the Gaussian with the same E|z|."""
    log_g = GammaPLRV(k, theta).log_moment_scale_revealed(CLIP, eta)
    return bool(log_g <= eta * (eta - 1) / math.pi * (CLIP * (k - 1) * theta) ** 2)


def _corollary(theta: float, context: Context) -> Measured:
    """The printed bounds of every order, tried between them and beyond the upper one."""
    real = roots(theta)
    tried = {eta: (max(low, 1.0), high) for eta, (low, high) in real.items() if high > 1}
    inside = sum(moment_holds(math.sqrt(low * high), theta, eta) for eta, (low, high) in tried.items())
    beyond = sum(moment_holds(10 * high, theta, eta) for eta, (_, high) in tried.items())
    details = {"orders": MAX_ORDER, "orders_with_roots": len(real), "tried": len(tried)}
    details |= {"inside_holds": inside, "beyond_holds": beyond}
    start, end = printed_interval(theta)
    empty = start is not None and end is not None and start > end
    remark = (
        f"reversed: the moments are no worse than the Gaussian's in {inside} of {len(tried)} orders between the "
        f"printed bounds, in {beyond} beyond them" + ("; the orders' intervals have no k in common" if empty else "")
    )
    flags = flagged(Flag.differs, remark, inside < beyond)
    return Measured({"k_from": sufficient_k(CLIP, theta, MAX_ORDER), "k_to": None}, {}, flags, details)


def _optimum(epochs: int, epsilon: float, context: Context) -> Measured:
    published, certified = (edge(accountant, epsilon, LARGE_K, epochs) for accountant in BOTH)
    epsilons, flags = at_published_edge(LARGE_K, published, epsilon, epochs)
    inverse = ((LARGE_K - 1) * certified, (LARGE_K - 1) * published, 1 / gaussian_distortion(epsilon, epochs))
    return Measured({name: CLIP * value for name, value in zip(SNR, inverse, strict=True)}, epsilons, flags)


def _row(part: str, key: str, label: str, parameters: dict[str, Any], printed: Numbers, measure: Measure) -> Row:
    return Row(f"{part}-{key}", label, {"part": part, **parameters}, printed, measure)


def _rows(scale: Scale) -> Sequence[Row]:
    rows = []
    for k in points(scale, 2.0, 1e6, 12, 36):
        rows.append(_row("region", f"{k:g}", f"k {k:g}", {"k": k}, dict.fromkeys(REGION), partial(_region, k)))
    for theta in points(scale, 1e-6, 0.3, 7, 19):
        printed = dict(zip(BOUNDS, printed_interval(theta), strict=True))
        rows.append(
            _row(
                "corollary",
                f"{theta:g}",
                f"corollary, theta {theta:g}",
                {"theta": theta},
                printed,
                partial(_corollary, theta),
            )
        )
    smoke = scale is Scale.smoke
    for epochs in (EPOCHS,) if smoke else SIZES:
        for epsilon in [BUDGET] if smoke else points(scale, 0.1, 10.0, 7, 19):
            size = f"T = {work_of(epochs).steps}"
            rows.append(
                _row(
                    "optimum",
                    f"{epochs}-{epsilon:g}",
                    f"{size}, epsilon {epsilon:g}",
                    {"size": size, "epsilon": epsilon},
                    dict.fromkeys(SNR),
                    partial(_optimum, epochs, epsilon),
                )
            )
    return rows


def _part(name: str) -> Callable[[Result], bool]:
    return lambda row: bool(row["parameters"]["part"] == name)


def findings(rows: Sequence[Result]) -> list[str]:
    """Whether the region, the corollary and the optimum are what the paper says."""
    region, corollary, optimum = (
        [row for row in rows if _part(name)(row)] for name in ("region", "corollary", "optimum")
    )
    feasible = [row for row in region if row["measured"]["largest_certified"] >= row["measured"]["smallest"]]
    winning = [
        row
        for row in feasible
        if row["measured"]["as_wide_as_gaussian"]
        <= min(row["measured"]["largest_certified"], row["details"]["indicator_largest"])
    ]
    tried = sum(row["details"]["tried"] for row in corollary)
    inside, beyond = (sum(row["details"][name] for row in corollary) for name in ("inside_holds", "beyond_holds"))
    rootless = sum(row["details"]["orders"] - row["details"]["orders_with_roots"] for row in corollary)
    empty = [
        row
        for row in corollary
        if row["printed"]["k_to"] is not None and row["printed"]["k_from"] > row["printed"]["k_to"]
    ]
    refuted = [row for row in (*region, *optimum) if Flag.refuted in row["flags"]]
    worst = max(optimum, key=lambda row: row["epsilon"]["lower"] / row["epsilon"]["printed"])
    behind = [row["measured"]["snr_certified"] / row["measured"]["snr_gaussian"] for row in optimum]
    turned = "the inequality is turned round" if inside < beyond else "as printed"
    return [
        f"At certified epsilon {BUDGET:g} a theta is feasible at {share(len(feasible), len(region), 'shape')} k. In "
        "the indicator region, which compares one coordinate of many, one is at "
        f"{share(len(winning), len(region), 'shape')}.",
        f"Between the corollary's bounds on k the moments are no worse than the Gaussian's in "
        f"{share(inside, tried, 'case')}, beyond them in {beyond}: {turned}. "
        f"For {counted(rootless, 'order')} there are no real bounds, and at "
        f"{share(len(empty), len(corollary), 'value')} of theta the intervals of all orders have no k in common.",
        f"C/E|z| at the best certified point is {spread(behind, '.2f')} times that of Gaussian noise at "
        "the same certified epsilon, over all sizes and budgets.",
        f"The epsilon of the published formula is refuted at "
        f"{share(len(refuted), len(region) + len(optimum), 'point')} of its edge; at "
        f"{worst['label']} an attack provably reaches {rounded_down(worst['epsilon']['lower'])}.",
    ]


def _paint(axes: Any, rows: Sequence[Result], inverse: bool = False) -> None:
    """Fill what is feasible, certified and by the published formula alone; theta, or its `inverse` 1/E|z|."""
    k = np.array([row["parameters"]["k"] for row in rows])
    factor = k - 1 if inverse else 1.0
    smallest, published, certified, wide = (
        factor * np.array([row["measured"][name] for row in rows]) for name in REGION
    )
    most = factor * np.array([row["details"]["indicator_largest"] for row in rows])
    proved = {"color": appearance.CERTIFIED.colour, "alpha": 0.3}
    claimed = {"color": appearance.PUBLISHED.colour, "alpha": 0.4}
    axes.fill_between(k, smallest, certified, certified > smallest, **proved, label="feasible, certified")
    axes.fill_between(k, certified, published, published > certified, **claimed, label="feasible as published only")
    axes.fill_between(k, wide, most, most > wide, fc="none", ec="0.4", hatch="////", label="indicator region")
    axes.plot(k, wide, "--", color=appearance.GAUSSIAN.colour, label="E|z| of Gaussian noise")


def _panel(part: str, panel: Panel) -> Panel:
    return replace(panel, only=_part(part), xlog=True, ylog=True)


ENTRIES = (
    Entry(
        name="figure-search-space",
        title=f"Search space of Gamma-PLRV noise for MNLI (T = {work_of().steps}, BERT-base, C = {CLIP:g})",
        where="figure of the search space (fig_gammPLRVss)",
        rows=_rows,
        needs=needs(3, 6),
        panels=(
            _panel("region", Panel("k", (), "k", "theta", f"epsilon = {BUDGET:g}", paint=_paint)),
            _panel(
                "region",
                Panel(
                    "k", (), "k", "1/E|z| = (k-1) theta", f"epsilon = {BUDGET:g}", paint=partial(_paint, inverse=True)
                ),
            ),
            _panel(
                "optimum",
                Panel("epsilon", SNR, "epsilon", "C/E|z|", "best point over budget and task size", lines="size"),
            ),
            _panel(
                "corollary", Panel("theta", BOUNDS, "theta", "k", "bounds on k, where the moments hold and printed")
            ),
        ),
        findings=findings,
    ),
)
