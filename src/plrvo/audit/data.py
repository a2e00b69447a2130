"""What a black-box audit trains on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Dataset:
    """Features, one row per example (in [0, 1] for the files we read), and labels 0 .. classes - 1."""

    name: str
    x: NDArray[np.float32]
    y: NDArray[np.int64]
    classes: int

    def __len__(self) -> int:
        return len(self.x)
