"""How the commands of a page name files: as they are typed where the page was made."""

from __future__ import annotations

import shlex
from pathlib import Path


def typed(path: Path) -> str:
    """The path as it was given, or from the current directory on where it lies there; quoted for a shell.

    A page is sent around: of a path from the root of a machine to somewhere else, only the last folder is told.
    """
    if path.is_absolute():
        here = Path.cwd()
        path = path.relative_to(here) if path.is_relative_to(here) else Path(*path.parts[-2:])
    return shlex.quote(f"./{path}" if str(path).startswith("-") else str(path))
