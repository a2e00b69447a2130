"""log, sin and expm1 of NumPy arrays in place: by torch's functions where torch is loaded, which take half the time.

The two libraries differ in the last bits, and so does what a seed gives with and without torch.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray


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
    else:
        tensor = torch.from_numpy(x)
        getattr(torch, name)(tensor, out=tensor)
