"""Modes of torch that see every operation of a thread, and that are put aside and taken up again at any time."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from torch.utils import _python_dispatch

_Mode: Any = _python_dispatch.TorchDispatchMode  # which has no types


class Listener(_Mode):
    """Hears of operations between `resume` and `pause`, in the thread that made it."""

    def __init__(self) -> None:
        super().__init__()
        self._is_running = False
        self._thread = threading.get_ident()  # modes are of a thread; passes back may have threads of their own

    @property
    def is_running(self) -> bool:
        return self._is_running

    def resume(self) -> None:
        if not self._is_running and self._thread == threading.get_ident():
            self._is_running = True
            with _lifted(_modes()):  # under those of others, who will leave theirs from the top
                self.__enter__()

    def pause(self) -> None:
        if self._is_running and self._thread == threading.get_ident():
            self._is_running = False
            modes = _modes()
            if any(mode is self for mode in modes):  # a compiler may have cleared all modes in between
                with _lifted(modes[[mode is self for mode in modes].index(True) + 1 :]):
                    self.__exit__(None, None, None)


def _modes() -> list[Any]:
    return list(_python_dispatch._get_current_dispatch_mode_stack())


@contextmanager
def _lifted(modes: Sequence[Any]) -> Iterator[None]:
    """Without the uppermost modes, which come back afterwards."""
    for _ in modes:
        _python_dispatch._pop_mode()
    try:
        yield
    finally:
        for mode in modes:
            _python_dispatch._push_mode(mode)
