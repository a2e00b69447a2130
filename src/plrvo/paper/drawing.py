"""The figure of an entry, from its finished rows alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from plrvo.files import write_figure
from plrvo.paper.entry import Panel, Result

COLORS = ("#2a6fbb", "#c0392b", "#2e8b57", "#8e5ea2", "#d98c21", "#5f6a72", "#17a2a2", "#a0522d")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
LINES = ("-", ":", "-.")


def draw(panels: Sequence[Panel], rows: Sequence[Result], path: Path, title: str) -> None:
    """Write the picture: measured values with full markers, the paper's with hollow ones and broken lines."""
    from matplotlib.figure import Figure

    panels = [panel for panel in panels if any(panel.only(row) for row in rows)] or panels
    across = min(2, len(panels))
    down = -(-len(panels) // across)
    figure = Figure(figsize=(7.2 if across == 1 else 11.0, 4.4 * down), layout="constrained")
    figure.suptitle(title, fontsize=11)
    grid = figure.subplots(down, across, squeeze=False).ravel()
    for axes, panel in zip(grid, panels, strict=False):
        _draw_panel(axes, panel, [row for row in rows if panel.only(row)])
    for axes in grid[len(panels) :]:
        axes.set_axis_off()
    write_figure(figure, path, dpi=140)


def _draw_panel(axes: Any, panel: Panel, rows: list[Result]) -> None:
    drawn = 0
    groups = list(dict.fromkeys(None if panel.lines is None else row["parameters"].get(panel.lines) for row in rows))
    crossed = len(groups) > 1 and len(panel.ys) > 1  # then the colour is the group's, the kind of line the value's
    for i, group in enumerate(groups):
        mine = [row for row in rows if panel.lines is None or row["parameters"].get(panel.lines) == group]
        for j, name in enumerate(panel.ys):
            parts = (group, shown(name) if len(panel.ys) > 1 or group is None else None)
            label = ", ".join(str(part) for part in parts if part)
            color, marker = (i, j) if crossed else (drawn, drawn)
            style: dict[str, Any] = {"color": COLORS[color % len(COLORS)], "marker": MARKERS[marker % len(MARKERS)]}
            style["linestyle"] = LINES[j % len(LINES)] if crossed else "-"
            drawn += _draw_line(axes, panel, mine, name, label, style)
    _draw_levels(axes, panel, rows)
    axes.set_xlabel(panel.xlabel)
    axes.set_ylabel(panel.ylabel)
    axes.set_title(panel.title, fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_xscale("log" if panel.xlog else "linear")
    axes.set_yscale("log" if panel.ylog else "linear")
    if panel.paint is not None:
        panel.paint(axes, rows)
    for axis, logarithmic in ((axes.xaxis, panel.xlog), (axes.yaxis, panel.ylog)):
        if logarithmic:
            _tick_logarithms(axis)
    named = len(axes.get_legend_handles_labels()[0])
    if named:
        beside = {"loc": "upper left", "bbox_to_anchor": (1.0, 1.0)} if named > 6 else {}
        axes.legend(fontsize=8, edgecolor="none", framealpha=0.8, **beside)


def _tick_logarithms(axis: Any) -> None:
    """Plain numbers at 1, 2 and 5 where an axis has too few decades to be read by powers of ten."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    low, high = axis.get_view_interval()
    if low > 0 and high / low < 100:
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_minor_formatter(NullFormatter())


def _draw_line(axes: Any, panel: Panel, rows: list[Result], name: str, label: str, style: dict[str, Any]) -> int:
    """Whether something was there to be drawn."""
    if panel.curve is not None:
        curves = [row["details"][panel.curve] for row in rows if panel.curve in row["details"]]
        for curve in curves:
            axes.plot([x for x, _ in curve], [y for _, y in curve], color=style["color"], label=label or None)
        return bool(curves)
    found = False
    for part, look in (
        ("measured", {"markersize": 4, "label": label}),
        ("printed", {"markersize": 6, "markerfacecolor": "none", "linestyle": "--", "label": f"{label} (paper)"}),
    ):
        pairs = [(value_of(row, panel.x), value_of(row, name, part)) for row in rows]
        pairs = sorted((x, y) for x, y in pairs if x is not None and y is not None)
        if pairs:
            axes.plot([x for x, _ in pairs], [y for _, y in pairs], **(style | look))
            found = True
    if panel.spread is not None:
        _draw_spread(axes, panel, rows, name, style["color"])
    return int(found)


def _draw_spread(axes: Any, panel: Panel, rows: list[Result], name: str, color: str) -> None:
    """Bars of one spread to each side of measured values."""
    bars = [(value_of(row, panel.x), row["measured"].get(name), row["measured"].get(panel.spread)) for row in rows]
    bars = [bar for bar in bars if None not in bar]
    if bars:
        x, y, spread = zip(*bars, strict=True)
        axes.errorbar(x, y, yerr=spread, fmt="none", ecolor=color, elinewidth=1, capsize=3)


def _draw_levels(axes: Any, panel: Panel, rows: list[Result]) -> None:
    """Horizontal lines, and the line on which both axes agree."""
    for name in panel.levels:
        for part, line, mark in (("measured", "-.", ""), ("printed", ":", " (paper)")):
            for value in sorted({row[part][name] for row in rows if row[part].get(name) is not None}):
                axes.axhline(value, color="#5f6a72", linewidth=1, linestyle=line, label=f"{shown(name)}{mark}")
    if panel.diagonal:
        largest = max((x for row in rows if (x := value_of(row, panel.x)) is not None), default=1.0)
        axes.plot([0, largest], [0, largest], color="#9aa3aa", linewidth=1, label=f"y = {panel.xlabel}")


def shown(name: str) -> str:
    """A name of values for people."""
    return name.removeprefix("epsilon.").replace("_", " ")


def value_of(row: Result, name: str, part: str = "measured") -> Any:
    """An epsilon (`epsilon.certified`), a measured or printed value, or a parameter, by name."""
    if name.startswith("epsilon."):
        return row["epsilon"].get(name.removeprefix("epsilon.")) if part == "measured" else None
    return row[part].get(name, row["parameters"].get(name) if part == "measured" else None)
