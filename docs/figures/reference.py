"""The reference page: a line and an entry for every public name, made from `plrvo.__all__` and the lists below.

`python -m docs.figures.reference` writes it. A name of `plrvo.__all__` stands in the section whose prefix fits the
module that defines it best; what is documented beside them is listed here by hand.
"""

from __future__ import annotations

import inspect
import pkgutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import plrvo

PAGE = Path(__file__).parents[1] / "reference.md"


@dataclass(frozen=True)
class Section:
    """A part of the page: names from modules with these prefixes, and others that are imported from elsewhere."""

    title: str
    prefixes: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    words: str = ""

    @property
    def names(self) -> list[str]:
        """What users import, bases before what derives from them."""
        own = [f"plrvo.{name}" for name in plrvo.__all__ if section_of(f"plrvo.{name}") is self]
        return sorted(own, key=lambda name: not inspect.isabstract(pkgutil.resolve_name(name))) + list(self.others)


CORRELATED = "Banded BufferedToeplitz CorrelatedLedger Correlation CyclicPoisson Explicit Participation SquareRoot Tree"
METRICS = "bleu.Bleu nist.Nist meteor.MeteorExactStem rouge.RougeL cider.CiderD"
SECTIONS = (
    Section("Cost", ("plrvo.accounting",), ("plrvo.accounting.Certificate", "plrvo.accounting.sigma_effective")),
    Section(
        "Noise",
        ("plrvo.noise",),
        ("plrvo.noise.GridNoise", "plrvo.noise.Keystream", "plrvo.noise.Specification"),
        "What every noise can do is listed once, at `Noise`.",
    ),
    Section(
        "Seeds",
        ("plrvo.noise.seeds", "plrvo.noise.seed_families", "plrvo.noise.weibull"),
        ("plrvo.noise.seed_from_dict",),
        "Distributions of the random inverse scale of PLRV noise.",
    ),
    Section(
        "Plans and their design",
        ("plrvo.accounting.plan", "plrvo.accounting.clipping", "plrvo.designer"),
        (
            "plrvo.accounting.exact.on_grid",
            "plrvo.designer.clip_range",
            "plrvo.designer.compare",
            "plrvo.designer.recommend",
            "plrvo.designer.SearchSpace",
        ),
    ),
    Section(
        "Training",
        ("plrvo.training", "plrvo.audit.receipt"),
        (
            "plrvo.training.BudgetExhausted",
            "plrvo.training.PoissonSampler",
            "plrvo.training.receipts.make_receipt",
            "plrvo.training.recorded.Recorded",
            "plrvo.records.Receipt",
            "plrvo.tasks.trainer.PrivateTrainer",
            "plrvo.tasks.transformer.keep_examples_apart",
            "plrvo.tasks.vision.scattered.features_of",
            "plrvo.training.views.EachView",
            "plrvo.training.views.MeanOverViews",
        ),
    ),
    Section(
        "Accounts",
        others=(
            "plrvo.budget.Account",
            "plrvo.budget.Charge",
            "plrvo.budget.Standing",
            "plrvo.budget.filter.Filter",
            "plrvo.budget.statistics.Statistics",
        ),
        words="A budget for the data, not for a run: see the [guide](guide-budget.md).",
    ),
    Section(
        "Correlated noise",
        others=(
            *(f"plrvo.accounting.correlated.{name}" for name in CORRELATED.split()),
            *(f"plrvo.accounting.correlated.{name}" for name in ("fit_banded", "fit_blt", "Updates", "squared_error")),
            "plrvo.training.ScheduleViolated",
        ),
    ),
    Section(
        "Table to text",
        others=(
            "plrvo.accounting.group.group_epsilon",
            "plrvo.tasks.tables.metrics.score_all",
            *(f"plrvo.tasks.tables.metrics.{name}" for name in METRICS.split()),
            "plrvo.tasks.tables.models.load_language",
            "plrvo.tasks.tables.generate.generate",
            "plrvo.tasks.tables.generate.Decoding",
        ),
        words="See the [guide](guide-tables.md).",
    ),
    Section(
        "Audits",
        others=(
            *(f"plrvo.audit.{name}" for name in ("audit_mechanism", "epsilon_bound", "one_run_bound")),
            *("plrvo.audit.Rule", "plrvo.audit.judge_one_run", "plrvo.audit.clipbkd.audit_clipbkd"),
            *("plrvo.tasks.audited.with_canaries", "plrvo.tasks.audited.Planting"),
        ),
    ),
    Section("The page", others=("plrvo.report.loading.read_run", "plrvo.report.page.make_page")),
    Section(
        "Beside dp-accounting",
        others=("plrvo.accounting.events.NoisyStepsEvent", "plrvo.accounting.events.PlrvoRdpAccountant"),
    ),
    Section("Errors", ("plrvo.validate",)),
)
# Members that are worth an entry where not all are; bases show all of theirs, and what derives from them none.
MEMBERS = {
    "plrvo.noise.GridNoise": "[integers, sensitivity]",
    "plrvo.tasks.trainer.PrivateTrainer": "[train]",
    "plrvo.designer.SearchSpace": "false",
    "plrvo.training.PoissonSampler": "false",
    "plrvo.training.views.EachView": "false",
    "plrvo.training.views.MeanOverViews": "false",
    "plrvo.accounting.correlated.Updates": "false",
    "plrvo.tasks.tables.generate.Decoding": "false",
    "plrvo.accounting.events.PlrvoRdpAccountant": "false",
    **{f"plrvo.tasks.tables.metrics.{name}": "false" for name in METRICS.split()},
}
BASES: tuple[Any, ...] = (plrvo.Noise, plrvo.Seed, pkgutil.resolve_name("plrvo.accounting.correlated.Strategy"))


def section_of(name: str) -> Section:
    """Where a public name stands: at the longest prefix of the module that defines it."""
    module = pkgutil.resolve_name(name).__module__
    fitting = [(len(p), s) for s in SECTIONS for p in s.prefixes if f"{module}.".startswith(f"{p}.")]
    if not fitting:
        raise LookupError(f"no section of the reference for {name}, which {module} defines")
    return max(fitting, key=lambda found: found[0])[1]


def target(name: str) -> str:
    """Where a name is defined, which mkdocstrings looks for."""
    thing = pkgutil.resolve_name(name)
    return f"{thing.__module__}.{thing.__qualname__}"


def first_sentence(name: str) -> str:
    """The first paragraph of the docstring, in one line."""
    words = inspect.getdoc(pkgutil.resolve_name(name)) or ""
    return " ".join(words.split("\n\n")[0].split())


def entry(name: str) -> str:
    """A name's block for mkdocstrings."""
    thing, options = pkgutil.resolve_name(name), ""
    derived = inspect.isclass(thing) and issubclass(thing, BASES)
    if thing in BASES:
        options = "show_if_no_docstring: true"
    elif derived or name in MEMBERS:
        options = f"members: {MEMBERS.get(name, 'false')}"
    return f"::: {target(name)}\n" + (f"    options:\n      {options}\n" if options else "")


def page() -> str:
    """All sections."""
    parts = ["# Reference\n", "The public names. Everything else may change without notice.\n"]
    for section in SECTIONS:
        lines = [f"- `{name}`: {first_sentence(name)}" for name in section.names]
        parts += [f"## {section.title}\n", *([f"{section.words}\n"] if section.words else []), "\n".join(lines) + "\n"]
        parts += [entry(name) for name in section.names]
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
