"""`plrvo audit mechanism` and `plrvo audit clipbkd` under faults: the same answer in the end."""

from __future__ import annotations

import gzip
import signal
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from checks.torture import faults
from checks.torture.process import Command
from checks.torture.train import Lost

MECHANISM = ["--clip", "1", "--sample-rate", "0.1", "--steps", "5", "--dimension", "10", "--trials", "40000"]
CLIPBKD = ["--data", "fashion-mnist", "--steps", "4", "--sample-rate", "0.2", "--models", "800"]
CLIPBKD += ["--engine", "threading"]
NOISE = ["--noise", "laplace", "--scale", "2", "--seed", "3", "--json"]


@dataclass
class AuditTorture:
    """Draws what happens from `random`, counts it in `counts`."""

    place: Path
    random: Random
    counts: Counter[str]
    references: dict[str, str] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    number: int = 0

    def __post_init__(self) -> None:
        folder = self.place / "fashion-mnist"
        folder.mkdir(parents=True)
        pixels, labels = Random(1).randbytes(60 * 16), bytes(i % 2 for i in range(60))
        self._idx(folder / "train-images-idx3-ubyte.gz", (60, 4, 4), pixels)
        self._idx(folder / "train-labels-idx1-ubyte.gz", (60,), labels)
        clipbkd = ["audit", "clipbkd", *CLIPBKD, "--data-dir", str(self.place), *NOISE]
        self.commands = {"mechanism": ["audit", "mechanism", *MECHANISM, *NOISE], "clipbkd": clipbkd}
        for kind, command in self.commands.items():
            started = time.monotonic()
            ended = Command(command, self.place / "logs").wait()
            if ended.code not in (0, 1):
                raise Lost(f"the audit ended with {ended.code}: {ended.err[-800:]}")
            self.references[kind], self.seconds[kind] = ended.out, time.monotonic() - started

    @staticmethod
    def _idx(path: Path, shape: tuple[int, ...], values: bytes) -> None:
        header = bytes([0, 0, 8, len(shape)]) + b"".join(size.to_bytes(4, "big") for size in shape)
        path.write_bytes(gzip.compress(header + values))

    def interrupted(self) -> int:
        """One audit with one to four kills; how many there were."""
        kind = self.random.choice(["mechanism", "clipbkd"])
        state = self._state()
        kills = 0
        for _ in range(self.random.randint(1, 4)):
            by_call = self.random.random() < 0.6
            torn = self.random.choice([None, self.random.random()])
            fault = faults.killed_at_call(self.random.randint(1, 12), torn, self.place) if by_call else None
            command = self._start(kind, state, fault)
            if not by_call:
                time.sleep(self.random.uniform(0, self.seconds[kind]))
                if command.poll() is None:
                    command.signal(signal.SIGKILL)
                else:
                    break
            ended = command.wait()
            if not ended.killed:
                if ended.code not in (0, 1):
                    raise Lost(f"the audit ended with {ended.code}: {ended.err[-800:]}")
                break
            kills += 1
            self.counts["SIGKILL"] += 1
            self.counts["SIGKILL of audits"] += 1
        self._finish(kind, state)
        self.counts["audits resumed to their end"] += 1
        return kills

    def corrupted(self) -> None:
        """A damaged state is refused in one line, or makes no difference."""
        kind = self.random.choice(["mechanism", "clipbkd"])
        state = self._state()
        command = self._start(kind, state)
        command.until(state.exists)
        if command.poll() is None:
            command.signal(signal.SIGKILL)
            self.counts["SIGKILL"] += command.wait().killed
        damage = faults.damage(state, self.random)
        ended = self._start(kind, state).wait()
        self.counts["corruptions"] += 1
        self.counts["corruptions: audit state"] += 1
        self.counts[f"corruptions: {damage}"] += 1
        if ended.out == self.references[kind]:
            self.counts["corruptions without effect"] += 1
        elif ended.refused:
            self.counts["corruptions refused"] += 1
        else:
            raise Lost(f"a state {damage} ended with {ended.code}: {ended.err[-800:]} {ended.out}")

    def _state(self) -> Path:
        self.number += 1
        return self.place / f"state-{self.number}.npz"

    def _start(self, kind: str, state: Path, fault: faults.Fault | None = None) -> Command:
        return Command([*self.commands[kind], "--state", str(state)], self.place / "logs", fault)

    def _finish(self, kind: str, state: Path) -> None:
        ended = self._start(kind, state).wait()
        if ended.out != self.references[kind]:
            raise Lost(f"another answer after an interruption: {ended.code} {ended.err[-500:]} {ended.out}")
