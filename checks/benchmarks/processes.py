"""Processes of their own for what is measured, so that nothing is measured in the memory that something else has left.

They are forked from this one, which should have imported everything and computed nothing: its memory is what they begin
with. What an allocator keeps, and whether fresh pages have to be cleared, is then as it is for a user.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
from typing import Any

import torch

from checks.benchmarks.steps import highest_memory

_FORK = multiprocessing.get_context("fork")
Times = tuple[float, float]  # that passed, and that were computed


def error_line(error: Exception) -> str:
    """The first line of an error."""
    return f"{type(error).__name__}: {str(error).strip().splitlines()[0][:160]}" if str(error) else type(error).__name__


def in_a_process(work: Callable[..., Any], *arguments: Any, threads: int = 1) -> Any:
    """What the work gives; None where the process ends without an answer."""
    answers = _FORK.SimpleQueue()

    def run_alone() -> None:
        torch.set_num_threads(threads)
        try:
            answers.put(work(*arguments))
        except Exception as error:
            answers.put(error_line(error))

    process = _FORK.Process(target=run_alone)
    process.start()
    process.join()
    return None if answers.empty() else answers.get()


class Contender:
    """A process that takes a step whenever it is told to, after `first` steps that are not counted."""

    def __init__(self, make: Callable[[], Callable[[], Any]], first: int, threads: int = 1) -> None:
        self._own, far = _FORK.Pipe()
        self._process = _FORK.Process(target=_step_when_told, args=(far, make, first, threads), daemon=True)
        self._process.start()
        far.close()
        self.error = self._hear()  # None where the first steps went well

    def step(self) -> Any:
        """What a step has taken, and what it gave."""
        if self.error:
            raise RuntimeError(self.error)
        self._own.send(True)
        return self._hear()

    def end(self) -> float:
        """The peak of its memory in megabytes; the process is gone."""
        self._own.send(False)
        found = self._hear()
        self._process.join()
        return float(found)

    def _hear(self) -> Any:
        try:
            return self._own.recv()
        except EOFError:
            raise RuntimeError("a process that was measured has died") from None


def _step_when_told(pipe: Any, make: Callable[[], Callable[[], Any]], first: int, threads: int) -> None:
    torch.set_num_threads(threads)
    try:
        step = make()
        for _ in range(first):
            step()
    except Exception as error:  # Opacus's, whatever it is
        pipe.send(error_line(error))
        return
    pipe.send(None)
    while pipe.recv():
        began = time.perf_counter(), time.process_time()
        found = step()
        pipe.send(((time.perf_counter() - began[0], time.process_time() - began[1]), found))
    pipe.send(highest_memory())
