"""The figure of an entry, from its finished rows alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from textwrap import wrap
from typing import Any

from plrvo import appearance
from plrvo.files import write_figure
from plrvo.paper.entry import Panel, Result

_DASHES = ("-", ":", "-.")
_PARTS = ("measured", "printed")
_FEW = 4  # lines: of more, large marks would cover what they are to show
_SEEN = 0.02  # of the height of a picture: less looks flat


def draw(panels: Sequence[Panel], rows: Sequence[Result], path: Path, title: str, stand_in: str | None = None) -> None:
    """Write the picture to a file."""
    write_figure(picture(panels, rows, title, stand_in), path, dpi=140)


def picture(panels: Sequence[Panel], rows: Sequence[Result], title: str, stand_in: str | None = None) -> Any:
    """Measured values with full markers, the paper's with hollow ones and broken lines.

    Under the title stands what was run in place of what the title names, if anything was.
    """
    from matplotlib.figure import Figure

    panels = [panel for panel in panels if any(panel.only(row) for row in rows)] or panels
    panels = [panel for panel in panels if tells(panel, rows)] or panels
    across = min(2, len(panels))
    down = -(-len(panels) // across)
    figure = Figure(figsize=(7.2 if across == 1 else 9.0, (4.2 if across == 1 else 3.8) * down), layout="constrained")
    told = [f"stand-in: {stand_in}"] if stand_in else []
    figure.suptitle("\n".join(line for text in (title, *told) for line in wrap(text, 95)), fontsize=10)
    grid = figure.subplots(down, across, squeeze=False).ravel()
    for axes, panel in zip(grid, panels, strict=False):
        _draw_panel(axes, panel, [row for row in rows if panel.only(row)], wide=across == 1)
    for axes in grid[len(panels) :]:
        axes.set_axis_off()
    return figure


def tells(panel: Panel, rows: Sequence[Result]) -> bool:
    """Whether there is anything to be seen: a curve, or three values that differ, on the scale of y = x if it is drawn.

    Two are a sentence.
    """
    if panel.curve is not None or panel.paint is not None:
        return True
    found, scale = values(panel, [row for row in rows if value_of(row, panel.x) is not None]), 0.0  # what has a place
    if panel.diagonal:
        scale = max((x for row in rows if panel.only(row) and (x := value_of(row, panel.x)) is not None), default=0.0)
    return len(found) > 2 and max(found) - min(found) > _SEEN * scale


def values(panel: Panel, rows: Sequence[Result]) -> set[float]:
    """All that its lines show, measured and printed."""
    found = [value_of(row, name, part) for row in rows if panel.only(row) for name in panel.ys for part in _PARTS]
    return {value for value in found if value is not None}


def _draw_panel(axes: Any, panel: Panel, rows: list[Result], wide: bool) -> None:
    drawn = rows if panel.curve is None else [row for row in rows if panel.curve in row["details"]]
    groups = list(dict.fromkeys(None if panel.lines is None else row["parameters"].get(panel.lines) for row in drawn))
    crossed = len(groups) > 1 and len(panel.ys) > 1  # then the colour is the group's, the kind of line the value's
    # A picture of one noise has that noise's look, as beside others.
    by_group = len(groups) > 1 or (len(panel.ys) == 1 and groups != [None])
    shared = [str(group or "") for group in groups] if by_group else [shown(name) for name in panel.ys]
    looks = appearance.lines(shared, dashes=not crossed)
    for i, group in enumerate(groups):
        mine = [row for row in rows if panel.lines is None or row["parameters"].get(panel.lines) == group]
        for j, name in enumerate(panel.ys):
            parts = (group, shown(name) if len(panel.ys) > 1 or group is None else None)
            label = ", ".join(shown(str(part)) for part in parts if part)
            style: dict[str, Any] = dict(looks[i] if by_group else looks[j])
            style |= {"linestyle": _DASHES[j % len(_DASHES)]} if crossed else {}
            count = len(groups) * len(panel.ys)
            above = count - 1 - (i * len(panel.ys) + j) if count <= _FEW else 0
            style["markersize"] = 4 + 1.2 * above  # a mark under another can be seen
            _draw_line(axes, panel, mine, name, label, style)
    _draw_levels(axes, panel, rows)
    across, up = (80, 50) if wide else (46, 36)  # letters that there is room for
    axes.set_xlabel("\n".join(wrap(panel.xlabel, across)))
    axes.set_ylabel("\n".join(wrap(panel.ylabel, up)))
    axes.set_title("\n".join(wrap(appearance.written(panel.title), across)), fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_xscale("log" if panel.xlog else "linear")
    heights = values(panel, rows)
    ylog = panel.ylog and not (heights and max(heights) <= 0)  # logarithms of nothing are no picture
    axes.set_yscale("log" if ylog else "linear")
    if panel.paint is not None:
        panel.paint(axes, rows)
    for axis, logarithmic in ((axes.xaxis, panel.xlog), (axes.yaxis, ylog)):
        if logarithmic:
            appearance.tick_logarithms(axis)
    named = len(axes.get_legend_handles_labels()[0])
    if named:
        place: dict[str, Any] = {}
        if panel.legend_below:
            place = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.2)}
        elif named > (5 if crossed else 6):
            place = {"loc": "upper left", "bbox_to_anchor": (1.0, 1.0)}
        axes.legend(fontsize=8, edgecolor="none", framealpha=0.8, **place)


def _draw_line(axes: Any, panel: Panel, rows: list[Result], name: str, label: str, style: dict[str, Any]) -> None:
    if panel.curve is not None:
        curves = [row["details"][panel.curve] for row in rows if panel.curve in row["details"]]
        for curve in curves:
            axes.plot(
                [x for x, _ in curve], [y for _, y in curve], **(style | {"marker": None, "label": label or None})
            )
        return
    for part, look in (
        ("measured", {"label": label}),
        ("printed", {"markersize": 6, "markerfacecolor": "none", "linestyle": "--", "label": f"{label} (paper)"}),
    ):
        pairs = [(value_of(row, panel.x), value_of(row, name, part)) for row in rows]
        pairs = sorted((x, y) for x, y in pairs if x is not None and y is not None)
        if pairs:
            axes.plot([x for x, _ in pairs], [y for _, y in pairs], **(style | look))
    if panel.spread is not None:
        _draw_spread(axes, panel, rows, name, style["color"])


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
                axes.axhline(
                    value, color=appearance.OTHER.colour, linewidth=1, linestyle=line, label=f"{shown(name)}{mark}"
                )
    if panel.diagonal:
        largest = max((x for row in rows if (x := value_of(row, panel.x)) is not None), default=1.0)
        axes.plot([0, largest], [0, largest], color=appearance.OTHER.dark, linewidth=1, label=f"y = {panel.xlabel}")


def shown(name: str) -> str:
    """A name of values for people."""
    return appearance.written(name.removeprefix("epsilon."))


def value_of(row: Result, name: str, part: str = "measured") -> Any:
    """An epsilon (`epsilon.certified`), a measured or printed value, or a parameter, by name."""
    if name.startswith("epsilon."):
        return row["epsilon"].get(name.removeprefix("epsilon.")) if part == "measured" else None
    return row[part].get(name, row["parameters"].get(name) if part == "measured" else None)
