"""Which commands there are, what each says of itself in a line, and where it is.

`plrvo --help` and a mistyped command are answered from this table: the modules of the commands bring NumPy and SciPy
with them, and each is imported when its command is called. A test compares every line with what the
command says of itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Listed:
    """A command: its line, and its function as `module:name`; or a group, with commands of its own."""

    summary: str
    place: str = ""
    commands: Mapping[str, Listed] = field(default_factory=dict)


_AUDIT = {
    "mechanism": Listed(
        "White box: simulate every step of the mechanism, with a planted gradient and without, and tell them apart.",
        "plrvo.cli.audit_mechanism:mechanism",
    ),
    "clipbkd": Listed(
        "Black box: does one poisoning point show in the outputs of models that were trained privately?",
        "plrvo.cli.audit_clipbkd:clipbkd",
    ),
    "one-run": Listed(
        "One run of the training engine: do its releases show which canaries it was trained on?",
        "plrvo.cli.audit_one_run:one_run",
    ),
}
_BUDGET = {
    "create": Listed(
        "Make a new account: in a file that does not exist yet, on a disk of this machine, or in a database.",
        "plrvo.cli.budget:create",
    ),
    "show": Listed("What is spent and what is left, as a bracket, with every entry.", "plrvo.cli.budget:show_"),
    "history": Listed(
        "Every event, in the order in which it happened; times are those of the clock then.",
        "plrvo.cli.budget:history",
    ),
    "settle": Listed(
        "Give back what a run that ended has not released; the run cannot be resumed afterwards.",
        "plrvo.cli.budget:settle",
    ),
    "close": Listed("Take no more plans; runs that have reserved may go on.", "plrvo.cli.budget:close"),
}
COMMANDS = {
    "account": Listed(
        "What a noise costs: certified, lower and published epsilon, side by side.", "plrvo.cli.account:account"
    ),
    "calibrate": Listed(
        "The smallest noise that certifies --epsilon, Gaussian unless --noise says otherwise; "
        "it never misses the budget.",
        "plrvo.cli.calibrate:calibrate",
    ),
    "explore": Listed(
        "A page with sliders for noise, workload and budget, which answers as they move. Ctrl-C ends it.",
        "plrvo.cli.explore:explore",
    ),
    "design": Listed(
        "The noise to use for a workload and a budget, with the reason: "
        "Gaussian, Laplace and Gamma-PLRV noise compared.",
        "plrvo.cli.design:design",
    ),
    "train": Listed(
        "Train a preset task within a privacy budget, with the noise that suits it best or with one that you name.",
        "plrvo.cli.train:train",
    ),
    "tune": Listed(
        "Find settings on private data, and pay for the search: --epsilon is what all of it costs, certified.",
        "plrvo.cli.tune:tune",
    ),
    "verify": Listed(
        "Recompute every number of a receipt, and say what it certifies; exit code 1 if any differs.",
        "plrvo.cli.verify:verify",
    ),
    "report": Listed(
        "Make one HTML page about runs, which needs no network: what is certified, what is refuted, "
        "and how to check it.",
        "plrvo.cli.report:report",
    ),
    "reproduce": Listed(
        "Regenerate a table or figure of the paper, with what is printed beside what comes out.",
        "plrvo.cli.reproduce:reproduce",
    ),
    "selftest": Listed(
        "Attack the noise that this installation samples, and try out the engine that trains with it.",
        "plrvo.cli.selftest:selftest",
    ),
    "audit": Listed("Try to break a claim: an attack measures epsilon from below.", commands=_AUDIT),
    "budget": Listed(
        "A privacy account of a data set: what all runs on it may spend together, however they are chosen.",
        commands=_BUDGET,
    ),
}
