"""What a private step costs beside an earlier commit's: `python -m checks.benchmarks.earlier COMMIT`.

Two processes, one of each version, take turns on the same models and batches, with one thread each. Their own computing
time counts (`process_time`), so that other work on the machine weighs on both alike and little on either.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from checks.benchmarks.timing import Timing, shown, timed

BEFORE = "e2217fe"  # the last commit before noise came from a cipher, norms were bounded and passes were watched
CASES = {
    "MLP of 1.4M parameters, batch 128": (("mlp", 128, 800), 40),
    "CNN of 26,010 parameters, batch 600": (("cnn", 600, 0), 15),
    "ResNet-18, batch 32": (("resnet18", 32, 0), 7),
    "MiniLM, all layers, batch 32, length 64": (("minilm", 32, 64), 7),
}
_FIRST = 4  # steps that are not counted: models are tried in them
_ROOT = Path(__file__).parents[2]


@contextmanager
def _served(tree: Path, case: tuple[str, int, int]) -> Iterator[Callable[[], float]]:
    command = [sys.executable, "-P", str(Path(__file__).with_name("served.py")), *map(str, case)]
    paths = os.pathsep.join((str(tree / "src"), str(tree)))
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=tree, env=environment, **pipes) as process:
        ask: Any = process.stdin
        answers: Any = process.stdout

        def step() -> float:
            print(file=ask, flush=True)
            return float(answers.readline())

        for _ in range(_FIRST):
            step()
        yield step
        ask.close()


def run(commit: str = BEFORE) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        git = ["git", "-C", str(_ROOT), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", str(tree), commit], check=True)
        try:
            for name, (case, turns) in CASES.items():
                with _served(_ROOT, case) as ours, _served(tree, case) as theirs:
                    times = timed({"now": ours, "before": theirs}, turns)
                rows.append(_row(name, times["now"], times["before"], commit))
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=True)
    return rows


def _row(name: str, now: Timing, before: Timing, commit: str) -> dict[str, object]:
    return {
        "what": f"computing time of a private step, {name}, against commit {commit}",
        "ours": f"{shown(now.median)} (spread {shown(now.spread)})",
        "theirs": f"{shown(before.median)} (spread {shown(before.spread)})",
        "ratio": f"{now.median / before.median:.2f}x the time",
        "model": name,
        "seconds": {"now": now.median, "before": before.median},
    }


if __name__ == "__main__":
    for row in run(*sys.argv[1:]):
        print(f"{row['what']}: {row['ours']}, {row['theirs']}  {row['ratio']}")
