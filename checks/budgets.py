"""Kills in the middle of reserving, releasing and settling: `python -m checks.budgets --kills 500 --out FILE`.

Up to four processes at once work on one account: they reserve, release, settle, settle for others, or go on with what a
killed one left. Their steps train nothing, so that most of the time is spent where an account can be harmed; the path
through reservation, journal and settlement is the one of training. A few kills hit real `plrvo train digits --budget`.
With `--database` the accounts lie in a PostgreSQL server, which cuts connections in the middle as well. After every
round the account must be whole, and no more may have been seen of a run than the account charges for it.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import secrets
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from checks import postgresql
from checks.torture import faults
from plrvo import Gaussian, InvalidArgument, Plan, Workload
from plrvo.budget import Account, events
from plrvo.budget.account import differing
from plrvo.budget.address import Url, address
from plrvo.files import write_json
from plrvo.records.derived import code_digest
from plrvo.records.folder import JOURNAL
from plrvo.records.journal import Journal

EPSILON, DELTA = 4.0, 1e-5
STEPS, EVERY = 12, 2  # of a plan, of which seven fit
PROCESSES = 4
LONGEST = 0.6  # seconds until a kill
REFUSED, BROKEN = 2, 70


class Lost(Exception):
    """Something that must not happen has happened."""


def work(account: Account, folder: Path, plan: Plan, kind: str, number: int) -> None:
    """What one process does: a run from its reservation on, the rest of one, or a settlement for another."""
    if kind == "settle":
        account.settle(number)
        return
    if kind == "begin":
        charge = account.reserve(plan, f"run {os.getpid()}")
        place = folder / f"entry-{charge.number}"
        place.mkdir()
        write_json(place / "record.json", charge.record())
    else:
        place = folder / f"entry-{number}"
        charge = account.take_up(json.loads((place / "record.json").read_text()), _journal(place).steps)
    journal = _journal(place)
    for step in range(journal.steps + EVERY, STEPS + 1, EVERY):
        journal.permits(step, True, lambda: secrets.token_hex(8))  # no step has the same noise again
        charge.release(journal.steps)
        with (place / "seen").open("ab", buffering=0) as shown:
            shown.write(f"{step}\n".encode())
    charge.settle()


def _journal(place: Path) -> Journal:
    return Journal.open(place / JOURNAL)


def start(task: Callable[[], None], fault: faults.Fault | None) -> int:
    """The task in a process of its own."""
    pid = os.fork()
    if pid:
        return pid
    code = 0
    try:
        if fault is not None:
            fault()
        task()
    except (InvalidArgument, OSError):
        code = REFUSED
    except BaseException:
        traceback.print_exc()
        code = BROKEN
    os._exit(code)


def clock_of_1970() -> None:
    """Events are stamped with a time long ago."""

    class Earlier(events.datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return cls.fromtimestamp(0, tz)

    events.datetime = Earlier  # type: ignore[misc]


class Campaign:
    """One account after the other, until so many processes were killed."""

    def __init__(self, place: Path, seed: int, server: Path | None = None) -> None:
        self.place, self.random, self.counts, self.server = place, Random(seed), Counter[str](), server
        self.plan = Plan.certify(Gaussian(3.0), Workload(0.25, STEPS, 1.0, 1000), DELTA)
        self._new_account()

    def _new_account(self) -> None:
        self.counts["accounts"] += 1
        self.folder = self.place / f"account-{self.counts['accounts']}"
        self.folder.mkdir()
        name = f"account-{self.counts['accounts']}"
        where = self.folder / "a.budget" if self.server is None else postgresql.url(self.server, name)
        self.account = Account.create(where, name="torture", epsilon=EPSILON, delta=DELTA)

    def round(self) -> None:
        """Up to four processes at once; most of them are killed at some instant."""
        running = {}
        for _ in range(self.random.randint(1, PROCESSES)):
            (kind, number), (fault, name) = self._kind(), self._fault()

            def task(kind: str = kind, number: int = number) -> None:
                work(self.account, self.folder, self.plan, kind, number)

            patience = LONGEST * self.random.random() if name == "time" else math.inf
            running[start(task, fault)] = time.monotonic() + patience
            self.counts[f"processes: {kind}"] += 1
            self.counts[f"faults: {name}"] += 1
        if self.server is not None and self.random.random() < 0.3:
            time.sleep(LONGEST * self.random.random() / 3)
            self.counts["connections cut"] += _cut_connections(self.account)
        for pid, until in sorted(running.items(), key=lambda item: item[1]):
            if until < math.inf:
                time.sleep(max(0.0, until - time.monotonic()))
                os.kill(pid, signal.SIGKILL)
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            self.counts["SIGKILL"] += code == -signal.SIGKILL
            self.counts["ended well"] += code == 0
            self.counts["refused"] += code == REFUSED
            if code not in (0, REFUSED, -signal.SIGKILL):
                raise Lost(f"a process ended with {code}")
        self._check()

    def _fault(self) -> tuple[faults.Fault | None, str]:
        kind = self.random.choice(["time"] * 6 + ["call"] * 3 + ["full disk", "clock", "none"])
        if kind == "call":
            return faults.killed_at_call(self.random.randint(1, 40), None, self.folder), kind
        if kind == "full disk":
            size = self.account.path.stat().st_size if self.server is None else 0
            return faults.disk_full(size + self.random.randrange(9000)), kind
        return (clock_of_1970 if kind == "clock" else None), kind

    def _kind(self) -> tuple[str, int]:
        """Mostly about entries that are open, and now and then about one that is settled."""
        entries = self.account.state().entries
        likely = [entry.number for entry in entries if entry.settled is None or self.random.random() < 0.1]
        begun = [number for number in likely if (self.folder / f"entry-{number}" / "record.json").exists()]
        kind = self.random.choice(["begin", "begin", "go on", "go on", "settle"])
        if kind == "settle" and likely:
            return kind, self.random.choice(likely)
        return ("go on", self.random.choice(begun)) if kind == "go on" and begun else ("begin", 0)

    def _check(self) -> None:
        """What must hold after every instant."""
        state = self.account.state()  # whole, or it is refused here
        seen = {}
        for entry in state.entries:
            place = self.folder / f"entry-{entry.number}"
            shown = [int(line) for line in _lines(place / "seen")]
            if len(set(shown)) != len(shown):
                raise Lost(f"entry {entry.number} showed a step twice: {shown}")
            seen[entry.number] = max(shown, default=0)
            if seen[entry.number] > min(entry.released, entry.charged):
                raise Lost(f"step {seen[entry.number]} was shown of {entry}")
            record = place / "record.json"
            if record.exists() and (found := differing(state, json.loads(record.read_text()))):
                raise Lost(f"entry {entry.number}: {found}")
        budget = state.filter
        for steps in (seen, {entry.number: entry.charged for entry in state.entries}):
            parts = [entry.reserved.moments(steps[entry.number], budget.orders) for entry in state.entries]
            total = sum(parts, np.zeros(len(budget.orders)))
            if not budget.admits(total):
                raise Lost("more is spent than the account has")
        self.counts["rounds"] += 1
        if len(state.events) > 150 or budget.spent(total) > 0.97 * EPSILON:
            self.counts["steps seen"] += sum(seen.values())
            self.counts["steps charged"] += sum(entry.charged for entry in state.entries)
            self._new_account()


def _cut_connections(account: Account) -> int:
    """All of them, with the locks that say that runs are alive."""
    import sqlalchemy

    where = address(str(account.home))
    if not isinstance(where, Url):
        raise TypeError("an account in a file has no connections")
    engine = sqlalchemy.create_engine(where.full.set(password=postgresql.PASSWORD), poolclass=sqlalchemy.NullPool)
    others = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
    others += " WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
    with engine.begin() as connection:
        return len(list(connection.execute(sqlalchemy.text(others))))


def _lines(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines() if path.exists() else []


def trained(place: Path, random: Random, counts: Counter[str]) -> None:
    """A real run, killed at some call that touches a file, then resumed to its end or settled."""
    from checks.torture.process import Command

    account = Account.create(place / "a.budget", name="real", epsilon=EPSILON, delta=DELTA)
    run = ["digits", "--model", "logistic", "--noise", "gaussian", "--noise-multiplier", "3", "--sample-rate", "0.1"]
    run += ["--steps", "12", "--evaluate-every", "3", "--checkpoint-every", "2", "--budget", str(account.path)]
    out, logs = str(place / "run"), place / "logs"
    ended = Command(
        ["train", *run, "--out", out, "--json"], logs, faults.killed_at_call(random.randint(1, 120), None, place)
    ).wait()
    counts["SIGKILL"] += ended.killed
    counts["SIGKILL of plrvo train"] += ended.killed
    if ended.killed and (place / "run" / "checkpoint.safetensors").exists():
        ended = Command(["train", "--resume", "--out", out, "--json"], logs).wait()
    state = account.state()
    for entry in state.entries:
        if entry.settled is None and account.settle(entry.number).charged != entry.released:
            raise Lost(f"{entry} was settled for something else")
    if ended.code == 0:
        verified = Command(["verify", out, "--budget", str(account.path)], logs).wait()
        if verified.code or account.state().entry(1).charged != 12:
            raise Lost(f"a run that ended: {verified.out}{verified.err}")
        counts["plrvo train to its end, verified"] += 1
    elif not ended.killed and not ended.refused:
        raise Lost(f"plrvo train ended with {ended.code}: {ended.err[-800:]}")


def run(
    place: Path,
    seed: int,
    kills: int,
    real: int,
    minutes: float,
    say: Callable[[str], None],
    server: Path | None = None,
) -> dict[str, Any]:
    """The counts, and a sentence for everything that was lost."""
    campaign, lost, started = Campaign(place, seed, server), list[str](), time.monotonic()
    while campaign.counts["SIGKILL"] < kills and time.monotonic() - started < 60 * minutes and not lost:
        try:
            campaign.round()
        except Lost as error:
            lost.append(str(error))
        if campaign.counts["rounds"] % 20 == 0:
            say(f"{campaign.counts['SIGKILL']} kills, {len(lost)} lost")
    if real:
        from checks.torture.process import warm_up

        warm_up(campaign.random)
    for number in range(real):
        (place / f"real-{number}").mkdir()
        try:
            trained(place / f"real-{number}", campaign.random, campaign.counts)
        except Lost as error:
            lost.append(str(error))
    minutes = round((time.monotonic() - started) / 60, 1)
    counts = dict(sorted(campaign.counts.items()))
    return {"seed": seed, "code": code_digest(), "counts": counts, "lost": lost, "minutes": minutes}


def main() -> int:
    parser = argparse.ArgumentParser(prog="budgets", description=__doc__)
    parser.add_argument("--kills", type=int, default=500)
    parser.add_argument("--real", type=int, default=5, help="runs of plrvo train among them")
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--database", action="store_true", help="accounts in a PostgreSQL server; no plrvo train")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    if given.database and postgresql.missing() is not None:
        parser.error(f"--database: {postgresql.missing()}")
    started = postgresql.server() if given.database else nullcontext()
    with tempfile.TemporaryDirectory(prefix="budgets-") as place, started as server:
        wanted = given.seed, given.kills, 0 if given.database else given.real, given.minutes
        result = run(Path(place), *wanted, lambda line: print(line, file=sys.stderr, flush=True), server)
    text = json.dumps(result, indent=2) + "\n"
    if given.out is not None:
        given.out.write_text(text)
    print(text, end="")
    return int(bool(result["lost"]))


if __name__ == "__main__":
    sys.exit(main())
