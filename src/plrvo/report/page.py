"""One HTML file with everything in it: style, script and charts. It asks no other file or host for anything.

Its Content-Security-Policy forbids every request, and every script and style but the two of ours, by their digests: a
name in somebody else's receipt could not load or run anything even if it were not escaped, which it is (autoescape).
"""

from __future__ import annotations

import base64
import hashlib
import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import plrvo
from plrvo import appearance
from plrvo.audit.receipt import Examined
from plrvo.paper.entry import place_of
from plrvo.report import accounts, coverage, figures, findings, numbers
from plrvo.report.places import typed
from plrvo.report.runs import Audits, Charged, Reproduction, Run, Training
from plrvo.validate import counted, printable

_FOLDED = 8  # runs, beyond which each opens when it is asked for
_AUTHORS = "as the receipt's author says"


def make_page(runs: Sequence[Run]) -> bytes:
    """The page about these runs, in this order."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=PackageLoader("plrvo.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_visible,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["counted"] = counted
    style = appearance.style_sheet() + _asset(environment, "style.css")
    script = _asset(environment, "script.js")
    trainings = [run for run in runs if isinstance(run, Training)]
    anchors = {id(run): f"run-{i + 1}" for i, run in enumerate(runs)}
    page = environment.get_template("page.html").render(
        title="Privacy report" if len(runs) != 1 else f"Privacy report: {runs[0].name}",
        style=Markup(style),
        script=Markup(script),
        policy=_policy(style, script),
        version=plrvo.__version__,
        sections=[_section(run, i, len(trainings) == 1, anchors) for i, run in enumerate(runs)],
        comparison=_comparison(trainings, anchors) if len(trainings) > 1 else None,
        several=len(runs) > 1,
        account=next((anchors[id(run)] for run in runs if isinstance(run, Charged)), None),
        folded=len(runs) > _FOLDED,
    )
    return page.encode("utf-8", "replace")  # a lone surrogate in a file becomes a question mark


def _visible(value: Any) -> Any:
    """Text without marks that turn its direction around or hide in it; the ends of lines stay."""
    return "\n".join(map(printable, value.split("\n"))) if type(value) is str else value


def _asset(environment: Any, name: str) -> str:
    """As it is, but for the ends of its lines, which browsers make alike before they compare digests."""
    source: str = environment.loader.get_source(environment, name)[0]
    return "\n".join(source.splitlines())


def _policy(style: str, script: str) -> str:
    return (
        f"default-src 'none'; style-src '{digest(style)}'; script-src '{digest(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )


def digest(text: str) -> str:
    """How a policy names a script or a style sheet that stands in the page."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _section(run: Run, index: int, alone: bool, anchors: Mapping[int, str]) -> dict[str, Any]:
    common: dict[str, Any] = {"kind": run.kind, "id": f"run-{index + 1}", "name": run.name}
    common |= {"differences": run.differences, "verified": run.verified}
    if isinstance(run, Training):
        return common | _training(run, alone)
    if isinstance(run, Charged):
        return common | accounts.section(run, anchors) | {"document": _document(accounts.document(run))}
    return common | (_reproduction(run) if isinstance(run, Reproduction) else _audits(run))


def _training(run: Training, alone: bool) -> dict[str, Any]:
    receipt, last = run.receipt, (run.history[-1] if run.history else {})
    private = {} if receipt is None else _private(run, receipt)
    heading = "A run without privacy" if receipt is None else f"{receipt.task}, {receipt.model or 'a model'}"
    charts = [*figures.metric_charts([run]), figures.epsilon_chart([run])] if alone else []
    return {
        "heading": heading,
        "private": receipt is not None,
        "findings": findings.training_findings(run),
        "metrics": [
            (name, numbers.tell_metric(name, value), repr(value))
            for name, value in last.items()
            if name not in ("step", "epsilon_certified")
        ],
        "charts": [chart for chart in charts if chart is not None],
        "steps": last.get("step"),
    } | private


def _private(run: Training, receipt: Examined) -> dict[str, Any]:
    bracket = receipt.bracket
    density = figures.density_chart(receipt)
    return {
        "noise": _noise_words(receipt),
        "facts": coverage.facts(receipt, run.written),
        "remarks": coverage.remarks(receipt),
        "certified": numbers.up(bracket.certified, "certified"),
        "lower": numbers.down(bracket.lower, "lower"),
        "published": numbers.near(bracket.published, "published"),
        "published_note": coverage.published_note(bracket),
        "refuted": bracket.refutes_published,
        "delta": numbers.up(receipt.delta, "delta"),
        "seeded": receipt.seeded,
        "searched": receipt.searched is not None,
        "warning": receipt.warning,
        "metrics_from": "" if receipt.metrics_covered else _AUTHORS if run.stated else "not covered by the receipt",
        "meaning": coverage.meaning(receipt),
        "bracket_chart": figures.bracket_chart([("", bracket, None)], "The bracket") if run.verified else None,
        "density": None if density is None else {"chart": density[0], "sentence": density[1]},
        "coverage": coverage.coverage(receipt),
        "document": _document(receipt.document),
        "file": receipt.path.name,
        "commands": _training_commands(receipt),
    }


def _noise_words(receipt: Examined) -> str:
    return numbers.noise_words(receipt.noise) + (" at first, by a schedule" if receipt.scheduled else "")


