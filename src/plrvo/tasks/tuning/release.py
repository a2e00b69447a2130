"""What a search releases: the files of its best trial, with a receipt for the whole search."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from plrvo.accounting.selection import Search
from plrvo.budget import Charge
from plrvo.files import write_bytes, write_json
from plrvo.records import Receipt, derived
from plrvo.records import metrics as covered
from plrvo.records.folder import CHECKPOINT, LOCK, METRICS, RECEIPT
from plrvo.records.history import read_history, write_history
from plrvo.records.searched import Searched
from plrvo.tasks.tuning.held_out import CELL
from plrvo.tasks.tuning.state import Done, State
from plrvo.validate import InvalidArgument

NOTHING = "nothing.json"
KEPT = "trials"
_STAYS = (CHECKPOINT, LOCK)  # in the secret folder, with which they are removed


def release(state: State, out: Path, charge: Charge | None) -> Receipt | None:
    """Copy the best trial into `out`, its receipt last; whoever was interrupted here calls it once more."""
    best = state.best()
    if (out / RECEIPT).exists():
        return Receipt.read(out / RECEIPT)
    if best is None or best.failed:
        write_json(out / NOTHING, {**_record(state, None, None), "delta": state.document["delta"]})
        return None
    folder = state.trial(best.number)
    if "search" not in Receipt.read(folder / RECEIPT):  # else it was interrupted on its way
        _amended(state, best, folder, charge).write(folder / RECEIPT)
    if state.tuning.keep_trials:
        _keep_all(state, out)
    others = sorted(path for path in folder.iterdir() if path.name not in (*_STAYS, RECEIPT))
    for path in others:
        _copy(path, out / path.name)
    _copy(folder / RECEIPT, out / RECEIPT)
    return Receipt.read(out / RECEIPT)


def _amended(state: State, best: Done, folder: Path, charge: Charge | None) -> Receipt:
    """The receipt of the trial with the search in it, and the search's epsilons in the place of the trial's."""
    receipt = Receipt.read(folder / RECEIPT)
    parts = {name: value for name, value in receipt.items() if name not in ("receipt", "digest")}
    history = [_without_epsilon(row) for row in read_history(folder / METRICS)]
    write_history(folder / METRICS, history)
    delta, score = receipt.delta, best.score * CELL / state.document["held_out"]
    parts["search"] = _record(state, score, _kept(state))
    priced = Searched.read(parts["search"]).priced
    parts["epsilon"] = derived.epsilons(priced, delta)
    parts["group"] = derived.group(priced, delta, parts["task"])
    parts["metrics"] = covered.summary(folder / METRICS, len(history))
    parts["run"] = {**parts["run"], "metrics": history[-1] if history else None}
    if charge is not None:
        parts["budget"] = charge.record()
    return Receipt.signed(parts)


def _without_epsilon(row: dict[str, Any]) -> dict[str, Any]:
    """Metrics have the epsilon of their steps in a run of its own; in a search there is one for all of it."""
    return {name: value for name, value in row.items() if name != "epsilon_certified"}


def _record(state: State, score: float | None, kept: list[int] | None) -> dict[str, Any]:
    tuning = state.tuning
    return {
        "cost": Search.from_dict(state.document["cost"]).to_dict(),
        "epsilon": tuning.epsilon,
        "vary": {name: values.to_dict() for name, values in tuning.vary.items()},
        "score": score,
        "kept": kept,
    }


def _kept(state: State) -> list[int] | None:
    """How many trials of each plan were kept, if all are."""
    if not state.tuning.keep_trials:
        return None
    drawn = [trial["plan"] for trial in state.document["trials"]]
    return [drawn.count(plan) for plan in range(len(state.document["plans"]))]


def _keep_all(state: State, out: Path) -> None:
    for number in state.numbers:
        done = state.done(number)
        if done is None:
            raise InvalidArgument("resume", str(out), "a search whose trials are done")
        target = out / KEPT / f"{number:04d}"
        if state.trial(number).exists() and not target.exists():
            shutil.copytree(state.trial(number), target, ignore=shutil.ignore_patterns(*_STAYS))
            score = None if done.failed else done.score * CELL / state.document["held_out"]
            write_json(target / "trial.json", {"settings": state.settings(number), "score": score})


def _copy(path: Path, target: Path) -> None:
    """As a new file, of now: when the best trial ended, or its file was born, says how many came after it."""
    if path.is_dir():
        target.mkdir(exist_ok=True)
        for inner in sorted(path.iterdir()):
            _copy(inner, target / inner.name)
    else:
        write_bytes(target, path.read_bytes())
