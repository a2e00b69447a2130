"""`plrvo reproduce` under faults: the same rows in the end, or a refusal.

The paper's own tables take data sets that are not everywhere: this is one more entry, of the digits, for the occasion.
"""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random

from checks.torture import faults
from checks.torture.process import Command
from checks.torture.train import Lost
from plrvo.accounting import Plan, Workload
from plrvo.paper import catalog
from plrvo.paper.entry import Context, Entry, Group, Measured, Needs, Panel, Row, Scale, four_epsilons
from plrvo.paper.training import Recipe, fitted, trials

NAME = "table-digits"
FILES = ("reproduction.json", f"{NAME}.csv")
RECIPE = Recipe("digits", "logistic", sample_rate=0.05, steps=60, learning_rate=1e-2)


WORK = Workload(sample_rate=0.05, steps=60, clip=1.0, dimension=650)
EPSILONS = (1.0, 3.0)


def _plans(epsilon: float) -> dict[str, Plan]:
    return {name: fitted(name, WORK, epsilon, 1e-5) for name in ("gaussian", "gamma_score")}


def _measure(epsilon: float, context: Context) -> Measured:
    plans = _plans(epsilon)
    done = trials(context, RECIPE, plans, 1)
    return Measured(done.means, four_epsilons(epsilon, plans["gamma_score"].bracket), details=done.details)


def _rows(scale: Scale) -> Sequence[Row]:
    return [Row(f"epsilon-{e}", f"epsilon {e}", {"epsilon": e}, {}, partial(_measure, e)) for e in EPSILONS]


DIGITS = Entry(
    name=NAME,
    title="Digits",
    where="digits",
    rows=_rows,
    needs={scale: Needs(0.1, (), ("torch",)) for scale in Scale},
    panels=(Panel("epsilon", ("gaussian", "gamma_score"), "epsilon", "test accuracy, %"),),
    group=Group.study,
)


@dataclass
class ReproduceTorture:
    """Draws what happens from `random`, counts it in `counts`. Two rows of two runs each."""

    place: Path
    random: Random
    counts: Counter[str]
    number: int = 0

    def __post_init__(self) -> None:
        if DIGITS not in catalog.ENTRIES:  # before children are forked
            catalog.ENTRIES = (*catalog.ENTRIES, DIGITS)
        for epsilon in EPSILONS:  # remembered by children
            _plans(epsilon)
        started = time.monotonic()
        self.reference = self._finished(self._folder())
        self.seconds = time.monotonic() - started

    def interrupted(self) -> int:
        """One reproduction with one to four kills; how many there were."""
        out, kills = self._folder(), 0
        for _ in range(self.random.randint(1, 4)):
            by_call = self.random.random() < 0.6
            torn = self.random.choice([None, self.random.random()])
            fault = faults.killed_at_call(self.random.randint(1, 60), torn, self.place) if by_call else None
            command = self._start(out, fault)
            if not by_call:
                time.sleep(self.random.uniform(0, self.seconds))
                if command.poll() is not None:
                    break
                command.signal(signal.SIGKILL)
            if not command.wait().killed:
                break
            kills += 1
            self.counts["SIGKILL"] += 1
            self.counts["SIGKILL of reproductions"] += 1
        if self._finished(out) != self.reference:
            raise Lost("other rows after an interruption")
        self.counts["reproductions resumed to their end"] += 1
        return kills

    def corrupted(self) -> None:
        """A damaged file of rows is refused in one line, or makes no difference."""
        out = self._folder()
        command = self._start(out)
        command.until((out / FILES[0]).exists)
        if command.poll() is None:
            command.signal(signal.SIGKILL)
            self.counts["SIGKILL"] += command.wait().killed
        damage = faults.damage(out / FILES[0], self.random)
        ended = self._start(out).wait()
        self.counts["corruptions"] += 1
        self.counts["corruptions: rows"] += 1
        self.counts[f"corruptions: {damage}"] += 1
        if ended.refused:
            self.counts["corruptions refused"] += 1
        elif ended.code == 0 and self._contents(out) == self.reference:
            self.counts["corruptions without effect"] += 1
        else:
            raise Lost(f"rows {damage} ended with {ended.code}: {ended.err[-800:]}")

    def _folder(self) -> Path:
        self.number += 1
        return self.place / f"out-{self.number}"

    def _start(self, out: Path, fault: faults.Fault | None = None) -> Command:
        words = ["reproduce", NAME, "--scale", "smoke", "--out", str(out)]
        return Command([*words, "--json"], self.place / "logs", fault)

    def _finished(self, out: Path) -> list[bytes]:
        ended = self._start(out).wait()
        if ended.code:
            raise Lost(f"a reproduction ended with {ended.code}: {ended.err[-800:]}")
        return self._contents(out)

    @staticmethod
    def _contents(out: Path) -> list[bytes]:
        return [(out / name).read_bytes() for name in FILES]
