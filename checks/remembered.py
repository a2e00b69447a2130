"""Bounds that are computed once, for tests and checks of something else.

A plan, a receipt, a checkpoint and their verification each certify the same ledger again. A bound is a function of
values that do not change, so the second one is the first. Processes that are started, not forked, compute their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache, wraps
from typing import Any
from unittest.mock import patch

from plrvo.accounting.correlated.ledger import CorrelatedLedger
from plrvo.accounting.ledger import Ledger

_BOUNDS = ("certified", "quick", "attacked")


def _once(method: Callable[[Any, float], Any]) -> Callable[[Any, float], Any]:
    # Ledgers are equal whatever `layered` is.
    known = cache(lambda ledger, layered, delta: method(ledger, delta))

    @wraps(method)
    def found(ledger: Any, delta: float) -> Any:
        return known(ledger, ledger.layered, delta) if type(delta) is float else method(ledger, delta)

    return found


_REMEMBERED = [(kind, name, _once(getattr(kind, name))) for kind in (Ledger, CorrelatedLedger) for name in _BOUNDS]


@contextmanager
def bounds_remembered() -> Iterator[None]:
    """Within it, no bound of an equal ledger is computed a second time in this process."""
    with ExitStack() as stack:
        for kind, name, found in _REMEMBERED:
            stack.enter_context(patch.object(kind, name, found))
        yield
