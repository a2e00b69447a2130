"""What `plrvo tune` says at its end: the best trial, and what the search cost beside other ways to the same."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from plrvo.accounting.selection import Search, Trial
from plrvo.accounting.selection.everything import Everything
from plrvo.cli import show
from plrvo.validate import printable

if TYPE_CHECKING:
    from plrvo.tasks.tuning.run import Outcome

_OFTEN = 0.99
_NOTHING = (
    "Nothing is released: no trial was drawn, or all of them diverged. That is one of the outcomes that the epsilon is "
    "certified for, and it has been spent. Which of the two it was stays secret."
)


def costs(search: Search, delta: float) -> list[dict[str, Any]]:
    """What the search costs, and what others would, with the same noise in every trial."""
    mean, often = round(search.count.mean), search.count.at_most(_OFTEN)
    rows: list[tuple[str, int | None, float]] = [
        ("one trial, with settings that are known", 1, Trial(search.training).certified(delta))
    ]
    rows.append(
        (f"this search: the best of {search.count.mean:.3g} trials on average", None, search.certified(delta).value)
    )
    naive = {mean: "", often: f" ({_OFTEN:.0%} of searches have no more)"}
    rows += [(f"all of {n} trials, naively{why}", n, _sum(search, n, delta)) for n, why in naive.items() if n > 1]
    return [{"what": what, "trials": trials, "epsilon": epsilon} for what, trials, epsilon in rows]


def _sum(search: Search, trials: int, delta: float) -> float:
    """The largest over the settings that may be drawn."""
    kinds = range(len(search.training))
    every = (Everything(search, tuple(trials if kind == at else 0 for kind in kinds)) for at in kinds)
    return max(one.certified(delta).value for one in every)


def result_of(found: Outcome) -> dict[str, Any]:
    """What the search came to, for --json; nothing of its number of trials."""
    told: dict[str, Any] = {
        "released": found.receipt is not None,
        "epsilon_certified": found.epsilon,
        "delta": found.delta,
        "costs": costs(found.search, found.delta),
    }
    if found.receipt is None:
        return told
    receipt, searched = found.receipt, found.receipt["search"]
    metrics = receipt["run"]["metrics"] or {}
    varied = {name: _value(receipt, name) for name in searched["vary"]}
    return {
        **{name: value for name, value in metrics.items() if name != "step"},
        **told,
        "epsilon_lower": receipt["epsilon"]["lower"],
        "settings": varied,
        "score": searched["score"],
        "kept_trials": searched["kept"] is not None,
        "seeded": receipt["run"]["seeded"],
        "noise": receipt["plan"]["noise"],
        "steps": receipt["steps"],
        "receipt": str(found.out / "receipt.json"),
    }


def _value(receipt: Any, name: str) -> Any:
    """A setting of the best trial, as it is asked for."""
    work = receipt["plan"]["workload"]
    return receipt["job"].get(name, work.get(name, receipt["run"].get(name)))


def finish(found: Outcome, result: dict[str, Any], as_json: bool) -> None:
    """As JSON, or as a few lines and a table."""
    if as_json:
        show.print_json(result)
        return
    if found.receipt is None:
        print(_NOTHING)
    else:
        settings = ", ".join(f"{name.replace('_', '-')} {_short(value)}" for name, value in result["settings"].items())
        print(printable(f"best trial: {settings}"))
        if "accuracy" in result:
            held = f"noisy accuracy {100 * result['score']:.1f} % on the held-out examples that chose it"
            print(f"test accuracy {100 * result['accuracy']:.2f} % ({held})")
        if result["seeded"]:
            print("NOT PRIVATE: the noise came from a seed, and whoever knows it can take the noise away.")
    what = "all trials together" if result.get("kept_trials") else "the whole search"
    print(
        f"certified epsilon {show.rounded_up(found.epsilon)} at delta {show.rounded_up(found.delta)} for {what}"
        + (f" (an attacker reaches at least {show.rounded_down(result['epsilon_lower'])})" if found.receipt else "")
    )
    table = Table()
    table.add_column("what it costs, with the noise of these trials")
    table.add_column("certified epsilon", justify="right")
    for row in result["costs"]:
        table.add_row(row["what"], show.rounded_up(row["epsilon"]))
    Console(highlight=False).print(table)
    if found.receipt is not None:
        path = result["receipt"]
        print(printable(f"receipt: {path}    check it: plrvo verify {shlex.quote(path)}"))


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
