"""What it takes to get going: the accountant's import, and the help, against what neither can do without."""

from __future__ import annotations

import subprocess
import sys

from checks.benchmarks.timing import interleaved, shown

_USED = "import plrvo; plrvo.epsilon"  # names are imported when they are asked for
_HELP = "import sys; from plrvo.cli.main import main; sys.exit(main(['--help']))"


def _fresh(statement: str) -> None:
    subprocess.run([sys.executable, "-c", statement], check=True, stdout=subprocess.DEVNULL)


def run() -> list[dict[str, object]]:
    statements = {"plrvo": "import plrvo", "used": _USED, "scipy.special": "import scipy.special"}
    statements |= {"help": _HELP, "typer": "import typer"}
    times = interleaved({name: lambda text=text: _fresh(text) for name, text in {**statements, "nothing": ""}.items()})
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
