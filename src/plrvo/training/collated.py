"""What the loader makes of examples alone, and whether it makes one longer for the sake of the others in its batch.

Lengths that change from batch to batch are the sign of padding to the longest. Where all batches are alike (the whole
data set in each step, or the first batch of a run) nothing changes, and the length of one example decides about all
others none the less. So examples of the batch at hand, a short one among them, are collated once more, together and
each alone. What differs can be put in the place of a row of the module's inputs (`given`), where those are known again
(`matched`); and a dimension that is not of the batch's length for all of them follows the batch (`follows`).

Where it is of that length for all of them, the data set may have made it so, or the collate function, by a constant or
by the longest example that it has ever seen. That one can be told from a constant by an example that is longer still.

The loader is asked beside the steps (`questions`): by a worker, where it has some. Without workers, what else than
generators a data set counts or reads on with each item is its own affair.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from torch import Tensor
from torch.utils.data import Subset, default_collate

from plrvo.training.call import Call
from plrvo.training.draws import Draws
from plrvo.training.matched import Leaf, Match, match, numbers_in, same
from plrvo.training.questions import Failed, ask, fetched
from plrvo.training.state import seed_all
from plrvo.training.structure import map_leaves, tensors_in

_WHOLE = 2  # batches that are asked for as a whole in vain
_COMPARED = 4  # rows
_OTHERS = 6  # examples, besides a short and the longest one
_SEED = 21  # of what a data set or a collate function draws while it is asked
_TEXT = -1  # in the place of a size
_MOST = 10_000_000  # numbers in an example that is made longer
Collate = Callable[[list[Any]], Any]


class Collated:
    """Asks the data set and the collate function of a loader, which it does not keep alive."""

    def __init__(self, loader: Any, draws: Draws) -> None:
        self._loader, self._draws = weakref.ref(loader), draws
        self._in_vain = 0  # times that whole batches were asked for

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
        wanted = [indices[row] for row in dict.fromkeys((short, longest, *others))]
        return self._ask(partial(_follows, indices=wanted, length=length), otherwise=True)

    def given(self, call: Call, wanted: Sequence[int]) -> Given | None:
        """What the loader gives for some rows of the call alone, the `wanted` ones among them, where it differs.

        None where that is not known: of examples that are drawn anew each time, where the loop makes other inputs of
        them, where the loader cannot be asked. Nothing that one function makes of single examples differs.
        """
        indices = self._draws.under_way(call.rows)
        if indices is None or not self.may_differ():
            return None
        rows = sorted({*wanted, *range(0, call.rows, max(1, call.rows // _OTHERS))})
        found = self._matched(call, indices, rows, rows)
        if (found is None or not found.is_complete) and self._in_vain < _WHOLE:
            # The longest example may be another one, or the rows may be in another order.
            found = self._matched(call, indices, rows, range(call.rows)) or found
            self._in_vain += found is None or not found.is_complete
        return None if found is None else found.given()

    def may_differ(self) -> bool:
        """Whether examples may be others in a batch; not where torch puts together what was fetched one by one."""
        loader: Any = self._loader()
        collate = getattr(loader, "collate_fn", None)
        collate = getattr(collate, "collate", collate)
        dataset = getattr(loader, "dataset", None)
        while type(dataset) is Subset:
            dataset = dataset.dataset
        return collate is not default_collate or hasattr(dataset, "__getitems__")

    def _matched(
        self, call: Call, indices: Sequence[int], rows: Sequence[int], beside: Sequence[int]
    ) -> _Matched | None:
        places = [list(beside).index(row) for row in rows]
        question = partial(_together_and_alone, indices=[indices[row] for row in beside], places=places)
        made = self._ask(question, otherwise=None)
        matching = None if made is None else match(call, beside, made[0])
        return (
            None
            if matching is None
            else _Matched(matching, list(beside), made[0], dict(zip(places, made[1], strict=True)))
        )

    def _ask(self, question: Callable[[Any, Any], Any], otherwise: Any) -> Any:
        loader: Any = self._loader()
        try:
            return otherwise if loader is None else ask(getattr(loader, "with_workers", loader), question)
        except Failed:
            return otherwise


@dataclass(frozen=True)
class Given:
    """What examples are by themselves: those that are others than in the batch, and which lengths differ."""

    alone: Mapping[int, Call]
    lengths: set[int]


@dataclass(frozen=True)
class _Matched:
    """Some rows as they were collated together, and some of them alone, twice."""

    match: Match
    rows: list[int]  # of the call
    together: list[Leaf]
    alone: Mapping[int, tuple[list[Leaf], list[Leaf]]]  # by the place among those together

    @property
    def is_complete(self) -> bool:
        return self.match.is_complete

    def given(self) -> Given | None:
        found, lengths, sizes = dict[int, Call](), set[int](), dict[int, int]()
        for place, (alone, again) in self.alone.items():
            if not same(alone, again):  # drawn anew
                return None
            place = self.match.place_of(alone, place, self.together, len(self.rows))
            differing = self.match.differing(self.together, place, alone, len(self.rows))
            if differing is None:
                continue
            row = self.rows[place]
            call = self.match.alone(row, alone, differing)
            if call is None:
                return None
            found[row], sizes[row] = call, sum(t.numel() for t in call.tensors())
            lengths |= differing
        chosen = sorted(found, key=sizes.__getitem__)[:: max(1, len(found) // _COMPARED)][:_COMPARED]
        return Given({row: found[row] for row in chosen}, lengths)


def _together_and_alone(dataset: Any, collate: Collate, *, indices: list[int], places: list[int]) -> Any:
    """What is made of all these examples, and twice of some alone; fetched anew each time, as it may be changed."""
    try:
        seed_all(_SEED)
        together = numbers_in(collate(fetched(dataset, indices)))
        alone = []
        for place in places:
            twice = []
            for seed in (_SEED + 1, _SEED + 2):
                seed_all(seed)
                twice.append(numbers_in(collate(fetched(dataset, [indices[place]]))))
            alone.append(tuple(twice))
        return together, alone
    except Exception:
        return None


def _follows(dataset: Any, collate: Collate, *, indices: list[int], length: int) -> bool:
    asked = [_example(dataset, index) for index in indices]
    found = [_dimensions(collate, example, length) for example in asked]
    return not all(found) or len(set(found)) > 1 or _grows(collate, asked, found[0] or 0, length)


def _example(dataset: Any, index: int) -> list[Any]:
    """As a list of one; an empty one where it cannot be asked for once more."""
    try:
        seed_all(_SEED)
        return fetched(dataset, [index])
    except Exception:
        return []


def _dimensions(collate: Collate, example: list[Any], length: int) -> int | None:
    """How many dimensions of what the loader makes of this example alone have that length; None if it makes nothing."""
    try:
        seed_all(_SEED)
        return sum([list(t.shape).count(length) for t in tensors_in(collate(example))]) if example else None
    except Exception:
        return None


def _grows(collate: Collate, asked: list[list[Any]], count: int, length: int) -> bool:
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
        made = _dimensions(collate, longer, length)
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
