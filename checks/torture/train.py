"""`plrvo train` under faults: the same weights, metrics and receipt in the end, and nothing seen is left uncounted."""

from __future__ import annotations

import json
import shutil
import signal
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import plrvo
from checks.torture import faults
from checks.torture.process import Command, Ended, seen
from plrvo.audit.receipt import verify
from plrvo.records.folder import CHECKPOINT, JOURNAL, LOCK, METRICS, RECEIPT, WEIGHTS
from plrvo.records.journal import Journal, unreconciled

STEPS = 20
BASE = ["train", "digits", "--model", "logistic", "--lr", "0.5", "--json"]
CASES = {
    "exact": ["--exact", "--seed", "5", "--evaluate-every", "3", "--checkpoint-every", "5"],
    "sgd": ["--seed", "7", "--evaluate-every", "3", "--checkpoint-every", "4"],
    "adam in parts": ["--seed", "8", "--optimizer", "adam", "--physical-batch", "40", "--evaluate-every", "2"],
    "rare checkpoints": ["--seed", "9", "--momentum", "0.9", "--evaluate-every", "1", "--checkpoint-every", "50"],
    "exact, no seed": ["--exact", "--evaluate-every", "2", "--checkpoint-every", "7"],
    "no seed": ["--evaluate-every", "3", "--checkpoint-every", "5"],
}


class Lost(AssertionError):
    """Something that must hold does not."""


@dataclass
class Trained:
    """What a finished run left behind. The journal counts interruptions, too, and is not compared."""

    weights: bytes
    metrics: bytes
    receipt: dict[str, Any]

    @staticmethod
    def read(folder: Path) -> Trained:
        receipt = json.loads((folder / RECEIPT).read_text())
        kept = {key: value for key, value in receipt.items() if key not in ("journal", "digest")}
        return Trained((folder / WEIGHTS).read_bytes(), (folder / METRICS).read_bytes(), kept)


@dataclass
class Life:
    """One run through all its interruptions."""

    name: str
    arguments: list[str]
    folder: Path
    logs: Path
    shown: dict[int, dict[str, float]] = field(default_factory=dict)

    def start(self, fault: faults.Fault | None = None) -> Command:
        resume = ["--resume"] if (self.folder / CHECKPOINT).exists() else []
        if not resume and (self.folder / JOURNAL).exists():
            raise Lost("a journal without a checkpoint")
        return Command([*self.arguments, "--out", str(self.folder), *resume], self.logs, fault)

    def check(self) -> None:
        """What must hold after every end: all that was shown is in the journal, and never changes when repeated."""
        journal = Journal.open(self.folder / JOURNAL)
        for step, metrics in seen(self.logs):
            if step > journal.steps:
                raise Lost(f"step {step} was shown; the journal ends at {journal.steps}")
            if self.shown.setdefault(step, metrics) != metrics:
                raise Lost(f"step {step} was shown with other metrics before")
        path = self.folder / RECEIPT
        if path.exists():
            receipt = json.loads(path.read_text())
            if receipt["steps"] < max(self.shown, default=0) and not unreconciled(
                self.folder, receipt["journal"], receipt["steps"]
            ):
                raise Lost(f"a receipt of {receipt['steps']} steps passes; more have been seen")

    def finish(self) -> Trained:
        """Resume without a fault."""
        ended = self.start().wait()
        if ended.code != 0:
            raise Lost(f"resuming ended with {ended.code}: {ended.err[-500:]}")
        self.check()
        wrong = verify(self.folder / RECEIPT)
        if wrong:
            raise Lost(f"the receipt does not verify: {wrong}")
        return Trained.read(self.folder)


