"""Where the lines and points of a chart go. The template draws them as inline SVG; `script.js` answers hover and keys.

No chart library: the page must work without a network and be small enough to send, and the smallest libraries are
larger than everything else on it. What they would add (zooming, animation) a report does not need.

A chart is laid out for a phone, WIDTH units wide, so that its letters are readable there; a larger screen scales it up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from plrvo.appearance import STYLES
from plrvo.report.axes import Axis, Format, LogAxis, Tick

WIDTH = 380.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 44.0, 12.0, 10.0, 38.0
_HEADED = 22.0  # the top where the name of the vertical axis stands above it
_HEIGHT = 246.0
_MOST_COLUMNS = 12  # of a table under a chart
_ROW_LABEL, _ROW_LINE, _ROW_GAP = 17.0, 13.0, 7.0


@dataclass(frozen=True)
class Point:
    """A value: `x` and `y` on the paper, `value` as it is in the file, `tip` in words."""

    x: float
    y: float
    value: float
    tip: str


@dataclass(frozen=True)
class Series:
    """Points that belong together. `style` is their colour and shape; hollow marks are filled with the paper."""

    label: str
    style: int
    points: Sequence[Point] = ()
    path: str = ""
    marked: bool = True
    hollow: bool = False
    named: bool = True  # in the legend: of several with one label, the first


@dataclass(frozen=True)
class Span:
    """A bar between two values on one line."""

    x: float
    y: float
    width: float
    style: int


@dataclass(frozen=True)
class Chart:
    """Everything that the template draws, and the numbers as a table for those who do not see it."""

    title: str
    description: str
    x_label: str
    y_label: str
    height: float
    x_ticks: Sequence[Tick]
    y_ticks: Sequence[Tick] = ()
    series: Sequence[Series] = ()
    spans: Sequence[Span] = ()
    row_labels: Sequence[Tick] = ()
    head: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    width: float = WIDTH
    left: float = _LEFT
    right: float = WIDTH - _RIGHT
    top: float = _TOP
    always_named: bool = False  # a legend even for one series

    @property
    def bottom(self) -> float:
        return self.height - _BOTTOM


@dataclass(frozen=True)
class Line:
    """A curve to draw: its name in the legend, its points, and its style; `told` names it where it is pointed at.

    `tell` says its values, where they are bounds to another side than those of the other curves.
    """

    label: str
    points: Sequence[tuple[float, float]]
    style: int | None = None
    told: str = ""
    tell: Format | None = None


def line_chart(
    title: str,
    description: str,
    x_label: str,
    y_label: str,
    lines: Sequence[Line],
    *,
    tell_x: Format,
    tell_y: Format,
    from_zero: bool = True,
    marked: bool = True,
    joined: bool = True,
    ticks: Format = "{:g}".format,
) -> Chart:
    """Curves over a common axis."""
    xs = [x for line in lines for x, _ in line.points]
    ys = [y for line in lines for _, y in line.points]
    x_axis = Axis.over(xs, False, _LEFT, WIDTH - _RIGHT, 5)
    y_axis = Axis.over(ys, from_zero, _HEIGHT - _BOTTOM, _HEADED, 5, room=0.04)
    series = []
    for i, line in enumerate(lines):
        style = (i if line.style is None else line.style) % len(STYLES)
        name = f"{line.told or line.label}: " if len(lines) > 1 else ""
        say = line.tell or tell_y
        points = [
            Point(x_axis.at(x), y_axis.at(y), y, f"{name}{say(y)}\n{x_label} {tell_x(x)}") for x, y in line.points
        ]
        named = line.label not in (other.label for other in lines[:i])
        series.append(Series(line.label, style, points, _path(points) if joined else "", marked, named=named))
    shared = sorted(set(xs))
    found = [(dict(line.points), line.tell or tell_y) for line in lines]
    rows = [[tell_x(x), *(say(by[x]) if x in by else "" for by, say in found)] for x in shared]
    rows = rows if marked and len(lines) <= _MOST_COLUMNS else []
    return Chart(
        title=title,
        description=description,
        x_label=x_label,
        y_label=y_label,
        height=_HEIGHT,
        x_ticks=x_axis.ticks("{:g}".format),
        y_ticks=y_axis.ticks(ticks),
        series=series,
        head=[x_label, *(line.told or line.label for line in lines)],
        rows=rows,
        top=_HEADED,
    )


@dataclass(frozen=True)
class Dot:
    """A value on a line of a row: `kind` is the name in the legend, `tip` what it says."""

    kind: str
    value: float
    tip: str
    line: int = 0


@dataclass(frozen=True)
class DotRow:
    """A row of a dot chart; `spans` are bars from one value to another, by line."""

    label: str
    dots: Sequence[Dot]
    spans: Sequence[tuple[int, float, float, int]] = field(default=())  # line, from, to, style

    @property
    def lines(self) -> int:
        return max((dot.line for dot in self.dots), default=0) + 1


@dataclass(frozen=True)
class Kind:
    """A kind of dot: its style, and whether it is hollow."""

    style: int
    hollow: bool = False


def dot_chart(
    title: str,
    description: str,
    x_label: str,
    kinds: dict[str, Kind],
    rows: Sequence[DotRow],
    *,
    from_zero: bool = True,
    head: Sequence[str] = (),
    table: Sequence[Sequence[str]] = (),
) -> Chart:
    """Values along a horizontal axis, a row for each thing that has them, its name above its lines."""
    values = [dot.value for row in rows for dot in row.dots]
    wide = LogAxis.over(values, 14.0, WIDTH - _RIGHT - 4) if from_zero else None
    axis = wide or Axis.over(values, from_zero, 14.0, WIDTH - _RIGHT - 4, 6, room=0.06)
    x_label = f"{x_label}, logarithmic" if wide else x_label
    named = any(row.label for row in rows)
    points: dict[str, list[Point]] = {kind: [] for kind in kinds}
    spans, labels, y = [], [], _TOP
    for row in rows:
        if named:
            labels.append(Tick(y + 12, row.label))
            y += _ROW_LABEL
        first = y + _ROW_LINE / 2
        for dot in row.dots:
            points[dot.kind].append(Point(axis.at(dot.value), first + dot.line * _ROW_LINE, dot.value, dot.tip))
        for line, low, high, style in row.spans:
            start, end = sorted((axis.at(low), axis.at(high)))
            spans.append(Span(start, first + line * _ROW_LINE, max(end - start, 0.5), style))
        y += row.lines * _ROW_LINE + _ROW_GAP
    return Chart(
        title=title,
        description=description,
        x_label=x_label,
        y_label="",
        height=y + _BOTTOM,
        x_ticks=axis.ticks("{:g}".format),
        series=[
            Series(name, kind.style % len(STYLES), points[name], hollow=kind.hollow)
            for name, kind in kinds.items()
            if points[name]
        ],
        spans=spans,
        row_labels=labels,
        head=head,
        rows=table,
        left=14.0,
    )


def _path(points: Sequence[Point]) -> str:
    return "M" + "L".join(f"{point.x:g},{point.y:g}" for point in points) if len(points) > 1 else ""
