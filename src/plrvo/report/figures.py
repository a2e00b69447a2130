"""Which charts a page has, and what stands on them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from plrvo import appearance
from plrvo.accounting.printed import rounded_down, rounded_up
from plrvo.audit.receipt import Examined
from plrvo.paper.wording import told
from plrvo.records.receipt import Bracket
from plrvo.report.charts import Chart, Dot, DotRow, Kind, Line, dot_chart, line_chart
from plrvo.report.densities import Densities, densities
from plrvo.report.numbers import tell_metric
from plrvo.report.runs import AuditResult, Reproduction, Training

CERTIFIED, LOWER, PUBLISHED, PRINTED, AUDITED = (
    "certified: at most",
    "an attacker reaches at least",
    "the paper's formula",
    "printed in the paper",
    "an attack reached",
)
_KINDS = {
    CERTIFIED: Kind(appearance.CERTIFIED.style),
    LOWER: Kind(appearance.LOWER.style),
    PUBLISHED: Kind(appearance.PUBLISHED.style, hollow=True),
    PRINTED: Kind(appearance.OTHER.style, hollow=True),
}
_SPAN = appearance.CERTIFIED.style  # of bars between the bounds
_MOST_ROWS, _MOST_VALUES = 60, 120  # of charts with a line for each: longer ones are lists, as the tables are already
_FEW = 12  # curves whose every point is marked
_ALIKE = 5.0  # measures whose largest values differ by no more than this factor share an axis


def bracket_dots(bracket: Bracket, printed: float | None = None) -> list[Dot]:
    """The epsilons of one thing, on one line."""
    told = (
        (CERTIFIED, bracket.certified, rounded_up),
        (LOWER, bracket.lower, rounded_down),
        (PUBLISHED, bracket.published, "{:.4g}".format),
        (PRINTED, printed, "{:.4g}".format),
    )
    return [Dot(kind, value, f"{kind} {tell(value)}") for kind, value, tell in told if value is not None]


def bracket_chart(rows: Sequence[tuple[str, Bracket, float | None]], title: str) -> Chart | None:
    """The brackets of several things, or of one without a name."""
    drawn = []
    for label, bracket, printed in rows:
        dots = bracket_dots(bracket, printed)
        known = bracket.lower is not None and bracket.certified is not None
        spans = [(0, bracket.lower or 0.0, bracket.certified or 0.0, _SPAN)] if known else []
        if dots:
            drawn.append(DotRow(label, dots, spans))
    if not 0 < len(drawn) <= _MOST_ROWS:
        return None
    description = "Epsilon: the true value lies on the bar between what an attacker reaches and what is proved."
    head, table = ["", *_KINDS], []
    for row in drawn:
        told = {dot.kind: dot.tip.removeprefix(dot.kind).strip() for dot in row.dots}
        table.append([row.label, *(told.get(kind, "") for kind in _KINDS)])
    return dot_chart(title, description, "epsilon", _KINDS, drawn, head=head, table=table if len(drawn) > 1 else [])


def _line(run: Training, runs: Sequence[Training], points: Sequence[tuple[float, float]]) -> Line:
    """A curve in the colour of its noise where that tells the runs apart, or where there are too many to tell."""
    kinds = [each.kind_of_noise for each in runs]
    if len(set(kinds)) == len(runs):
        return Line(run.name, points, appearance.of(run.kind_of_noise).style)
    if len(runs) <= len(appearance.STYLES):
        return Line(run.name, points, list(runs).index(run))
    return Line(f"{run.kind_of_noise} noise", points, appearance.of(run.kind_of_noise).style, run.name)


def metric_charts(runs: Sequence[Training]) -> list[Chart]:
    """Metrics over steps, a chart for each name, with the runs that have it."""
    charts = []
    for name in dict.fromkeys(run.metric for run in runs if run.metric):
        lines = [
            _line(run, runs, [(row["step"], row[name]) for row in run.history]) for run in runs if run.metric == name
        ]
        charts.append(
            line_chart(
                f"Test {name} over steps",
                f"{name.capitalize()} on test data while training goes on, as the run recorded it.",
                "step",
                _metric_axis(name),
                lines,
                tell_x="{:g}".format,
                tell_y=partial(tell_metric, name),
                marked=len(lines) <= _FEW,
                ticks=partial(_metric_tick, name),
            )
        )
    return charts


def _metric_axis(name: str) -> str:
    """As `curves.png` and the pictures of `plrvo reproduce` have it."""
    return "test accuracy, %" if name == "accuracy" else f"test {name}"


def _metric_tick(name: str, value: float) -> str:
    return f"{100 * value:g}" if name == "accuracy" else f"{value:g}"


def trade_charts(runs: Sequence[Training]) -> list[Chart]:
    """The last metric of each run against its certified epsilon, a chart for each name; of runs that verify."""
    charts = []
    for name in dict.fromkeys(run.metric for run in runs if run.metric):
        lines = []
        for run in runs:
            certified = run.receipt.bracket.certified if run.receipt is not None and run.verified else None
            if run.metric == name and certified is not None:
                style = appearance.of(run.kind_of_noise).style
                point = (certified, run.history[-1][name])
                lines.append(Line(f"{run.kind_of_noise} noise", [point], style, run.name))
        if len(lines) > 1:
            charts.append(
                line_chart(
                    f"Test {name} against certified epsilon",
                    "One point for each run that verifies. Further left is more private.",
                    "epsilon, at most",
                    _metric_axis(name),
                    lines,
                    tell_x=rounded_up,
                    tell_y=partial(tell_metric, name),
                    from_zero=False,
                    joined=False,
                    ticks=partial(_metric_tick, name),
                )
            )
    return charts


def epsilon_chart(runs: Sequence[Training]) -> Chart | None:
    """Certified epsilon over steps, of runs whose receipts verify."""
    lines = []
    for run in runs:
        points = [(row["step"], row["epsilon_certified"]) for row in run.history if "epsilon_certified" in row]
        if run.verified and points:
            lines.append(_line(run, runs, points))
    if not lines:
        return None
    return line_chart(
        "Certified epsilon over steps",
        "Every step spends some of the budget; as the run recorded it.",
        "step",
        "epsilon, at most",
        lines,
        tell_x="{:g}".format,
        tell_y=lambda value: f"epsilon at most {rounded_up(value)}",
        marked=len(lines) <= _FEW,
    )


def density_chart(receipt: Examined) -> tuple[Chart, str] | None:
    """The noise beside Gaussian noise of the same certified epsilon, and a sentence about their sizes."""
    found = None if receipt.differences else densities(receipt.plan)
    if found is None:
        return None
    kind = f"{receipt.noise['noise']} noise of this run"
    lines = [Line(kind, found.noise, appearance.of(kind).style)]
    if found.gaussian is not None:
        lines.append(Line("gaussian noise, same epsilon", found.gaussian, appearance.GAUSSIAN.style))
    chart = line_chart(
        "The noise, in units of the clip",
        "Probability of each noise value, for one coordinate of a gradient; 1 is the clip, the longest that the "
        "gradient of one example can be.",
        "noise over clip",
        "density",
        lines,
        tell_x="{:.3g}".format,
        tell_y="density {:.3g}".format,
        marked=False,
    )
    return chart, _sizes(found)


def _sizes(found: Densities) -> str:
    if found.gaussian is None:
        return f"On average this noise has the size of {found.size:.3g} clips. It is Gaussian, the usual choice."
    share = found.size / found.gaussian_size - 1
    how = "the same size" if abs(share) < 0.005 else f"{abs(100 * share):.0f} % {'more' if share > 0 else 'less'} noise"
    return (
        f"On average this noise has the size of {found.size:.3g} clips; Gaussian noise that certifies the same epsilon "
        f"has {found.gaussian_size:.3g}: this run added {how} than Gaussian noise would need."
        if how != "the same size"
        else f"On average both have the size of {found.size:.3g} clips."
    )


def measure_charts(run: Reproduction) -> list[Chart]:
    """What the paper prints and what was measured: on one axis if the values are of one size, else one for each."""
    sizes = {name: max(map(abs, _values(run, name)), default=0.0) for name in run.measures}
    known = [name for name in run.measures if sizes[name] > 0]
    if not known:
        return []
    alike = max(sizes[name] for name in known) <= _ALIKE * min(sizes[name] for name in known)
    if sum(len(_values(run, name)) for name in known) > _MOST_VALUES:
        return []
    return [_measure_chart(run, group) for group in ([known] if alike else [[name] for name in known])]


def _values(run: Reproduction, name: str) -> list[float]:
    found = [part.get(name) for row in run.rows for part in (row.printed, row.measured)]
    return [value for value in found if value is not None]


def _tip(name: str, word: str, value: float) -> str:
    """What was measured may be a bound; what the paper prints is told as it is."""
    return f"{name}\n{word} {told(name, value) if word == 'measured' else f'{value:.4g}'}"


def _measure_chart(run: Reproduction, measures: Sequence[str]) -> Chart:
    kinds: dict[str, Kind] = {}
    for i, name in enumerate(measures):
        kinds[f"{name}, printed"] = Kind(i, hollow=True)
        kinds[f"{name}, measured"] = Kind(i)
    rows = []
    for row in run.rows:
        dots, spans, line = [], [], 0
        for i, name in enumerate(measures):
            values = {"printed": row.printed.get(name), "measured": row.measured.get(name)}
            known = [(word, value) for word, value in values.items() if value is not None]
            dots += [Dot(f"{name}, {word}", value, _tip(name, word, value), line) for word, value in known]
            if len(known) == 2:
                spans.append((line, known[0][1], known[1][1], i))
            line += bool(known)
        if dots:
            rows.append(DotRow(row.label, dots, spans))
    description = "Hollow marks are printed in the paper, full ones were measured; a bar joins the two."
    title = "Printed and measured" if len(measures) > 1 else f"Printed and measured: {measures[0]}"
    axis = measures[0] if len(measures) == 1 else "value"
    return dot_chart(title, description, axis, kinds, rows, from_zero=False)


def audit_chart(results: Sequence[AuditResult]) -> Chart:
    """What was claimed and what an attack reached."""
    claimed = "the claim"
    kinds = {claimed: Kind(appearance.CERTIFIED.style), AUDITED: Kind(appearance.LOWER.style)}
    rows = [
        DotRow(
            f"{result.label}: {result.verdict}",
            [
                Dot(claimed, result.claimed, f"{result.claim} claim {rounded_up(result.claimed)}"),
                Dot(AUDITED, result.audited, f"an attack reached {rounded_down(result.audited)}"),
            ],
        )
        for result in results
    ]
    description = "A claim is refuted where the attack has reached more than it allows."
    return dot_chart("Claimed and reached", description, "epsilon", kinds, rows)