@dataclass
class TrainTorture:
    """Draws what happens from `random`, counts it in `counts`."""

    place: Path
    random: Random
    counts: Counter[str]
    references: dict[str, Trained] = field(default_factory=dict)
    seconds: float = 1.0
    number: int = 0

    def __post_init__(self) -> None:
        self.plan = self.place / "plan.json"
        work = plrvo.Workload(sample_rate=0.1, steps=STEPS, clip=1.0, dimension=650)
        plrvo.Plan.certify(plrvo.Laplace(2.0), work, 1e-5, 30.0).save(self.plan)
        for name in CASES:
            life = self.life(name)
            started = time.monotonic()
            if "no seed" not in name:
                self.references[name] = life.finish()
                self.seconds = time.monotonic() - started  # the last one, when all is in the caches of the machine

    def life(self, name: str | None = None) -> Life:
        self.number += 1
        name = name or self.random.choice(list(CASES))
        arguments = [*BASE, "--plan", str(self.plan), *CASES[name]]
        return Life(name, arguments, self.place / f"run-{self.number}", self.place / f"logs-{self.number}")

    def kill_once(self, life: Life, kind: str | None = None) -> bool:
        """One start that a fault ends; whether the run is complete (the fault came too late)."""
        kind = kind or self.random.choice(["at a time", "at a call", "at a call", "SIGTERM", "full disk"])
        if kind == "at a call":
            torn = self.random.choice([None, 0.0, self.random.random()])
            ended = life.start(faults.killed_at_call(self.random.randint(1, 70), torn, life.folder)).wait()
        elif kind == "full disk":
            ended = life.start(faults.disk_full(int(2 ** self.random.uniform(11, 15.5)))).wait()
        else:
            command = life.start()
            early = self.random.random() < 0.2
            ended_early = None if early else command.until((life.folder / LOCK).exists)
            time.sleep(self.random.uniform(0, self.seconds if early else 0.7 * self.seconds))
            if ended_early is None and (ended_early := command.poll()) is None:
                command.signal(signal.SIGTERM if kind == "SIGTERM" else signal.SIGKILL)
                ended_early = command.wait()
            ended = ended_early
        self._judge(kind, ended)
        life.check()
        return ended.code == 0

    def _judge(self, kind: str, ended: Ended) -> None:
        if ended.code == 0:
            self.counts["too late"] += 1
        elif kind == "full disk" and ended.refused:
            self.counts["disks full"] += 1
        elif kind == "SIGTERM" and ended.code in (130, -signal.SIGTERM):
            self.counts["SIGTERM"] += 1
        elif ended.killed and kind != "full disk":
            self.counts["SIGKILL"] += 1
            self.counts[f"SIGKILL {kind}"] += 1
        else:
            raise Lost(f"{kind} ended with {ended.code}: {ended.err[-800:]}")

    def once(self, kind: str, counted: str) -> None:
        """A run that this happens to, until it does not come too late."""
        while not self.counts[counted]:
            life = self.life("sgd")
            self.kill_once(life, kind)
            self.same(life.finish(), self.references["sgd"])
            self.tidy()

    def interrupted(self) -> int:
        """One run with one to six faults, compared with the run that had none; how many faults there were."""
        life = self.life()
        faults_met = 0
        for _ in range(self.random.randint(1, 6)):
            if self.kill_once(life):
                break
            faults_met += 1
        if self.random.random() < 0.1 and life.folder.exists():
            faults.shuffle_times(life.folder, self.random)
            self.counts["clocks turned back"] += 1
        result = life.finish()
        if life.name in self.references:  # without a seed no run is repeated; its receipt and journal were checked
            self.same(result, self.references[life.name])
        self.counts["runs resumed to their end"] += 1
        self.tidy()
        return faults_met

    def same(self, result: Trained, expected: Trained) -> None:
        for part in ("weights", "metrics", "receipt"):
            if getattr(result, part) != getattr(expected, part):
                raise Lost(f"other {part} than without the interruption")

    def tidy(self) -> None:
        for path in [*self.place.glob("run-*"), *self.place.glob("logs-*")]:
            shutil.rmtree(path)

    def clock(self) -> None:
        """A clock that goes backwards at every look changes nothing."""
        life = self.life("sgd")
        ended = life.start(faults.clock_backwards).wait()
        if ended.code != 0:
            raise Lost(f"with the clock backwards: {ended.code} {ended.err[-500:]}")
        self.same(Trained.read(life.folder), self.references["sgd"])
        self.counts["clocks turned back"] += 1

    def two_at_once(self) -> None:
        """The second process on a folder is refused while the first lives, however slow, and not after its death."""
        life = self.life("sgd")
        first = life.start()
        if (ended := first.until((life.folder / CHECKPOINT).exists)) is not None:
            raise Lost(f"ended with {ended.code}")
        first.signal(signal.SIGSTOP)
        second = Life("sgd", life.arguments, life.folder, self.place / f"logs-{self.number}-second")
        ended = second.start().wait()
        if not ended.refused or "no other process" not in ended.err:
            raise Lost(f"a second process ended with {ended.code}: {ended.err[-500:]}")
        if self.random.random() < 0.5:
            first.signal(signal.SIGKILL)
            self.counts["SIGKILL"] += 1
        first.signal(signal.SIGCONT)
        first.wait()
        self.same(life.finish(), self.references["sgd"])
        self.counts["second processes refused"] += 1
        self.tidy()

    def read_only(self) -> None:
        """A folder that may not be written is one line, and stays as it was."""
        life = self.life("sgd")
        self.kill_until_checkpoint(life)
        before = {path.name: path.read_bytes() for path in life.folder.iterdir()}
        for path in (self.place, self.place.parent):
            path.chmod(0o755)
        (life.folder / CHECKPOINT).chmod(0o644)
        life.folder.chmod(0o555)
        ended = life.start(faults.without_rights).wait()
        life.folder.chmod(0o755)
        if not ended.refused or before != {path.name: path.read_bytes() for path in life.folder.iterdir()}:
            raise Lost(f"in a read-only folder: {ended.code} {ended.err[-500:]}")
        self.same(life.finish(), self.references["sgd"])
        self.counts["read-only folders refused"] += 1
        self.tidy()

    def kill_until_checkpoint(self, life: Life) -> None:
        command = life.start()
        command.until((life.folder / RECEIPT).exists)
        time.sleep(self.random.uniform(0, 0.1))
        if command.poll() is None:
            command.signal(signal.SIGKILL)
            self.counts["SIGKILL"] += command.wait().killed

    def corrupted(self) -> None:
        """A damaged file is refused in one line, or it makes no difference."""
        life = self.life("sgd")
        self.kill_until_checkpoint(life)
        name = self.random.choice([CHECKPOINT, CHECKPOINT, JOURNAL, RECEIPT, WEIGHTS, METRICS, "plan"])
        path = life.folder / name
        if name == "plan":
            path = self.place / f"plan-{self.number}.json"
            shutil.copy(self.plan, path)
            life.arguments[life.arguments.index("--plan") + 1] = str(path)
        kind = faults.damage(path, self.random)
        self.counts["corruptions"] += 1
        self.counts[f"corruptions: {name}"] += 1
        self.counts[f"corruptions: {kind}"] += 1
        if name in (RECEIPT, WEIGHTS):
            self._not_verified(life.folder / RECEIPT)
        if name == CHECKPOINT and kind == "removed":
            ended = Command([*life.arguments, "--out", str(life.folder)], life.logs).wait()
        else:
            ended = life.start().wait()
        if ended.code == 0:
            self.same(Trained.read(life.folder), self.references["sgd"])
            if verify(life.folder / RECEIPT):
                raise Lost(f"the receipt does not verify after {name} was {kind}")
            self.counts["corruptions without effect"] += 1
        elif ended.refused:
            self.counts["corruptions refused"] += 1
        else:
            raise Lost(f"{name} {kind} ended with {ended.code}: {ended.err[-800:]}")
        self.tidy()

    def _not_verified(self, receipt: Path) -> None:
        ended = Command(["verify", str(receipt)], self.place / f"logs-{self.number}-verify").wait()
        if ended.code not in (1, 2) or "Traceback" in ended.err:
            raise Lost(f"verify ended with {ended.code} on a damaged run: {ended.err[-500:]}")
