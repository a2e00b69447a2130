"""`import plrvo` against the library that it cannot do without."""

from __future__ import annotations

import subprocess
import sys

from checks.benchmarks.timing import interleaved, shown


def _fresh(statement: str) -> None:
    subprocess.run([sys.executable, "-c", statement], check=True)


def run() -> list[dict[str, object]]:
    times = interleaved(
        {
            "plrvo": lambda: _fresh("import plrvo"),
            "scipy.special": lambda: _fresh("import scipy.special"),
            "nothing": lambda: _fresh(""),
        }
    )
    start = times["nothing"].median
    ours, theirs = times["plrvo"].median - start, times["scipy.special"].median - start
    return [
        {
            "what": "import plrvo, against import scipy.special (interpreter start taken off)",
            "ours": shown(ours),
            "theirs": shown(theirs),
            "ratio": f"{ours / theirs:.2f}x the time",
        }
    ]
