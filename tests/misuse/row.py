"""One misuse: what a user does, and what happens. A row is a test for each mode, and a line of docs/misuse.md."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

MODES = ("bookkeeping", "hooks", "exact")
ANY = ("any",)  # no matter of how clipped sums are formed


@dataclass(frozen=True)
class Misuse:
    """`attempt(mode)` does it. With `error`, it must raise that, matching `match`; without, it asserts by itself."""

    section: str
    does: str
    happens: str
    attempt: Callable[[str], None]
    modes: tuple[str, ...]
    error: tuple[type[BaseException], ...] = ()
    match: str = ""

    def check(self, mode: str) -> None:
        if not self.error:
            self.attempt(mode)
            return
        with pytest.raises(self.error, match=self.match or None):
            self.attempt(mode)


class Section:
    """Collects the rows of a section through a decorator."""

    def __init__(self, name: str) -> None:
        self.name, self.rows = name, list[Misuse]()

    def row(
        self,
        does: str,
        happens: str,
        *,
        modes: tuple[str, ...] = MODES,
        error: Any = (),
        match: str = "",
    ) -> Callable[[Callable[[str], None]], Callable[[str], None]]:
        errors = error if isinstance(error, tuple) else (error,)

        def add(attempt: Callable[[str], None]) -> Callable[[str], None]:
            self.rows.append(Misuse(self.name, does, happens, attempt, modes, errors, match))
            return attempt

        return add
