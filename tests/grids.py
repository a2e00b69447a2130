"""Grids of cases of which some are tried each time, and all with `-m slow`."""

from collections.abc import Iterable
from typing import Any

import pytest


def one_in(every: int, cases: Iterable[Any]) -> list[Any]:
    """The cases, all but one in `every` of them marked as slow.

    An odd step through a product of lists meets every value of each.
    """
    return [
        case if number % every == 0 else pytest.param(*_values(case), marks=pytest.mark.slow)
        for number, case in enumerate(cases)
    ]


def _values(case: Any) -> tuple[Any, ...]:
    return case if isinstance(case, tuple) else (case,)
