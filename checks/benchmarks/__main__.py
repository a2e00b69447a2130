"""`make bench`: everything, or the groups named on the command line; what is run replaces its part of results.json.

Each group has a process of its own: some fork theirs, which a pool of threads does not survive.
"""

from __future__ import annotations

import importlib
import json
import os
import platform
import subprocess
import sys
from pathlib import Path

GROUPS = (
    "accounting",
    "audit",
    "beyond",
    "design",
    "earlier",
    "exact",
    "field",
    "field_profile",
    "forms",
    "ftrl",
    "imports",
    "large",
    "loading",
    "optimizers",
    "sampling",
    "text",
    "training",
    "growth",
)
RESULTS = Path(__file__).with_name("results.json")


def main(groups: tuple[str, ...]) -> None:
    if len(groups) > 1:
        for group in groups:
            subprocess.run([sys.executable, "-m", "checks.benchmarks", group], check=True)
        return
    (group,) = groups
    rows = importlib.import_module(f"checks.benchmarks.{group}").run()
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"groups": {}}
    results["groups"][group] = rows
    print(f"\n{group}")
    for row in rows:
        print(f"  {row['what']}: {row['ours']}, {row['theirs']}  {row['ratio']}")
    results.update(python=platform.python_version(), cores=os.cpu_count())
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main(tuple(sys.argv[1:]) or GROUPS)
