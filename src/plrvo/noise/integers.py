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
from plrvo.noise.spans import scratch

Integers = NDArray[np.int64]

_BLOCK = 1 << 14  # draws that stay in the cache of a core while the steps pass over them
_SPAN = 1 << 17  # draws of one stream at most
_SHIFT = 1.5 * 2.0**52  # an integer below 2^51 added to it stands in its last bits
_SHIFT_BITS = np.float64(_SHIFT).view(np.int64)
_REFINING = threading.Lock()  # mpmath keeps constants such as pi in a place that all threads write to


class _Open(NamedTuple):
    """Draws of one block that doubles could not decide."""

    part: Integers
    places: Integers  # in `part`
    members: Integers  # which draws of their groups these are
    groups: Integers
    words: NDArray[np.uint64]  # [words, draws]


def add_integers(flats: Sequence[Integers], reals: Reals, keystream: Keystream) -> int:
    """Add a fresh rounded draw to every element; returns how many draws took more than doubles."""
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
    still_open = [found for opened in left for found in opened]
    if still_open:
        _close(still_open, reals, further)
    return sum(found.places.size for found in still_open)


def _add_to_span(span: Integers, reals: Reals, stream: Stream) -> list[_Open]:
    left: list[_Open] = []
    most = -(-min(_BLOCK, span.size) // reals.draws)
    buffer, doubles = scratch(reals.words * most + 2, 2 * reals.draws * most)
    spare = doubles.view(np.float64).reshape(2, -1)
    for start in range(0, span.size, _BLOCK):
        part = span[start : start + _BLOCK]
        groups = -(-part.size // reals.draws)
        stream.fill(buffer[: reals.words * groups + 2])
        words = buffer[: reals.words * groups].reshape(reals.words, groups)
        x, spares = (row[: reals.draws * groups].reshape(reals.draws, groups) for row in spare)
        undecided = reals.approximate(words, x, spares)
        if undecided is not None:
            x[undecided] = 0.0
            left.append(_opened(part, undecided, words))
        drawn = x.reshape(-1)
        drawn += _SHIFT  # whose last place is one: the integer is in the last bits
        part += drawn.view(np.int64)[: part.size]
        part -= _SHIFT_BITS
    return left


def _opened(part: Integers, undecided: NDArray[np.bool_], words: NDArray[np.uint64]) -> _Open:
    places = np.flatnonzero(undecided)
    places = places[places < part.size]
    members, groups = np.divmod(places, words.shape[1])
    return _Open(part, places, members, groups, words[:, groups])


def _close(still_open: list[_Open], reals: Reals, further: Stream) -> None:
    """Add the draws that are open: by long doubles, all at once, and what these leave open by intervals."""
    integers, undecided = reals.sharper(np.concatenate([found.words for found in still_open], axis=1))
    start, left = 0, []
    for found in still_open:
        drawn = found.members, np.arange(start, start + found.places.size)
        start += found.places.size
        open_still = undecided[drawn]
        found.part[found.places] += np.where(open_still, 0, integers[drawn])
        left += [(found, i) for i in np.flatnonzero(open_still).tolist()]
    if not left:
        return
    with _REFINING:
        refiner, known = Refiner(reals), {}
        for found, i in left:
            # Draws of one group share the bits that are drawn for it.
            group = id(found), int(found.groups[i])
            if group not in known:
                known[group] = refiner.nearest_integers(found.words[:, i].tolist(), lambda: int(further.words(1)[0]))
            place = found.places[i]
            found.part[place : place + 1] += np.int64(_wrapped(known[group][found.members[i]]))


def _wrapped(integer: int) -> int:
    """The 64-bit integer that is equal to it modulo 2^64."""
    return (integer + (1 << 63)) % (1 << 64) - (1 << 63)
