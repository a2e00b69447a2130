"""Memory that is free again: kept from step to step, and given back to the system after tries.

A step drops all that it has made, and the next one makes the same again. The GNU C library gives the system back what
is free at the end of its memory beyond 64 MB at most, and to get it again takes as long as much of the arithmetic of a
small step: the system clears each page before it hands it out. `keep` asks the library to keep it, in a process whose
user wants that: nothing here calls it, as memory that is kept comes in pieces, of which a long run of batches of many
sizes may hold more and more.

A try makes and drops tensors of many sizes, with small ones in between that stay. What is dropped then lies in pieces
that nothing else fits into, and a process would keep them as long as it runs, beside all that its steps ask for.
"""

from __future__ import annotations

import ctypes
import os
from functools import cache
from typing import Any

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # the library's numbers for what can be set
_MOST_KEPT = (1 << 31) - 1  # bytes: all that fits the number that is taken
# From how many bytes on a tensor has pages of its own, which go back with it: what the library comes to by itself, up
# from less, when such tensors are dropped. It would stop at whatever it has come to as soon as anything is set.
_OWN_PAGES = 1 << 25
_OF_THE_USER = ("MALLOC_", "GLIBC_TUNABLES")  # settings that are the user's own


@cache
def keep() -> bool:
    """From now on, in this process; whether it is so. Where the user has set how memory is kept, it stays like that."""
    setting = _of_library("mallopt")
    if setting is None or any(name.startswith(_OF_THE_USER) for name in os.environ):
        return False
    return bool(setting(_MMAP_THRESHOLD, _OWN_PAGES)) and bool(setting(_TRIM_THRESHOLD, _MOST_KEPT))


def give_back() -> None:
    """What the allocator can: that of the GNU C library can, which PyTorch uses on Linux unless told otherwise."""
    trim = _of_library("malloc_trim")
    if trim is not None:
        trim(0)


@cache
def _of_library(name: str) -> Any:
    try:
        return getattr(ctypes.CDLL(None), name, None)
    except (OSError, TypeError):  # a system without a C library of its process
        return None
