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
            leave_stopped()
            self._is_running = True
            with _lifted(_modes()):  # under those of others, who will leave theirs from the top
                self.__enter__()

    def pause(self) -> None:
        if self._is_running and self._thread == threading.get_ident():
            self._is_running = False
            leave_stopped()


def leave_stopped() -> None:
    """Take away every listener that was paused while torch had taken it aside.

    Torch takes a mode off its stack while the mode hears of an operation. A listener that is paused just then, as by a
    collector of garbage that runs in between, would be put back afterwards and stay for good.
    """
    modes = _modes()
    for place in reversed(range(len(modes))):
        mode = modes[place]
        if isinstance(mode, Listener) and not mode.is_running:
            with _lifted(_modes()[place + 1 :]):
                mode.__exit__(None, None, None)


@contextmanager
def unheard() -> Iterator[None]:
    """Without any mode, a user's included: numbers of Python that a graph keeps pass through none of them."""
    with _python_dispatch._disable_current_modes():
        yield


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
