"""Pictures of the search space, the predictor and the map of where a shape wins. Matplotlib is imported when asked."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from plrvo import appearance
from plrvo.designer.comparison import WinningMap
from plrvo.designer.predictor import ThetaPredictor
from plrvo.designer.problem import Accountant, Point
from plrvo.designer.search_space import SearchSpace
from plrvo.validate import InvalidArgument, installing

if TYPE_CHECKING:
    from matplotlib.figure import Figure


# What the outline of a space is drawn by, where its accountant may allow more.
_BY = {Accountant.certified: ", c2 by moments"}


def _figure(width: float, height: float, columns: int = 1) -> tuple[Figure, Any]:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise InvalidArgument("plot", "matplotlib", f"it to be installed: {installing('design')}") from None
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots(1, columns)


def search_space(space: SearchSpace, chosen: Point | None = None) -> Figure:
    """k against theta at the smallest clip, coloured by E|z|, with the feasible and the indicator region outlined."""
    from matplotlib.colors import LogNorm

    problem, limits = space.problem, space.problem.limits
    log_k = np.linspace(space.outline[0][0], space.outline[0][-1], 400)
    low, high, least, most = (
        np.interp(log_k, space.outline[0], bound) for bound in (*space.outline[1:], *space.indicator_outline)
    )
    k = 1 + np.exp(log_k)
    feasible = high > low
    gaussian = math.sqrt(2 / math.pi) * problem.clip_min * space.sigma
    bottom, top = float(low[-1]) - 2.0, float(np.max(np.where(feasible, high, low[0]))) + 2.0
    grid_k, grid_theta = np.meshgrid(
        1 + np.exp(np.linspace(log_k[0], log_k[-1], 300)), np.exp(np.linspace(bottom, top, 300))
    )
    distortion = 1 / ((grid_k - 1) * grid_theta)
    figure, axes = _figure(7.2, 4.8)
    norm = LogNorm(gaussian / 10, limits.widest * 10)
    shading = axes.pcolormesh(
        grid_k, grid_theta, distortion, norm=norm, cmap="viridis_r", shading="auto", rasterized=True
    )
    figure.colorbar(shading, label="E|z| per coordinate", extend="both")
    if np.any(feasible):
        axes.fill_between(
            k,
            np.exp(low),
            np.exp(high),
            where=feasible,
            facecolor="none",
            edgecolor="black",
            linewidth=1.6,
            label=f"feasible (c0 to c4{_BY.get(problem.accountant, '')})",
        )
    if np.any(most > least):
        axes.fill_between(
            k,
            np.exp(least),
            np.exp(most),
            where=most > least,
            color=appearance.GAMMA.colour,
            alpha=0.75,
            linewidth=0,
            label="indicator region (one coordinate)",
        )
    axes.plot(k, 1 / ((k - 1) * gaussian), "--", color="white", linewidth=1.4, label="Gaussian noise has this E|z|")
    if chosen is not None:
        theta = chosen.theta * chosen.clip / problem.clip_min
        axes.plot(
            chosen.k,
            theta,
            "*",
            color=appearance.GAMMA.colour,
            markersize=15,
            markeredgecolor="white",
            clip_on=False,
            label="chosen",
        )
    work = problem.work
    axes.set(
        xscale="log",
        yscale="log",
        xlim=(k[0], k[-1]),
        ylim=(math.exp(bottom), math.exp(top)),
        xlabel="k, the shape of the inverse scale",
        ylabel="theta, its scale",
        title=f"{problem.accountant} epsilon <= {problem.epsilon:g}, q = {work.sample_rate:g}, T = {work.steps}, "
        f"n = {work.dimension:,}, C = {problem.clip_min:g}",
    )
    axes.title.set_fontsize(10)
    axes.legend(facecolor="#bbbbbb", framealpha=0.85, fontsize=8, loc="lower left")
    return figure


def predictor(trained: ThetaPredictor) -> Figure:
    """Predicted against true theta on held-out configurations, and which inputs matter."""
    figure, (left, right) = _figure(8.4, 3.8, columns=2)
    truth, predicted = np.exp(trained.held_out.truth), np.exp(trained.held_out.predicted)
    ends = [min(truth.min(), predicted.min()), max(truth.max(), predicted.max())]
    left.plot(ends, ends, color="0.6", linewidth=1)
    left.plot(truth, predicted, ".", color=appearance.CERTIFIED.colour, markersize=4)
    left.set(
        xscale="log",
        yscale="log",
        xlabel="theta on the budget's boundary",
        ylabel="predicted theta",
        title=f"settings not seen: error {trained.held_out.gain:.0f} times below guessing the mean",
    )
    names = sorted(trained.importances, key=lambda name: trained.importances[name])
    right.barh(
        [name.replace("_", " ") for name in names],
        [trained.importances[name] for name in names],
        color=appearance.CERTIFIED.colour,
    )
    right.set(xlabel="importance", title="what the prediction rests on")
    for axes in (left, right):
        axes.title.set_fontsize(10)
        axes.spines[["top", "right"]].set_visible(False)
    return figure


def winning_map(found: WinningMap, title: str) -> Figure:
    """Dimension against epsilon: the Gaussian's E|z| over the best other noise's, and where they are equal."""
    from matplotlib.colors import TwoSlopeNorm

    figure, axes = _figure(6.8, 4.2)
    gain = found.gain.T
    top = max(1.01, float(gain.max()))
    norm = TwoSlopeNorm(1.0, vmin=min(0.7, float(gain.min())), vmax=top)
    shading = axes.pcolormesh(
        found.epsilons, found.dimensions, gain, cmap="RdBu", norm=norm, shading="gouraud", rasterized=True
    )
    figure.colorbar(shading, label="E|z| of Gaussian noise / best other noise")
    if gain.min() < 1 < gain.max():
        axes.contour(found.epsilons, found.dimensions, gain, levels=[1.0], colors="black", linewidths=1.5)
        axes.text(0.97, 0.06, "a shape wins", transform=axes.transAxes, ha="right", color="white")
        axes.text(0.03, 0.93, "Gaussian noise wins", transform=axes.transAxes, va="top", color="white")
    axes.set(
        xscale="log", yscale="log", xlabel="certified epsilon", ylabel="coordinates an example can move", title=title
    )
    low, high = found.epsilons[0], found.epsilons[-1]
    ticks = [tick for tick in (0.1, 0.25, 0.5, 1, 2, 4, 8, 16) if low <= tick <= high]
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.title.set_fontsize(10)
    return figure
