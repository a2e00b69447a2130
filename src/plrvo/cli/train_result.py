"""What `plrvo train` says before and after."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plrvo.cli import show
from plrvo.records.folder import GENERATIONS
from plrvo.tasks.job import Job
from plrvo.validate import counted, printable

if TYPE_CHECKING:
    from plrvo.tasks.resolved import Resolved, Trained

_NO_NOISE = "NOT PRIVATE: --noise none adds no noise, and the model may tell of every example"

_TOLD = ("step", "epsilon_certified", "loss", "accuracy")  # elsewhere, of what a test gives


def warnings_of(job: Job, resolved: Resolved) -> list[str]:
    """What to know before the run begins."""
    from plrvo.training.diagnostics import WARNING

    found = [*resolved.task.warnings]
    if job.unsafe_diagnostics:
        found.append(WARNING)
    if not job.private:
        found.append(_NO_NOISE)
    elif job.seed is not None:
        found.append("NOT PRIVATE: whoever knows `seed` can take the noise away")
    return found


def result_of(resolved: Resolved, trained: Trained) -> dict[str, Any]:
    """What the run came to, for --json."""
    receipt, plan = trained.receipt, trained.plan
    if receipt is None or plan is None:
        return {**trained.metrics, "private": False, **_speed(trained)}
    metrics = receipt["run"]["metrics"]
    return {
        **{name: value for name, value in metrics.items() if name not in ("step", "epsilon_certified")},
        **{f"epsilon_{end}": receipt["epsilon"][end] for end in ("certified", "lower", "published")},
        "delta": plan.delta,
        "steps": receipt["steps"],
        "seeded": receipt["run"]["seeded"],
        "noise": plan.noise.to_dict(),
        **_speed(trained),
        "receipt": str(resolved.settings.out / "receipt.json"),
        **({} if resolved.task.observer is None else {"audit": receipt["audit"]}),
    }


def _speed(trained: Trained) -> dict[str, float]:
    """Examples a second, where a step was taken."""
    speed = trained.examples_per_second
    return {} if speed is None else {"examples_per_second": float(f"{speed:.3g}")}


def finish(
    out: Path, history: list[dict[str, Any]], title: str, as_json: bool, result: dict[str, Any], metric: str
) -> None:
    """Draw the curves, and print the result as JSON or in a few lines."""
    from plrvo.report.curves import plot_curves

    private = "epsilon_certified" in result
    how = f"{_kind(result)} noise, delta {show.rounded_up(result['delta'])}" if private else "not private"
    plot_curves(history, f"{title}, {how}", out / "curves.png", metric)
    if as_json:
        show.print_json(result)
        return
    percent = metric == "accuracy"
    print(f"test accuracy {100 * result[metric]:.2f} %" if percent else f"test {metric} {result[metric]:.4g}")
    others = {name: value for name, value in history[-1].items() if name not in _TOLD} if history else {}
    if others:  # of a task that writes: how good its texts are
        print(", ".join(f"{name.replace('_', ' ')} {value:.4g}" for name, value in others.items()))
    texts = out / GENERATIONS
    if texts.exists():
        print(printable(_sample(texts)))
    if private:
        if result.get("seeded"):
            print("NOT PRIVATE: the noise came from a seed, and whoever knows it can take the noise away.")
        print(
            f"certified epsilon {show.rounded_up(result['epsilon_certified'])} "
            f"at delta {show.rounded_up(result['delta'])} "
            f"(an attacker reaches at least {show.rounded_down(result['epsilon_lower'])})"
        )
        if result.get("audit"):
            print(_audit_line(result["audit"]))
        path = result["receipt"]
        print(printable(f"receipt: {path}    check it: plrvo verify {shlex.quote(path)}"))
    if "examples_per_second" in result:
        speed = f"about {result['examples_per_second']:g} examples a second were trained on (`plrvo design --speed`)"
        print(f"plrvo: {speed}", file=sys.stderr)  # of this machine and this moment: no result
    print(f"plot: {printable(str(out / 'curves.png'))}")
    if not private:
        print(_NO_NOISE)


def _sample(path: Path) -> str:
    """One of the texts that the run wrote for the public test set, and where all of them are."""
    from plrvo.tasks.tables.generate import read_generations

    found = read_generations(path)
    one = f"for example, {found[0].table!r}: {found[0].hypothesis!r}; " if found else ""
    return f"{one}all texts: {path}"


def _kind(result: dict[str, Any]) -> str:
    """The kind of the noise, or of the one that was put on a grid."""
    return str(result["noise"].get("base", result["noise"])["noise"])


def _audit_line(audit: dict[str, Any]) -> str:
    return (
        f"audit: the claim is {audit['verdict']}; epsilon is at least {show.rounded_down(audit['epsilon_audited'])} at "
        f"confidence {audit['confidence']:g} ({audit['correct']} of {counted(audit['guesses'], 'guess')} about "
        f"{counted(audit['canaries'], 'canary')} were right)"
    )
