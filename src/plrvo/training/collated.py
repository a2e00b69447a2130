"""Whether the loader makes an example longer for the sake of the others in its batch.

Lengths that change from batch to batch are the sign of padding to the longest. Where all batches are alike (the whole
data set in each step, or the first batch of a run) nothing changes, and the length of one example decides about all
others none the less. So examples of the batch at hand, a short one among them, are collated once more, each alone: a
dimension that is not of the batch's length for all of them follows the batch.

Where it is of that length for all of them, the data set may have made it so, or the collate function, by a constant or
by the longest example that it has ever seen. That one can be told from a constant by an example that is longer still.

The loader is asked beside the steps: whatever it draws from is put back (`own_generators`), as steps would differ from
those of a run that asks elsewhere. What else a data set counts or reads on with each item is its own affair.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from plrvo.training.descendants import not_followed
from plrvo.training.draws import Draws
from plrvo.training.own_generators import own_generators_aside
from plrvo.training.state import generators_aside, seed_all
from plrvo.training.structure import map_leaves, tensors_in

_OTHERS = 6  # examples, besides a short and the longest one
_SEED = 21  # of what a data set or a collate function draws while it is asked
_TEXT = -1  # in the place of a size
_MOST = 10_000_000  # numbers in an example that is made longer


class Collated:
    """Asks the data set and the collate function of a loader, which it does not keep alive."""

    def __init__(self, loader: Any, draws: Draws) -> None:
        self._loader, self._draws = weakref.ref(loader), draws

    def follows(self, short: int, longest: int, rows: int, length: int) -> bool:
        """Whether a dimension of this length is as long as it is for the longest of these rows of the batch.

        Some examples more are asked for, as a collate function may put its rows in another order. Where nobody can tell
        it is taken to be: where the loader gives nothing of that length, as of texts that a loop makes numbers of, and
        where it cannot be asked once more.
        """
        indices = self._draws.under_way(rows)
        if indices is None:
            return True
        others = range(0, rows, max(1, rows // _OTHERS))
        with self._aside() as loader:
            asked = [_example(loader, indices[row]) for row in dict.fromkeys((short, longest, *others))]
            found = [_dimensions(loader, example, length) for example in asked]
            return not all(found) or len(set(found)) > 1 or _grows(loader, asked, found[0] or 0, length)

    @contextmanager
    def _aside(self) -> Iterator[Any]:
        """The loader, which draws what nobody else does."""
        loader: Any = self._loader()
        parts = () if loader is None else (loader.dataset, loader.collate_fn)
        with generators_aside(torch.device("cpu")), own_generators_aside(*parts), not_followed():
            yield loader


def _example(loader: Any, index: int) -> list[Any]:
    """As a list of one; an empty one where it cannot be asked for once more."""
    try:
        seed_all(_SEED)
        several = getattr(loader.dataset, "__getitems__", None)
        return [loader.dataset[index]] if several is None else list(several([index]))
    except Exception:
        return []


def _dimensions(loader: Any, example: list[Any], length: int) -> int | None:
    """How many dimensions of what the loader makes of this example alone have that length; None if it makes nothing."""
    try:
        seed_all(_SEED)
        return sum([list(t.shape).count(length) for t in tensors_in(loader.collate_fn(example))]) if example else None
    except Exception:
        return None


def _grows(loader: Any, asked: list[list[Any]], count: int, length: int) -> bool:
    """Whether the collate function, to which all of these are of that length, makes an example longer that exceeds it.

    By one, as a function that keeps the longest keeps this one too. Where examples have that length before they are
    collated, it is the data set that has made it. An error is a constant that is exceeded.
    """
    example = min(asked, key=lambda one: _sizes(one).count(length))
    sizes = _sizes(example)
    if sizes.count(length) >= count:
        return False
    for size in dict.fromkeys(n for n in sizes if n not in (0, length)):  # words, masks and labels together
        longer = map_leaves(example, partial(_stretched, size=size, to=length + 1), until=_is_list)
        made = _dimensions(loader, longer, length)
        if made is not None and made < count:
            return True
    return False


def _is_list(value: Any) -> bool:
    return type(value) in (list, tuple) and len(value) > 0 and all(isinstance(v, int | float) for v in value)


def _sizes(example: Any) -> list[int]:
    """Of all dimensions of all tensors, arrays and lists of numbers, and a mark for texts."""
    found: list[int] = []

    def note(leaf: Any) -> None:
        if isinstance(leaf, (Tensor, np.ndarray)):
            found.extend(leaf.shape)
        elif isinstance(leaf, str) or _is_list(leaf):
            found.append(_TEXT if isinstance(leaf, str) else len(leaf))

    map_leaves(example, note, until=_is_list)
    return found


def _stretched(leaf: Any, size: int, to: int) -> Any:
    """A leaf with each dimension of that size made longer by its own numbers once more; a text of so many words."""
    if isinstance(leaf, str):
        return " ".join(leaf.split()[:1] * to) if size == _TEXT else leaf
    if _is_list(leaf):
        return type(leaf)(leaf[i % size] for i in range(to)) if len(leaf) == size else leaf
    if isinstance(leaf, (Tensor, np.ndarray)) and math.prod(to if n == size else n for n in leaf.shape) <= _MOST:
        where = np.ix_(*(np.arange(to if n == size else n) % n for n in leaf.shape))
        return leaf[where] if leaf.ndim and 0 not in leaf.shape else leaf
    return leaf
