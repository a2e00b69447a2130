"""A search at work: everything is drawn and charged first, then come the trials, and then the best is released."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from plrvo.accounting.selection import Search
from plrvo.audit.blocks import in_parallel
from plrvo.budget import Account, Charge
from plrvo.files import locked
from plrvo.noise import Keystream
from plrvo.records import Receipt
from plrvo.records.folder import LOCK, RECEIPT
from plrvo.tasks.resolved import choice_of
from plrvo.tasks.tuning.beforehand import check_search
from plrvo.tasks.tuning.held_out import Split
from plrvo.tasks.tuning.plans import prepared, price
from plrvo.tasks.tuning.release import release
from plrvo.tasks.tuning.state import FOLDER, State
from plrvo.tasks.tuning.trial import run_trial
from plrvo.tasks.tuning.tuning import Tuning
from plrvo.validate import InvalidArgument, positive_integer, printable


@dataclass(frozen=True)
class Outcome:
    """What a search came to: a receipt, or None where nothing is released; and what that cost either way."""

    out: Path
    receipt: Receipt | None
    search: Search
    epsilon: float
    delta: float


def begin(tuning: Tuning, out: Path) -> None:
    """Certify, charge and draw; nothing of the private data is looked at but its size."""
    check_search(tuning, out)
    job = tuning.job
    account = None if job.budget is None else Account(job.budget)
    preset = prepared(job)
    delta = choice_of(job, preset, "delta")
    if delta >= 1 / preset.task.size:
        raise InvalidArgument("delta", delta, f"less than 1/N = {1 / preset.task.size:.3g}")
    coins = os.urandom(32) if job.seed is None else _seeded(job.seed, "split")
    split = Split.of(preset.task, tuning.held_out, Keystream(coins))
    priced = price(tuning, preset)
    with locked(out / LOCK, "out"):
        shutil.rmtree(out / FOLDER, ignore_errors=True)  # of a search that began and drew nothing, or has ended
        charge = None
        if account is not None:
            plan = max(priced.plans.values(), key=lambda plan: plan.workload.steps)
            name = f"search on {preset.task.description.get('name', 'a task')} in {out.name}"
            charge = account.reserve(plan, printable(name)[:200], search=priced.search)
        try:
            _draw(tuning, priced, out, coins, charge, len(split.held_out))
        finally:
            if charge is not None:
                charge.let_go()


def _draw(tuning: Tuning, priced: Any, out: Path, coins: bytes, charge: Charge | None, held_out: int) -> None:
    """The number of trials and their settings, once."""
    seed = tuning.job.seed
    stream = Keystream() if seed is None else Keystream(_seeded(seed, "search"))
    plans = list(priced.plans.values())
    trials = []
    for number in range(tuning.count.draw(stream)):
        settings = tuning.drawn(stream)
        own = None if seed is None else int.from_bytes(_seeded(seed, f"trial {number}")[:7], "big")
        trials.append({"settings": settings, "plan": plans.index(priced.plan_of(settings)), "seed": own})
    State.create(
        out,
        {
            "tuning": tuning.to_dict(),
            "cost": priced.search.to_dict(),
            "delta": priced.delta,
            "plans": [plan.to_dict() for plan in plans],
            "score_noise": priced.score.to_dict(),
            "coins": coins.hex(),
            "held_out": held_out,
            "budget": None if charge is None else charge.record(),
            "trials": trials,
        },
    )


def _seeded(seed: int, purpose: str) -> bytes:
    return hashlib.sha256(f"plrvo tune {purpose} {seed}".encode()).digest()


def finish(out: Path, *, jobs: int = 1, engine: str = "loky", watch: Callable[[], None] | None = None) -> Outcome:
    """Do what is left of the search in `out`, release its best trial, and forget the others."""
    positive_integer(jobs=jobs)
    with locked(out / LOCK, "out"):
        state = State.read(out)
        tuning = state.tuning
        search = Search.from_dict(state.document["cost"])
        charge = _charge(state, tuning)
        try:
            if state.ended:
                receipt = Receipt.read(out / RECEIPT) if (out / RECEIPT).exists() else None
            else:
                state = _done(state, out, _trials(out, _left(state), jobs, engine), watch)
                if charge is not None:  # before anything of the result can be seen
                    charge.release(charge.entry.planned, state.mark)
                receipt = release(state, out, charge)
                state = state.end()
            state.remove()  # before the entry is settled, or a crash in between would leave what nobody can resume
            if charge is not None:
                charge.settle()
        finally:
            if charge is not None:
                charge.let_go()
    delta = float(state.document["delta"])
    certified = search.certified(delta).value if receipt is None else float(receipt["epsilon"]["certified"])
    return Outcome(out, receipt, search, certified, delta)


def _left(state: State) -> list[int]:
    """Trials that are yet to be done: none, once it is written down which one is released."""
    return state.left() if state.mark is None else []


def _done(state: State, out: Path, trials: Iterable[Any], watch: Callable[[], None] | None) -> State:
    """After all trials, with what is released written down."""
    keep_trials = state.tuning.keep_trials
    for _ in trials:
        if not keep_trials:
            state.forget_losers()
        if watch is not None:
            watch()
    return state.begin_release()


def _trials(out: Path, left: list[int], jobs: int, engine: str) -> Iterable[Any]:
    work = partial(run_trial, str(out.absolute()))
    if jobs == 1 and engine == "loky":  # in this process
        kept: dict[tuple[Any, ...], Any] = {}
        return (run_trial(str(out.absolute()), number, kept) for number in left)
    return in_parallel(engine, jobs, work, left) if left else ()


def _charge(state: State, tuning: Tuning) -> Charge | None:
    """The search's entry. Where something was released with it, only of this search: a copy would release another.

    The account has the mark of what was released (`State.mark`), which is in this folder since before that.
    """
    record = state.document["budget"]
    if record is None or tuning.job.budget is None:
        return None
    account = Account(tuning.job.budget)
    entry = account.state().entry(record["entry"])
    ours = state.mark is not None and entry.mark == state.mark
    if state.ended and ours and entry.settled is not None:
        return None  # somebody has settled it meanwhile; the rest of the folder is still to be removed
    return account.take_up(record, entry.released if ours else 0)
