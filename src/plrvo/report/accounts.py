"""A privacy account on the page: what is spent after each entry, what is left, and which runs of the page it was."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from plrvo import appearance
from plrvo.accounting.printed import rounded_down, rounded_up
from plrvo.budget import Account, Standing
from plrvo.budget.account import State
from plrvo.budget.address import Url
from plrvo.budget.compared import account_differences
from plrvo.budget.entry import Entry
from plrvo.report import numbers
from plrvo.report.charts import Chart, Line, line_chart
from plrvo.report.findings import Finding, Tone
from plrvo.report.places import typed
from plrvo.report.runs import Charged, Run, Training

_MOST_POINTS = 40  # of a curve: each is the bracket of all entries before it


def read_account(account: Account, runs: Sequence[Run]) -> Charged:
    """The account beside the runs of the page: those that name it must agree with it."""
    state = account.state()
    known: dict[int, Training] = {}
    others, differences = [], []
    for run in runs:
        if not isinstance(run, Training) or run.receipt is None:
            continue
        record = run.receipt.get("budget")
        if not isinstance(record, Mapping) or record.get("account") != state.id:
            others.append(run.name)
            continue
        found = account_differences(run.receipt.document, state)
        differences += [f"{run.name}: {difference}" for difference in found]
        if not found:
            known[record["entry"]] = run
    return Charged(state.name, _where(account), state, known, others, differences)


def _where(account: Account) -> str:
    """Without the hosts of a machine, as without its folders: a page is sent around."""
    url = account.address
    return f"URL#{url.account}" if isinstance(url, Url) else typed(account.path)


def course(state: State) -> list[tuple[int, Standing]]:
    """What was spent after entries 0, 1, 2, ..., by what is charged of them now; evenly fewer where there are many."""
    count = len(state.entries)
    every = -(-count // _MOST_POINTS) or 1
    shown = [number for number in range(count + 1) if (count - number) % every == 0]
    return [(number, replace(state, entries=state.entries[:number]).standing()) for number in shown]


def section(run: Charged, anchors: Mapping[int, str]) -> dict[str, Any]:
    """What the template shows."""
    state, points = run.state, course(run.state)
    standing = points[-1][1]
    after = dict(points)
    least, most = standing.left
    return {
        "heading": "The account of the data",
        "epsilon": numbers.near(standing.epsilon, "account-epsilon", 6),
        "delta": numbers.near(standing.delta, "account-delta", 6),
        "spent": numbers.up(standing.spent, "spent"),
        "reached": numbers.down(standing.lower, "reached"),
        "least": numbers.down(least, "left-at-least"),
        "most": numbers.up(most, "left-at-most"),
        "adjacency": str(state.adjacency),
        "findings": _findings(run),
        "charts": [_chart(points)] if state.entries else [],
        "rows": [_row(entry, after.get(entry.number), run.runs.get(entry.number), anchors) for entry in state.entries],
        "commands": [
            ("Ask the account again:", f"plrvo budget show {run.where}"),
            ("Compare a run with it:", f"plrvo verify RUN --budget {run.where}"),
        ],
    }


def _row(entry: Entry, after: Standing | None, run: Training | None, anchors: Mapping[int, str]) -> dict[str, Any]:
    return {
        "entry": entry.number,
        "name": entry.name,
        "anchor": None if run is None else anchors[id(run)],
        "run": None if run is None else run.name,
        "noise": entry.reserved.noise.before_rounding.kind,
        "state": "reserved" if entry.settled is None else "settled",
        "charged": entry.charged,
        "planned": entry.planned,
        "spent": None if after is None else numbers.up(after.spent, "spent-after"),
        "left": None if after is None else numbers.down(after.left[0], "left-after"),
        "at": entry.at[:10],
    }


def _findings(run: Charged) -> list[Finding]:
    state = run.state
    found = []
    if run.differences:
        text = "Runs on this page know other things of the account than it says: a copy was put back, or changed."
        found.append(Finding(Tone.bad, "Differs", text))
    if state.entries:
        whose = "The one entry keeps" if len(state.entries) == 1 else f"All {len(state.entries)} together keep"
        text = f"{whose} the epsilon of the account, whoever chose their plans."
        found.append(Finding(Tone.good, "Entries", text))
    held = [entry.number for entry in state.entries if entry.settled is None]
    if held:
        text = f"{_listed('Entry', 'Entries', held)} reserved and not settled: all planned steps are charged."
        found.append(Finding(Tone.warning, "Reserved", text))
    if run.others:
        text = f"{', '.join(run.others)}: not charged to this account. What it says does not cover them."
        found.append(Finding(Tone.warning, "Not charged", text))
    if state.closed:
        found.append(Finding(Tone.note, "Closed", "The account takes no more plans."))
    return found


def _listed(one: str, several: str, held: Sequence[int]) -> str:
    if len(held) == 1:
        return f"{one} {held[0]} is"
    return f"{several} {', '.join(map(str, held[:-1]))} and {held[-1]} are"


def _chart(points: Sequence[tuple[int, Standing]]) -> Chart:
    lines = [
        Line(
            "spent: at most",
            [(number, found.spent) for number, found in points],
            appearance.CERTIFIED.style,
            tell=lambda value: f"at most {rounded_up(value)}",
        ),
        Line(
            "an attacker reaches at least",
            [(number, found.lower) for number, found in points],
            appearance.LOWER.style,
            tell=lambda value: f"at least {rounded_down(value)}",
        ),
        Line(
            "the epsilon of the account",
            [(number, found.epsilon) for number, found in (points[0], points[-1])],
            appearance.OTHER.style,
        ),
    ]
    chart = line_chart(
        "What is spent, entry after entry",
        "All entries so far together, with the steps that are charged now. What lies above the upper curve is left.",
        "entry",
        "epsilon",
        lines,
        tell_x="{:g}".format,
        tell_y="{:g}".format,
    )
    return replace(chart, x_ticks=[tick for tick in chart.x_ticks if tick.label.isdigit()])  # there is no half an entry


def document(run: Charged) -> dict[str, Any]:
    """Every event, as `plrvo budget history --json` tells them."""
    told = [{**event.document, "number": event.number, "digest": event.digest} for event in run.state.events]
    return {"events": told}
