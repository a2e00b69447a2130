"""What it takes to get going: the accountant's import, and the help, against what neither can do without.

Computing time of a fresh process. All of them find bytecode, as after an installation: without it plrvo alone would be
compiled each time, where the environment says that none is written.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from functools import partial

from checks.benchmarks.timing import shown, timed

_USED = "import plrvo; plrvo.epsilon"  # names are imported when they are asked for
_HELP = "import sys; from plrvo.cli.main import main; sys.exit(main(['--help']))"
_TURNS = 25


def _fresh(statement: str, bytecode: str) -> float:
    """Seconds that a process computes."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPYCACHEPREFIX"] = bytecode
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", statement], check=True, stdout=subprocess.DEVNULL, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def run() -> list[dict[str, object]]:
    statements = {"plrvo": "import plrvo", "used": _USED, "scipy.special": "import scipy.special"}
    statements |= {"help": _HELP, "typer": "import typer", "nothing": ""}
    with tempfile.TemporaryDirectory() as bytecode:
        for statement in statements.values():
            _fresh(statement, bytecode)
        times = timed({name: partial(_fresh, text, bytecode) for name, text in statements.items()}, _TURNS)
    start = times["nothing"].median
    compared = {
        "import plrvo, against import scipy.special": ("plrvo", "scipy.special"),
        "the same, with a function of its accountant": ("used", "scipy.special"),
        "plrvo --help, against import typer": ("help", "typer"),
    }
    rows: list[dict[str, object]] = []
    for what, pair in compared.items():
        ours, theirs = (times[name].median - start for name in pair)
        ratio = f"{ours / theirs:.2g}x the time" if ours < theirs / 10 else f"{ours / theirs:.2f}x the time"
        rows.append(
            {
                "what": f"{what} (interpreter start taken off)",
                "ours": shown(ours),
                "theirs": shown(theirs),
                "ratio": ratio,
            }
        )
    return rows
