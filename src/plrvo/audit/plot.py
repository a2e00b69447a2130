"""The paper's figure: audited epsilon against claimed epsilon, with the line that no honest claim is above."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plrvo import appearance
from plrvo.files import check_figure, check_writable, write_figure
from plrvo.validate import InvalidArgument, installing


@dataclass(frozen=True)
class Point:
    """One audit: what was claimed, what was reached, and the most that its runs could have shown."""

    label: str
    claimed: float
    audited: float
    certifiable: float


def check_plot(path: Path) -> None:
    """Refuse a file that could not be drawn, before any run is spent on it."""
    check_figure(path)
    check_writable(path, "plot")
    if importlib.util.find_spec("matplotlib") is None:
        raise InvalidArgument("plot", str(path), f"matplotlib: {installing('report')}")


def plot_audits(points: Sequence[Point], path: Path, title: str = "") -> None:
    """Write the figure to a .png, .pdf or .svg file."""
    plot_panels({title: points}, path)


def plot_panels(panels: Mapping[str, Sequence[Point]], path: Path) -> None:
    """The same with one panel for each title, two in a row."""
    check_plot(path)
    write_figure(audits_figure(panels), path)


def audits_figure(panels: Mapping[str, Sequence[Point]]) -> Any:
    """The figure of `plot_panels`."""
    from matplotlib.figure import Figure

    columns = min(2, len(panels))
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(6.4 if columns == 1 else 9.0, 3.8 * rows), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes, (title, points) in zip(grid, panels.items(), strict=False):
        _draw(axes, points, title)
    for axes in grid[len(panels) :]:
        axes.set_axis_off()
    return figure


def _draw(axes: Any, points: Sequence[Point], title: str) -> None:
    points = [point for point in points if point.claimed < float("inf")]  # an infinite claim has no place
    top = 1.08 * max([0.1, *(max(point.claimed, point.audited) for point in points)])
    axes.plot(
        [0, top], [0, top], color=appearance.OTHER.colour, linewidth=1, label="audited = claimed: above it, refuted"
    )
    limit = max((point.certifiable for point in points), default=top)
    if limit < top:
        axes.axhline(
            limit, color=appearance.OTHER.colour, linestyle=":", linewidth=1, label="most that so many runs could show"
        )
    labels = list(dict.fromkeys(point.label for point in points))
    for label, look in zip(labels, appearance.lines(labels), strict=True):
        own = sorted((point.claimed, point.audited) for point in points if point.label == label)
        axes.plot(*zip(*own, strict=True), **look, label=label)
    axes.set(
        xlim=(0, top), ylim=(0, None), xlabel="claimed epsilon", ylabel="audited epsilon (lower bound)", title=title
    )
    axes.legend(frameon=False, fontsize="small")
    axes.spines[["top", "right"]].set_visible(False)