def _training_commands(receipt: Examined) -> list[tuple[str, str]]:
    file = typed(receipt.path)
    found = [("Recompute every number of the receipt:", f"plrvo verify {file}")]
    if receipt.document.get("plan", {}).get("correlation") is None and not receipt.scheduled:
        found.append(("Attack the mechanism that it describes:", f"plrvo audit mechanism --receipt {file}"))
    return found


def _what(receipt: Examined) -> str:
    size = f", {counted(receipt.examples, 'example', ',.0f')}" if receipt.examples else ""
    model = f"{receipt.model or 'a model'}, {counted(receipt.dimension, 'parameter', ',')}"
    return f"{receipt.task}{size}; {model}; clip {receipt.clip:g}"


def _comparison(runs: Sequence[Training], anchors: Mapping[int, str]) -> dict[str, Any]:
    rows = []
    for run in runs:
        receipt, last = run.receipt, (run.history[-1] if run.history else {})
        bracket = receipt.bracket if receipt else None
        rows.append(
            {
                "name": run.name,
                "what": _what(receipt) if receipt else "without privacy",
                "noise": _noise_words(receipt) if receipt else "none",
                "certified": numbers.up(bracket.certified, "certified") if bracket else None,
                "lower": numbers.down(bracket.lower, "lower") if bracket else None,
                "published": numbers.near(bracket.published, "published") if bracket else None,
                "refuted": bracket is not None and bracket.refutes_published,
                "delta": numbers.up(receipt.delta, "delta") if receipt else None,
                "steps": last.get("step") if receipt is None else receipt.steps,
                "metric": numbers.tell_metric(run.metric, last[run.metric]) if run.metric else "",
                "metric_name": run.metric or "",
                "verified": run.verified,
                "verdict": run.receipt.verdict if run.receipt else None,
                "remarks": [*coverage.remarks(receipt), *([f"metrics {_AUTHORS}"] if run.stated else [])]
                if receipt
                else ["no noise"],
                "seeded": receipt is not None and receipt.seeded,
                "written": run.written,
                "anchor": anchors[id(run)],
            }
        )
    brackets = [(run.name, run.receipt.bracket, None) for run in runs if run.receipt and run.verified]
    charts = [
        *figures.trade_charts(runs),
        figures.bracket_chart(brackets, "The brackets of all runs"),
        *figures.metric_charts(runs),
        figures.epsilon_chart(runs),
    ]
    drawn = [replace(chart, always_named=True) for chart in charts if chart is not None]
    published = any(run.receipt is not None and run.receipt.bracket.published is not None for run in runs)
    return {"summary": findings.summary(runs), "rows": rows, "charts": drawn, "published": published}


def _reproduction(run: Reproduction) -> dict[str, Any]:
    rows = [
        {
            "label": row.label,
            "parameters": ", ".join(f"{name} {numbers.short(value)}" for name, value in row.parameters.items()),
            "printed_epsilon": numbers.near(row.printed_epsilon, "printed"),
            "published": numbers.near(row.bracket.published, "published"),
            "certified": numbers.up(row.bracket.certified, "certified"),
            "lower": numbers.down(row.bracket.lower, "lower"),
            "standing": findings.standing(row).value,
            "remarked": bool(row.flags) and findings.standing(row) is findings.Standing.holds,
            "measures": [
                (numbers.near(row.printed.get(name), name), numbers.measured(row.measured.get(name), name))
                for name in run.measures
            ],
            "remark": "; ".join(row.flags.values()),
        }
        for row in run.rows
    ]
    brackets = [(row.label, row.bracket, row.printed_epsilon) for row in run.rows]
    drawn = figures.measure_charts(run)
    charts = [*drawn, figures.bracket_chart(brackets, "Epsilon, row by row")]
    commands = [
        ("Run it again:", f"plrvo reproduce {shlex.quote(run.entry)} --scale {shlex.quote(run.scale)} --out NEW_FOLDER")
    ]
    if run.runs:
        commands.append(("Recompute every receipt of its runs:", f"plrvo report {typed(run.folder)}"))
    return {
        "heading": run.title,
        "headline": findings.reproduction_headline(run),
        "where": place_of(run.group, run.paper),
        "stand_in": run.stand_in,
        "scale": run.scale,
        "status": run.status,
        "findings": findings.reproduction_findings(run),
        "measures": run.measures,
        "rows": rows,
        "charts": [chart for chart in charts if chart is not None],
        "undrawn": f"{run.entry}.png" if run.measures and not drawn else None,
        "document": _document(run.document),
        "commands": commands,
    }


def _audits(run: Audits) -> dict[str, Any]:
    rows = [
        {
            "label": result.label,
            "claim": f"{result.claim} (not verified)" if result.unknown else result.claim,
            "claimed": (numbers.up if result.proved else numbers.near)(result.claimed, "claimed"),
            "audited": numbers.down(result.audited, "audited"),
            "certifiable": numbers.down(result.certifiable, "certifiable"),
            "confidence": f"{result.confidence:g}",
            "delta": numbers.up(result.delta, "delta"),
            "verdict": result.verdict,
            "found": result.found,
        }
        for result in run.results
    ]
    return {
        "heading": f"Audit: {run.title}",
        "headline": findings.audit_headline(run),
        "refuted": any(result.refuted for result in run.results),
        "findings": [findings.audit_finding(result) for result in run.results],
        "rows": rows,
        "charts": [figures.audit_chart(run.results)],
        "document": _document(run.document),
    }


def _document(content: Mapping[str, Any]) -> str:
    return json.dumps(content, indent=2, ensure_ascii=False)
