"""`python -m torture --kills 500 --corruptions 40 --out results/torture.json`; exit code 1 if anything was lost."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MPLBACKEND", "Agg")


def main() -> int:
    parser = argparse.ArgumentParser(prog="torture", description=__doc__)
    parser.add_argument("--kills", type=int, default=500)
    parser.add_argument("--corruptions", type=int, default=40)
    parser.add_argument("--minutes", type=float, default=120)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    from torture.campaign import run

    with tempfile.TemporaryDirectory(prefix="torture-") as place:
        wanted = given.seed, given.kills, given.corruptions, given.minutes
        result = run(Path(place), *wanted, lambda line: print(line, file=sys.stderr, flush=True))
    text = json.dumps(result, indent=2) + "\n"
    if given.out is not None:
        given.out.write_text(text)
    print(text, end="")
    return int(bool(result["lost"]))


if __name__ == "__main__":
    sys.exit(main())
