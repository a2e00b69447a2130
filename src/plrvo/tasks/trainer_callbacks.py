"""The callbacks of a private trainer: what is logged is handed on, and who looks at the model is noticed before."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from transformers import TrainerCallback

from plrvo.training.trackers import Tracker

# Between two releases (an evaluation, a checkpoint) a callback is given the model in these.
_LOOKS = (
    "on_step_begin",
    "on_step_end",
    "on_optimizer_step",
    "on_epoch_begin",
    "on_epoch_end",
    "on_log",
    "on_train_end",
)
_OURS = ("transformers", "plrvo")


class Told(TrainerCallback):
    """Hands on what is logged."""

    def __init__(self, trackers: Sequence[Tracker]) -> None:
        self._trackers = trackers

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        if not state.is_world_process_zero:  # all processes log the same
            return
        numbers = {name: float(value) for name, value in (logs or {}).items() if isinstance(value, int | float)}
        for tracker in self._trackers:
            tracker.log(state.global_step, numbers)


class ShowSteps(TrainerCallback):
    """Calls `show` after each step that somebody's callback is given the model of, before it is.

    Goes in front of them.
    """

    def __init__(self, callbacks: Callable[[], Sequence[Any]], show: Callable[[], None]) -> None:
        self._callbacks, self._show = callbacks, show

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if any(map(looks, self._callbacks())) or os.environ.get("WANDB_WATCH", "").lower() == "parameters":
            self._show()


def looks(callback: Any) -> bool:
    """Whether it may look at the model between two releases; those of `transformers` do not."""
    kind, own = type(callback), vars(callback)
    if kind.__module__.partition(".")[0] in _OURS:
        return False
    return any(name in own or getattr(kind, name, None) is not getattr(TrainerCallback, name) for name in _LOOKS)
