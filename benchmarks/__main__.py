"""`make bench`: everything, or the groups named on the command line."""

from __future__ import annotations

import importlib
import json
import platform
import sys
from pathlib import Path

GROUPS = ("accounting", "audit", "design", "imports", "sampling", "training")


def main() -> None:
    results = {}
    for group in sys.argv[1:] or GROUPS:
        rows = importlib.import_module(f"benchmarks.{group}").run()
        results[group] = rows
        print(f"\n{group}")
        for row in rows:
            print(f"  {row['what']}: {row['ours']}, {row['theirs']}  {row['ratio']}")
    if len(results) == len(GROUPS):
        file = Path(__file__).with_name("results.json")
        file.write_text(json.dumps({"python": platform.python_version(), "groups": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
