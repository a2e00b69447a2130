"""Integer noise added to arrays of 64-bit integers, by as many threads as there are.

Sums wrap around at 2^64. That loses nothing: the wrapped sum of signal and noise is a function of the true one, so it
tells at most as much (post-processing), however heavy the noise's tail is.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from plrvo.noise.exponentials import available_threads
from plrvo.noise.keystream import Keystream, Stream
from plrvo.noise.refine import Refiner
from plrvo.noise.rounding import Reals

Integers = NDArray[np.int64]

_BLOCK = 1 << 14  # draws that stay in the cache of a core while the steps pass over them
_SPAN = 1 << 17  # draws of one stream at most
_REFINING = threading.Lock()  # mpmath keeps constants such as pi in a place that all threads write to


class _Open(NamedTuple):
    """Draws of one group that are still to be added: into `part`, at these places."""

    part: Integers
    places: list[int]
    members: list[int]  # which draws of the group these are
    words: list[int]


def add_integers(flats: Sequence[Integers], reals: Reals, keystream: Keystream) -> int:
    """Add a fresh rounded draw to every element; returns how many draws took more than their first words."""
    spans = [flat[start : start + _SPAN] for flat in flats for start in range(0, flat.size, _SPAN)]
    *streams, further = keystream.streams(len(spans) + 1)

    def write(number: int) -> list[_Open]:
        return _add_to_span(spans[number], reals, streams[number])

    threads = min(available_threads(), len(spans))
    if threads < 2 or sum(span.size for span in spans) < _SPAN:
        left = [write(number) for number in range(len(spans))]
    else:
        with ThreadPoolExecutor(threads) as pool:
            left = list(pool.map(write, range(len(spans))))
    with _REFINING:
        refiner = Refiner(reals)
        for still in (group for groups in left for group in groups):
            found = refiner.nearest_integers(still.words, lambda: int(further.words(1)[0]))
            for place, member in zip(still.places, still.members, strict=True):
                still.part[place : place + 1] += np.int64(_wrapped(found[member]))
    return sum(len(group.places) for groups in left for group in groups)


def _add_to_span(span: Integers, reals: Reals, stream: Stream) -> list[_Open]:
    left: list[_Open] = []
    most = -(-min(_BLOCK, span.size) // reals.draws)
    buffer, integers = np.empty(reals.words * most + 2, np.uint64), np.empty(reals.draws * most, np.int64)
    scratch = np.empty((2, reals.draws * most))
    for start in range(0, span.size, _BLOCK):
        part = span[start : start + _BLOCK]
        groups = -(-part.size // reals.draws)
        stream.fill(buffer[: reals.words * groups + 2])
        words = buffer[: reals.words * groups].reshape(reals.words, groups)
        x, spares = (row[: reals.draws * groups].reshape(reals.draws, groups) for row in scratch)
        undecided = reals.approximate(words, x, spares)
        if undecided.any():
            x[undecided] = 0.0
            left += _still_open(part, undecided, words)
        drawn = integers[: x.size]
        np.copyto(drawn, x.reshape(-1), casting="unsafe")
        part += drawn[: part.size]
    return left


def _still_open(part: Integers, undecided: NDArray[np.bool_], words: NDArray[np.uint64]) -> list[_Open]:
    groups = undecided.shape[1]
    found = []
    for group in np.flatnonzero(undecided.any(axis=0)).tolist():
        members = [m for m in np.flatnonzero(undecided[:, group]).tolist() if m * groups + group < part.size]
        places = [m * groups + group for m in members]
        found.append(_Open(part, places, members, [int(word) for word in words[:, group]]))
    return found


def _wrapped(integer: int) -> int:
    """The 64-bit integer that is equal to it modulo 2^64."""
    return (integer + (1 << 63)) % (1 << 64) - (1 << 63)
