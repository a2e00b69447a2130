"""The callback of a private trainer that hands on what is logged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from transformers import TrainerCallback

from plrvo.training.trackers import Tracker


class Told(TrainerCallback):
    """Hands on what is logged."""

    def __init__(self, trackers: Sequence[Tracker]) -> None:
        self.trackers = trackers

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        if not state.is_world_process_zero:  # all processes log the same
            return
        numbers = {name: float(value) for name, value in (logs or {}).items() if isinstance(value, int | float)}
        for tracker in self.trackers:
            tracker.log(state.global_step, numbers)
