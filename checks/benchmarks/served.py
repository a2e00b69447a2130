"""The process of one version in `earlier`: a private step for every line that comes in, and the seconds it computed."""

from __future__ import annotations

import importlib
import sys
import time
from pathlib import Path


def main(model: str, batch: str, size: str) -> None:
    folder = "checks.benchmarks" if Path("checks/benchmarks").is_dir() else "benchmarks"  # as that version has it
    steps = importlib.import_module(f"{folder}.steps")
    private = steps.stepper(steps.OURS, steps.Case(model, int(batch), int(size)))
    for _ in sys.stdin:
        start = time.process_time()
        private()
        print(time.process_time() - start, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
