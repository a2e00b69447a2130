"""The parts of the page as HTML: the document with its form, and what is answered to one."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from markupsafe import Markup

from plrvo import appearance
from plrvo.accounting.attacker import Pair, most_found, most_gained, most_often_right
from plrvo.accounting.printed import rounded_up
from plrvo.designer.comparison import Comparison
from plrvo.explore import controls, pictures
from plrvo.explore.answers import Certified, Quick, quick
from plrvo.explore.equivalent import command, python
from plrvo.explore.question import Question
from plrvo.noise import Noise
from plrvo.records.receipt import Bracket
from plrvo.report import coverage, numbers
from plrvo.validate import InvalidArgument, counted
from plrvo.version import __version__

_ALARMS = (0.0001, 0.001, 0.01, 0.1)


@dataclass(frozen=True)
class Assets:
    """The style sheet and the scripts of the page: those of the report, and its own."""

    style: str
    script: str


@lru_cache(maxsize=1)
def _environment() -> Any:
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

    loaders = [PackageLoader(f"plrvo.{package}", "templates") for package in ("explore", "report")]
    return Environment(
        loader=ChoiceLoader(loaders),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def assets() -> Assets:
    """Both as they are served."""

    def source(name: str) -> str:
        environment = _environment()
        found: str = environment.loader.get_source(environment, name)[0]
        return found

    style = appearance.style_sheet() + source("style.css") + source("explore.css")
    return Assets(style, source("script.js") + source("explore.js"))


def document(question: Question, wrong: InvalidArgument | None) -> str:
    """The whole page with the sliders at the values of the question; `wrong` says why a link could not be used."""
    return _render(
        "document.html",
        version=__version__,
        wrong=wrong,
        kinds=controls.kinds(question),
        budget=question.epsilon is not None,
        by_data=question.by_data,
        controls=controls.set_to(question),
    )


def refusal(error: InvalidArgument) -> str:
    """One line about a value that was typed."""
    return _render("refusal.html", argument=error.argument, message=str(error))


def answer(question: Question, found: Quick, proved: Certified | str | None) -> str:
    """What is known so far: by moments, or the whole bracket; or why there is none."""
    certified = proved if isinstance(proved, Certified) else None
    bracket = certified.bracket if certified else None
    noise = certified.noise if certified else found.noise
    epsilon = bracket.certified if bracket else found.epsilon
    pairs = [*found.pairs, *([(bracket.certified, bracket.delta)] if bracket else [])]
    return _render(
        "answer.html",
        query=question.query,
        failed=proved if isinstance(proved, str) else None,
        certified=certified is not None,
        headline=_headline(question, noise, epsilon, certified is not None),
        meaning=_meaning(question, noise),
        certified_number=numbers.up(epsilon, "certified"),
        lower_number=numbers.down(bracket.lower, "lower") if bracket else None,
        published_number=numbers.near(bracket.published, "published") if bracket else None,
        published_note=_published(bracket),
        refuted=bracket is not None and bracket.published_is_refuted,
        method=f"Proved, for every attacker ({_METHODS[bracket.method]})." if bracket else "Proved, by moments.",
        charts=pictures.costs(question, found, bracket),
        attack_chart=pictures.attacks(pairs),
        attacks=[(f"{100 * share:g} %", f"{rounded_up(100 * most_found(pairs, share), 3)} %") for share in _ALARMS],
        gain=_gain(pairs),
        words=command(question).split(" --"),
        python=python(question, noise),
    )


def short(question: Question, proved: Certified | str | None) -> str:
    """The answer in a few words, which phones show beside the sliders."""
    found, certified = quick(question), proved if isinstance(proved, Certified) else None
    epsilon = certified.bracket.certified if certified else found.epsilon
    if math.isinf(epsilon):
        return "no width keeps this budget"
    width = f", noise {found.width:.3g} clips" if question.epsilon is not None and not certified else ""
    return f"epsilon at most {rounded_up(epsilon)}{width}{'' if certified else ' so far'}"


def comparison(found: Comparison) -> str:
    """The noises at the same certified epsilon."""
    least, clip = min(row.distortion for row in found.alternatives.values()), found.work.clip
    rows = [
        {
            "name": row.name,
            "recommended": row.name == found.recommended,
            "size": f"{row.distortion / clip:.4g}",
            "deviation": f"{row.std / clip:.4g}",
            "ratio": f"{row.distortion / least:.3f}",
        }
        for row in found.alternatives.values()
    ]
    return _render("comparison.html", reason=found.reason, rows=rows, epsilon=rounded_up(found.epsilon))


_METHODS = {
    "rdp": "by moments",
    "pure": "bounded likelihood ratio",
    "pld": "loss distribution",
    "exact": "exact curve",
    "gdp": "Gaussian steps that show at least as much",
    "gift": "Gaussian steps of the same energy, and one more",
    "profile": "loss distribution of the worst case",
}


def _render(template: str, **values: Any) -> str:
    return Markup(_environment().get_template(template).render(**values))


def _headline(question: Question, noise: Noise | None, epsilon: float, certified: bool) -> str:
    delta, more = rounded_up(question.delta), "" if certified else " so far"
    if noise is None:
        return f"No noise of this page certifies epsilon {question.epsilon:.15g} by moments{more}."
    if question.epsilon is None:
        return f"Epsilon is at most {rounded_up(epsilon)} at delta {delta}{more}."
    size = f"{noise.distortion / question.clip:.4g}"
    return (
        f"Epsilon {question.epsilon:.15g} at delta {delta} takes {noise.kind} noise of about E|z| = {size} clips{more}."
    )


def _meaning(question: Question, noise: Noise | None) -> str:
    work = question.work
    steps = f"{counted(work.steps, 'step', ',')} at sampling rate {work.sample_rate:.6g}."
    if noise is None:
        return steps
    typed = ", ".join(
        f"{name.replace('_', ' ')} {value!r}" for name, value in noise.options(work.clip).items() if value
    )
    return f"{steps} The noise has {typed} and E|z| = {noise.distortion / work.clip:.4g} clips in a coordinate."


def _published(bracket: Any) -> str:
    if bracket is None:
        return "The paper's formula; not a bound."
    return coverage.published_note(Bracket(bracket.certified, bracket.lower, bracket.published))


def _gain(pairs: list[Pair]) -> str:
    most, right = most_gained(pairs), most_often_right(pairs)
    return (
        f"The share of members found exceeds the share of false alarms by at most {rounded_up(100 * most, 3)} points "
        f"in a hundred. Told by a fair coin: right in at most {rounded_up(100 * right, 3)} % of cases; 50 % is blind "
        "guessing."
    )
