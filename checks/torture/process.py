"""Commands of plrvo as processes that are forked from this one, in which everything has been imported."""

from __future__ import annotations

import functools
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import matplotlib.pyplot  # noqa: F401  (so that children need not)
import sklearn.datasets
import torch._dynamo  # noqa: F401  (likewise)

import plrvo.tasks.experiment
import plrvo.tasks.vision.task  # noqa: F401
from plrvo.audit import blocks
from plrvo.cli.main import main
from plrvo.cli.progress import StepProgress
from plrvo.report import curves

Fault = Callable[[], None]  # runs in the child, before the command
PATIENCE = 900.0  # seconds after which a child counts as hanging, on a busy machine too


@dataclass(frozen=True)
class Ended:
    """How a command ended. A negative code is the signal that killed it."""

    code: int
    out: str
    err: str

    @property
    def killed(self) -> bool:
        return self.code == -signal.SIGKILL

    @property
    def refused(self) -> bool:
        """Exit code 2 and one line of its own on stderr besides warnings, without a traceback."""
        told = [line for line in self.err.splitlines() if line.startswith("plrvo:")]
        lines = [line for line in told if not line.startswith("plrvo: warning:")]
        return self.code == 2 and len(lines) == 1 and "Traceback" not in self.err


class Command:
    """One command under way. Its output goes to files in `logs`, as does what its progress bar showed."""

    def __init__(self, arguments: Sequence[str], logs: Path, fault: Fault | None = None) -> None:
        logs.mkdir(parents=True, exist_ok=True)
        self.logs, self.started = logs, time.monotonic()
        self.pid = os.fork()
        if self.pid == 0:
            self._child(arguments, fault)

    def _child(self, arguments: Sequence[str], fault: Fault | None) -> None:
        code = 70
        try:
            for number, name in ((1, "out"), (2, "err")):
                os.dup2(os.open(self.logs / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644), number)
            sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
            sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115
            _watched(os.open(self.logs / f"seen-{os.getpid()}", os.O_WRONLY | os.O_CREAT, 0o644))
            if fault is not None:
                fault()
            code = main(list(arguments))
        except BaseException:
            traceback.print_exc()
        finally:
            try:
                sys.stdout.flush()
                sys.stderr.flush()
            finally:
                os._exit(code)

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def poll(self) -> Ended | None:
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        if pid == 0:
            if time.monotonic() - self.started > PATIENCE:
                os.kill(self.pid, signal.SIGKILL)
                os.waitpid(self.pid, 0)
                return Ended(71, "", "hanging")
            return None
        code = os.waitstatus_to_exitcode(status)
        return Ended(code, (self.logs / "out").read_text(), (self.logs / "err").read_text())

    def wait(self) -> Ended:
        while (ended := self.poll()) is None:
            time.sleep(0.005)
        return ended

    def until(self, ready: Callable[[], bool]) -> Ended | None:
        """None once `ready`, or how the command ended before."""
        while not ready():
            if (ended := self.poll()) is not None:
                return ended
            time.sleep(0.002)
        return None


def seen(logs: Path) -> list[tuple[int, dict[str, float]]]:
    """Step and metrics of everything that progress bars have shown."""
    rows: list[dict[str, Any]] = []
    for path in logs.glob("seen-*"):
        for line in path.read_bytes().splitlines(keepends=True):
            if line.endswith(b"\n"):  # a disk that is full cuts what is written here as well
                rows.append(json.loads(line))
    return [(row["step"], row) for row in rows if row]


def warm_up(random: Random) -> None:
    """Load once what every child would: the digits. Four of five children leave out the plot, half of their time."""
    images, labels = sklearn.datasets.load_digits(return_X_y=True)
    sklearn.datasets.load_digits = functools.partial(lambda return_X_y: (images, labels))
    draw = curves.plot_curves
    curves.plot_curves = lambda *given: draw(*given) if random.random() < 0.2 else None
    blocks._SAVE_EVERY = 0.0  # every block of an audit is kept, so that every kill meets a state file


def _watched(descriptor: int) -> None:
    """Write down what the progress bar is given to show: at once, so that a kill loses nothing that was shown."""
    show = StepProgress.__call__

    def showing(self: StepProgress, step: int, steps: int, metrics: dict[str, float]) -> None:
        os.write(descriptor, (json.dumps(metrics) + "\n").encode())
        show(self, step, steps, metrics)

    StepProgress.__call__ = showing  # type: ignore[method-assign]
