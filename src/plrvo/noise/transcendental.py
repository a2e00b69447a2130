"""log, sin and expm1 of NumPy arrays in place: by torch's functions where torch is loaded, which take half the time.

The two libraries differ in the last bits, and so does what a seed gives with and without torch.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

_GRAIN = 1 << 15  # longer rows torch would give to threads of its own, beside those that call this


def log(x: NDArray[Any]) -> None:
    """x becomes log x."""
    _in_place("log", x)


def sin(x: NDArray[Any]) -> None:
    """x becomes sin x."""
    _in_place("sin", x)


def expm1(x: NDArray[Any]) -> None:
    """x becomes e^x - 1."""
    _in_place("expm1", x)


def _in_place(name: str, x: NDArray[Any]) -> None:
    torch = sys.modules.get("torch")
    if torch is None:
        getattr(np, name)(x, out=x)
        return
    for part in torch.from_numpy(x).view(-1).split(_GRAIN):
        getattr(torch, name)(part, out=part)
