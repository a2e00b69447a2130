"""What `plrvo train` says at the end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from plrvo.cli import show
from plrvo.validate import printable


def last_of(history: list[dict[str, Any]]) -> dict[str, Any]:
    """The last metrics of a run, or nothing."""
    return history[-1] if history else {}


def finish(
    out: Path, history: list[dict[str, Any]], title: str, as_json: bool, result: dict[str, Any], metric: str
) -> None:
    """Draw the curves, and print the result as JSON or in a few lines."""
    from plrvo.report.curves import plot_curves

    plot_curves(history, title, out / "curves.png", metric)
    if as_json:
        show.print_json(result)
        return
    percent = metric == "accuracy"
    print(f"test accuracy {100 * result[metric]:.2f} %" if percent else f"test {metric} {result[metric]:.4g}")
    if "epsilon_certified" in result:
        if result.get("seeded"):
            print("NOT PRIVATE: the noise came from a seed, and whoever knows it can take the noise away.")
        print(
            f"certified epsilon {show.rounded_up(result['epsilon_certified'])} "
            f"at delta {show.rounded_up(result['delta'])} "
            f"(an attacker reaches at least {show.rounded_down(result['epsilon_lower'])})"
        )
        if result.get("audit"):
            print(_audit_line(result["audit"]))
        path = printable(result["receipt"])
        print(f"receipt: {path}    check it: plrvo verify {path}")
    print(f"plot: {printable(str(out / 'curves.png'))}")


def _audit_line(audit: dict[str, Any]) -> str:
    return (
        f"audit: the claim is {audit['verdict']}; epsilon is at least {show.rounded_down(audit['epsilon_audited'])} at "
        f"confidence {audit['confidence']:g} ({audit['correct']} of {audit['guesses']} guesses about "
        f"{audit['canaries']} canaries were right)"
    )
