"""What a run does where the user says nothing. Nothing here needs torch, or data: help tells it at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

AMPLE = 2.0  # an epsilon from which on there is room for more steps


@dataclass(frozen=True)
class Defaults:
    """What a run does where the user says nothing."""

    delta: float = 1e-5
    clip: float = 0.1
    sample_rate: float = 0.05
    steps: int = 300
    learning_rate: float = 0.1
    optimizer: str = "sgd"
    schedule: str = "constant"
    average: float | None = None
    physical_batch: int | None = None
    ample: Mapping[str, Any] = field(default_factory=dict)  # other values, where epsilon is at least `AMPLE`

    def at(self, epsilon: float | None) -> Defaults:
        """Where the budget is `epsilon`: less noise bears longer training."""
        return self if epsilon is None or epsilon < AMPLE else replace(self, **self.ample, ample={})


@dataclass(frozen=True)
class Usual:
    """What a task does by default, before its data is loaded.

    `examples` is the public number of examples that the defaults are for; it is `known` where no other number can come
    of the files. `parts` are options of the family by name.
    """

    model: str
    examples: int
    known: bool
    defaults: Defaults
    parts: Mapping[str, Any] = field(default_factory=dict)
