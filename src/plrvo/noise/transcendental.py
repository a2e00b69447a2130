"""log, sin and expm1 of NumPy arrays in place, by the faster of two libraries.

On processors with AVX-512 NumPy's own functions are (singles 2 to 3 times as fast as torch's, log and expm1 of doubles
too); elsewhere torch's take half the time of NumPy's, where torch is loaded. Which one is used depends on the processor
and on what is loaded, never on a clock: what a seed gives is the same every time on one machine, and differs in the
last bits between such machines.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plrvo.noise import processor

_GRAIN = 1 << 15  # longer rows torch would give to threads of its own, beside those that call this


def log(x: NDArray[Any]) -> None:
    """x becomes log x."""
    _in_place("log", x)


def sin(x: NDArray[Any]) -> None:
    """x becomes sin x."""
    _in_place("sin", x, in_vectors=x.dtype == np.float32)


def expm1(x: NDArray[Any]) -> None:
    """x becomes e^x - 1."""
    _in_place("expm1", x)


def _in_place(name: str, x: NDArray[Any], in_vectors: bool = True) -> None:
    torch = sys.modules.get("torch")
    if torch is None or (in_vectors and _has_wide_vectors()):
        getattr(np, name)(x, out=x)
        return
    for part in torch.from_numpy(x).view(-1).split(_GRAIN):
        getattr(torch, name)(part, out=part)


def _has_wide_vectors() -> bool:
    """Whether NumPy computes these functions in vectors of 512 bits here."""
    return processor.has("AVX512_SKX")
