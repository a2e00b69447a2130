"""What every law of a step's loss can do."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Transform = Callable[[Array], Array]


class LossLaw(ABC):
    """Draws of Lambda for one step."""

    @abstractmethod
    def draw(self, present: bool, count: int, generator: np.random.Generator) -> Array:
        """So many independent values, with the canary in the sum (`present`) or not."""

    def mapped(self, transform: Transform) -> LossLaw:
        """The law of a function of Lambda."""
        return _Mapped(self, transform)


class _Mapped(LossLaw):
    def __init__(self, law: LossLaw, transform: Transform) -> None:
        self._law, self._transform = law, transform

    def draw(self, present: bool, count: int, generator: np.random.Generator) -> Array:
        return self._transform(self._law.draw(present, count, generator))
