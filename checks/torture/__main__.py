"""`python -m checks.torture --kills 500 --corruptions 40 --out FILE`; exit code 1 if anything was lost."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MPLBACKEND", "Agg")


def main() -> int:
    parser = argparse.ArgumentParser(prog="torture", description=__doc__)
    parser.add_argument("--kills", type=int, default=500)
    parser.add_argument("--corruptions", type=int, default=40)
    parser.add_argument("--minutes", type=float, default=120)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1, help="campaigns side by side, with a seed of their own each")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    result = _campaign(given) if given.jobs == 1 else merged(_side_by_side(given))
    text = json.dumps(result, indent=2) + "\n"
    if given.out is not None:
        given.out.write_text(text)
    print(text, end="")
    return int(bool(result["lost"]))


def _campaign(given: argparse.Namespace) -> dict[str, Any]:
    from checks.torture.campaign import run

    with tempfile.TemporaryDirectory(prefix="torture-") as place:
        wanted = given.seed, given.kills, given.corruptions, given.minutes
        return run(Path(place), *wanted, lambda line: print(line, file=sys.stderr, flush=True))


def _side_by_side(given: argparse.Namespace) -> list[dict[str, Any]]:
    """Processes of their own: a campaign forks, and must not have threads."""
    share = [f"--kills={-(-given.kills // given.jobs)}", f"--corruptions={-(-given.corruptions // given.jobs)}"]
    command = [sys.executable, "-m", "checks.torture", *share, f"--minutes={given.minutes}"]
    seeds = range(given.seed, given.seed + given.jobs)
    running = [subprocess.Popen([*command, f"--seed={seed}"], stdout=subprocess.PIPE) for seed in seeds]
    return [json.loads(process.communicate()[0]) for process in running]


def merged(results: list[dict[str, Any]]) -> dict[str, Any]:
    """The sum of several campaigns of the same code."""
    (code,) = {result["code"] for result in results}
    counts = sum((Counter(result["counts"]) for result in results), Counter[str]())
    return {
        "seed": [result["seed"] for result in results],
        "code": code,
        "counts": dict(sorted(counts.items())),
        "lost": [sentence for result in results for sentence in result["lost"]],
        "minutes": max(result["minutes"] for result in results),
    }


if __name__ == "__main__":
    sys.exit(main())
