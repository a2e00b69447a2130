"""The part of docs/performance.md about twelve models from the field: table, picture, and where milliseconds go."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
from docs.figures.both import shown, write_both

Rows = list[dict[str, Any]]

PLAIN, OURS, HOOKS, GHOST = "no privacy", "plrvo", "Opacus hooks", "Opacus ghost"
WANTED = {"to plain": 1.25, "faster": 1.6, "memory": 1.2}
PARTS = {
    "forward and back": "passes",
    "records": "records",
    "norms": "norms",
    "sums": "sums",
    "noise": "noise",
    "checks": "checks",
    "update": "update",
}
MODELS = 12
FILE = "performance-field.png"

_OPENING = """## Twelve models from the field {{ #field }}

{picture}

The time of a step with one thread, without privacy in milliseconds, the others in units of that. *Computing* is what
plrvo's threads compute together; *hooks* and *ghost* are Opacus's modes ([how it was measured](#measured)).

{table}

With two threads, which leave no core free, and the peak of memory, in the same units:

{more}
"""
_HOW = """### How the twelve models were measured {{ #measured }}

Models as users bring them, sized so that a step takes 20 to 500 ms on one core. plrvo chooses its mode by itself
("auto") and draws Gamma-PLRV noise from a cipher; Opacus draws Gaussian noise from torch's generator. Times are in
units of the step without privacy, as medians of the ratios within a turn. With one thread of torch a core has nothing
to do while gradients are clipped; plrvo draws the first numbers of its noise there (`plrvo.noise.ahead`), and what all
its threads compute together is the column *computing*. Memory is the peak of a process of its own. Where Opacus has a
layer of its own (DPLSTM), or takes bags in one form only, it is given that.{missing}"""
_SAME = """\
Torch multiplies singles by MKL, which takes twice as long as oneDNN on this processor, which is not Intel's. plrvo
takes oneDNN for large products of torch's own linear layers, forward and back (`plrvo.training.clipping.linears`).
*Same products* is plrvo's time in units of a step without privacy whose products go that way too: what privacy alone
costs."""
_PARTS = """### Where the milliseconds go

Parts of plrvo's step, one thread, timed from within: the *passes* are forward and back to the inputs; *records* what
layers note on the way back, gradients that are formed at once included; *norms* of examples; *sums* the weighted
products that stand in the place of weight gradients; *noise* what is left to draw and to add when the sums are there;
*checks* everything that binds a step to its plan; *update* the optimizer's own. A step without privacy has passes,
weight gradients and update.

{table}
"""


def section(groups: dict[str, Rows]) -> str:
    """What most readers came for: picture and tables. Empty where nothing was measured."""
    if "field" not in groups:
        return ""
    rows = groups["field"]
    picture = shown("a step of twelve models", f"images/{FILE}")
    tables = _OPENING.format(picture=picture, table=_table(rows), more=_more(rows)).rstrip()
    return "\n\n".join(part for part in (tables, _errors(rows)) if part)


def taken(groups: dict[str, Rows]) -> str:
    """Two sentences: what to take from the tables."""
    if "field" not in groups:
        return ""
    rows = groups["field"]
    ratios, found = _ratios(rows), _gains(rows)
    slower = [title for title, gain in found.items() if gain < 1]
    least, most, middle = min(ratios.values()), max(ratios.values()), statistics.median(ratios.values())
    words = (
        f"With one thread, a step of [{len(rows)} models from the field](#field) takes {least:.2f} to {most:.2f} times "
        f"as long as without privacy (median {middle:.2f})"
    )
    if peaks := _peaks(rows):
        words += f", in {max(peaks.values()):.2f} times its memory at most"
    if found:
        words += f". The better of Opacus's modes takes {statistics.median(found.values()):.1f} times as long (median)"
    words = f"{words}{'; it is faster for ' + ', '.join(slower) if slower else ''}."
    if _has_same(rows):
        same = statistics.median(row["same_products"]["1"] for row in rows)
        words += (
            " That is beside torch as it comes, whose products of matrices are slow on this processor; beside the same "
            f"models with the products that plrvo takes, privacy costs a factor of {same:.2f} (median)."
        )
    return words


def details(groups: dict[str, Rows]) -> str:
    """How it was measured, what is wanted, and where milliseconds go."""
    if "field" not in groups:
        return ""
    rows = groups["field"]
    missing = f" Each had {min(turns for row in rows for turns in row['turns'].values())} turns or more."
    if len(rows) < MODELS:
        missing += f" So far {len(rows)} of the {MODELS} were measured: medians are theirs alone."
    parts = [_HOW.format(missing=missing), *([_SAME] if _has_same(rows) else []), _verdict(rows)]
    if "field_profile" in groups:
        parts.append(_PARTS.format(table=_parts(groups["field_profile"])).rstrip())
    return "\n\n".join(parts)


def _same(row: dict[str, Any], threads: str) -> float | None:
    found: float | None = row.get("same_products", {}).get(threads)
    return found


def _has_same(rows: Rows) -> bool:
    return any(_same(row, threads) is not None for row in rows for threads in ("1", "2"))


def _ratios(rows: Rows) -> dict[str, float]:
    return {row["title"]: row["to_plain"]["1"][OURS] for row in rows}


def _gains(rows: Rows) -> dict[str, float]:
    return {row["title"]: gain for row in rows if (gain := faster(row)) is not None}


def _peaks(rows: Rows) -> dict[str, float]:
    return {row["title"]: peak for row in rows if (peak := memory(row)) is not None}


def _times(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _of(row: dict[str, Any], threads: str, contender: str) -> float | None:
    found: float | None = row["to_plain"].get(threads, {}).get(contender)
    return found


def faster(row: dict[str, Any], threads: str = "1") -> float | None:
    """How many times plrvo's time the better of Opacus's modes takes."""
    found = row["to_ours"].get(threads, {})
    return min((found[mode] for mode in (HOOKS, GHOST) if mode in found), default=None)


def memory(row: dict[str, Any], contender: str = OURS) -> float | None:
    """In units of the peak without privacy."""
    known = row["megabytes"]
    return known[contender] / known[PLAIN] if contender in known and PLAIN in known else None


def _table(rows: Rows) -> str:
    same = _has_same(rows)
    head = ["model", "batch", "parameters", "no privacy", "plrvo", *(["same products"] if same else []), "computing"]
    lines = _head([*head, "hooks", "ghost", "Opacus's better / plrvo"])
    for row in rows:
        cells = [
            row["title"],
            str(row["batch"]),
            f"{row['parameters']:,}",
            f"{row['milliseconds']['1'][PLAIN]:.0f} ms",
            _times(_of(row, "1", OURS)),
            *([_times(_same(row, "1"))] if same else []),
            _times(row["computed_to_plain"][OURS]),
            *(_times(_of(row, "1", contender)) for contender in (HOOKS, GHOST)),
            _times(faster(row)),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _more(rows: Rows) -> str:
    same = _has_same(rows)
    head = ["model", "time: plrvo", *(["same products"] if same else []), "Opacus's better"]
    lines = _head([*head, "memory: plrvo", "hooks", "ghost"])
    for row in rows:
        two = [v for v in (_of(row, "2", HOOKS), _of(row, "2", GHOST)) if v is not None]
        numbers = [_of(row, "2", OURS), *([_same(row, "2")] if same else []), min(two, default=None)]
        numbers += [memory(row, contender) for contender in (OURS, HOOKS, GHOST)]
        lines.append("| " + " | ".join([row["title"], *map(_times, numbers)]) + " |")
    return "\n".join(lines)


def _head(names: list[str]) -> list[str]:
    return ["| " + " | ".join(names) + " |", "|" + "---|" * len(names)]


def _errors(rows: Rows) -> str:
    lines = [f"- {row['title']}, {who}: `{error}`" for row in rows for who, error in row["errors"].items()]
    return "\n".join(["What cannot be done, with the first line of the error:", "", *lines]) if lines else ""


def _verdict(rows: Rows) -> str:
    """Beside what the project wants of itself, whatever is short of it."""
    ratios, gains, peaks = _ratios(rows), _gains(rows), _peaks(rows)
    median = statistics.median(ratios.values())
    computed = statistics.median(row["computed_to_plain"][OURS] for row in rows)
    known = [value for row in rows if (value := _same(row, "1")) is not None]
    same = f"beside one with the same products it is {statistics.median(known):.2f}, " if known else ""
    parts = [
        f"The median is {median:.2f} times a step without privacy (we want {WANTED['to plain']}; {same}in computing "
        f"time {'it is ' if not same else ''}{computed:.2f})"
    ]
    if gains:
        parts.append(
            f"and {statistics.median(gains.values()):.2f} times as fast as the better of Opacus's modes "
            f"(we want {WANTED['faster']})"
        )
    lines = [f"{' '.join(parts)}. {_beyond('Slower than Opacus', [t for t, g in gains.items() if g < 1])}"]
    if peaks:
        lines.append(
            f"The largest peak of memory is {max(peaks.values()):.2f} times that without privacy (we want "
            f"{WANTED['memory']}). {_beyond('Above that', [t for t, p in peaks.items() if p > WANTED['memory']])}"
        )
    slow = sorted((t for t, r in ratios.items() if r > WANTED["to plain"]), key=lambda t: -ratios[t])
    lines.append(_beyond(f"Above {WANTED['to plain']} times a step without privacy, the slowest first", slow))
    return "\n".join(lines)


def _beyond(what: str, titles: list[str]) -> str:
    return f"{what}: {'; '.join(titles) or 'none'}."


def _parts(rows: Rows) -> str:
    lines = [
        f"| model | no privacy | plrvo | {' | '.join(PARTS.values())} |",
        "|---|---|---|" + "---|" * len(PARTS),
    ]
    for row in rows:
        ours, plain = row["milliseconds"][OURS], row["milliseconds"][PLAIN]
        cells = [row["title"], f"{sum(plain.values()):.0f} ms", f"{sum(ours.values()):.0f} ms"]
        cells += [f"{ours.get(part, 0.0):.1f}" for part in PARTS]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def draw(rows: Rows, looks: dict[str, Any], folder: Path) -> None:
    """Bars: each contender's step with one thread, in units of the step without privacy."""
    figure, axes = plt.subplots(figsize=(8, 6), layout="constrained")
    contenders = (OURS, HOOKS, GHOST)
    for i, contender in enumerate(contenders):
        places = [j + 0.26 * (i - 1) for j in range(len(rows))]
        widths = [_of(row, "1", contender) or 0.0 for row in rows]
        bars = axes.barh(places, widths, 0.26, label=contender, color=looks[contender]["color"])
        axes.bar_label(bars, labels=[f"{w:.2f}" if w else "cannot" for w in widths], fontsize=7, padding=2)
    axes.axvline(1.0, color=looks[PLAIN]["color"], linewidth=1)
    axes.set_yticks(range(len(rows)), [row["title"] for row in rows], fontsize=8)
    axes.invert_yaxis()
    axes.set_xscale("log")
    ticks = (1, 2, 5, 10, 20, 50, 100)
    axes.set_xticks(ticks, [str(tick) for tick in ticks])
    axes.minorticks_off()
    axes.set_xlabel("time of a step, no privacy = 1 (logarithmic)")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8)
    write_both(figure, folder / FILE, dpi=120)
    plt.close(figure)
