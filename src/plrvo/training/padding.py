"""Tries whether an example's outputs depend on how far it is padded.

Where batches are padded to their longest example, the length of one decides how much padding all others get. A model
that does not mask it (a mean over all positions, a recurrent network read at its end) then gives others another
gradient because of that one, and no clip bounds it. So does a collate function that computes an example's numbers from
others.

The loader can tell (`collated`): what it makes of an example alone takes the row's place, and outputs and gradients
must be what they are in the batch (`compared`). It is asked in a first few batches, when lengths change, and in each
batch that is longer than all that were tried: models may go over to other positions or frequencies for all rows from
some length on (rotary embeddings of `rope_type` dynamic or longrope). Later batches are tried as if at random, by their
number: loaders are asked beside the steps, by two runs of one seed at the same ones.

Where it does not tell, lengths that change between passes, or that one example alone does not have, are the sign of
padding. What that is of a row is guessed (`own_lengths`), and the row tried without it. Of several guesses for which as
much speaks, all must fail.

A loss in the user's loop may look at padding just as well (a mean over all positions, the last of them): where outputs
follow the length, a loss of a new form must have no gradient at what a row has beyond its own end, unless the module
has put zeros there. How many positions a mean divides by is read off the graph (`factors`).

Passes are in eval mode, since dropout falls differently in other shapes. A module that is random even so is not tried.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from plrvo.training.call import Call
from plrvo.training.collated import Collated, Given
from plrvo.training.compared import Padded, PaddingShows, compare
from plrvo.training.layout import Layout
from plrvo.training.loss_form import ALONE, WITHIN, NotASum
from plrvo.training.own_lengths import RUN, Guess, Place, guesses
from plrvo.training.recording import Output, Recording
from plrvo.validate import InvalidArgument

_TRIED = 3  # batches after the first change of a length
_IN_VAIN = 8  # batches with padding that could not be taken off, as where one input holds what others do, joined
_LOOKED_AT = 8  # batches whose lengths have not changed
_AGAIN = 64  # one in so many later ones, at random
_ROWS = 4  # of a batch
_ZERO = 1e-6  # of a row's gradient: what counts as none
_KEY = b"plrvo: padding"
_ONE_LENGTH = (
    "pad (and cut) every example to one length, in the data set or in the loader's collate_fn: a constant of your own "
    "that comes neither from the batch nor from batches before it"
)


class Padding:
    """Watches the lengths of one module's inputs; `on_try` hears when passes begin and end that are no steps."""

    def __init__(self, on_try: Callable[[bool], None]) -> None:
        self._on_try = on_try
        # By the form of a call, as calls of two forms may take turns: the sizes of the first pass, and what changes.
        self._sizes: dict[tuple[int, ...], list[list[int]]] = {}
        self._changing: dict[tuple[int, ...], set[Place]] = {}
        self._tried, self._in_vain = Counter[tuple[int, ...]](), Counter[tuple[int, ...]]()
        self._losses, self._losses_in_vain = Counter[int](), Counter[int]()
        self._seen = Counter[tuple[int, ...]]()  # batches
        self._looked, self._longest = Counter[tuple[int, ...]](), dict[tuple[int, ...], int]()
        self._is_due = False  # whether the batch at hand is tried whatever came of others
        self.collated: Collated | None = None  # what the loader makes of single examples
        self._given: tuple[Given | None] | None = None  # what it makes of those in the batch at hand, once it was asked
        self._guessed = dict[tuple[Place, ...], list[Guess]]()
        self._now: tuple[nn.Module, Call, Mapping[int, Layout]] | None = None
        self._found: list[Padded] | None = None  # in the batch at hand, if it was tried
        self._turn = 0  # the number of its pass

    def check(
        self,
        module: nn.Module,
        call: Call,
        layouts: Mapping[int, Layout] | None = None,
        recording: Recording | None = None,
    ) -> None:
        """Refuse a module whose outputs depend on padding; nothing is tried as long as no length follows the batch."""
        form = self._note(call)
        self._seen[form] += 1
        self._now, self._found, self._given, self._guessed = (module, call, layouts or {}), None, None, {}
        self._turn = 0 if recording is None else recording.turn
        if not self._changing[form]:
            self._changing[form] |= self._following(call, form)
        longest = max((call.tensors()[i].shape[d] for i, d in self._changing[form]), default=0)
        self._is_due = longest > self._longest.get(form, 0)
        known = self._tried[form] >= _TRIED or self._in_vain[form] >= _IN_VAIN
        is_wanted = self._changing[form] and (self._is_due or not known or self._is_chosen(form))
        if is_wanted or (self._given and self._given[0] and self._given[0].alone):
            self._count(self._try())

    def check_loss(self, loss: Tensor, outputs: Sequence[Output], rows: int, form: int) -> None:
        """Refuse a loss that looks at padding: in the first batches of this form of loss in which there is any."""
        if self._now is None or not self._changing[_form(self._now[1])]:
            return
        in_vain = self._losses_in_vain[form] >= _IN_VAIN and not self._is_chosen(_form(self._now[1]))
        if (self._losses[form] >= _TRIED or in_vain) and not self._is_due:
            return
        if self._found is None and self._in_vain[_form(self._now[1])] < _IN_VAIN:
            self._count(self._try())
        if not self._found:
            return
        self._on_try(True)  # a gradient at the outputs, and nobody's
        try:
            looks = looks_at_padding(loss, [o for o in outputs if o.turn == self._turn], rows, self._found)
        finally:
            self._on_try(False)
        if looks:
            raise NotASum(
                "loss: expected one that looks at no padding; it has a gradient at what an example has beyond its own "
                "end, where inputs are padded to the longest of their batch, so that one example changes what others "
                f"contribute: leave these positions out (ignored labels, a mask). {WITHIN}. Or {_ONE_LENGTH}. {ALONE}"
            )
        self._losses[form] += looks is not None
        self._losses_in_vain[form] += looks is None  # outputs without positions, such as classes of a text

    def end(self) -> None:
        """The batch has gone back."""
        self._now = self._found = self._given = None
        self._guessed = {}

    def _note(self, call: Call) -> tuple[int, ...]:
        form, sizes = _form(call), [list(t.shape) for t in call.tensors()]
        changing = self._changing.setdefault(form, set())
        for number, (now, first) in enumerate(zip(sizes, self._sizes.setdefault(form, sizes), strict=True)):
            has_rows = len(now) > call.dimension and now[call.dimension] == call.rows
            changing |= {
                (number, d)
                for d, (a, b) in enumerate(zip(now, first, strict=True))
                if a != b and not (has_rows and d == call.dimension)
            }
        return form

    def _is_chosen(self, form: tuple[int, ...]) -> bool:
        """One batch in so many: by a hash of its number, which keeps no time with epochs or with the lengths."""
        number = self._seen[form].to_bytes(8, "little")
        return hashlib.blake2b(number, digest_size=8, key=_KEY).digest()[0] % _AGAIN == 0

    def _following(self, call: Call, form: tuple[int, ...]) -> set[Place]:
        """What the loader makes as long as it is for the longest of the batch, of what is padded in it."""
        known = self._looked[form] >= _LOOKED_AT and not self._is_chosen(form)
        if self.collated is None or call.rows < 2 or known:
            return set()
        self._looked[form] += 1
        is_asked = self._looked[form] <= _TRIED or self._is_chosen(form)
        given = self._by_loader(call) if is_asked else None
        found = set[Place]()
        for length, places in _by_length(call, _places(call)).items():
            if given is not None and length in given.lengths:
                found |= set(places)
                continue
            guess = next(iter(self._guesses(call, places)), None)
            padded = [] if guess is None else _padded(guess.own, length)
            if guess and padded and self.collated.follows(padded[0], int(guess.own.argmax()), call.rows, length):
                found |= set(places)
        return found

    def _by_loader(self, call: Call) -> Given | None:
        """What the loader gives for some rows of the batch at hand, each alone; None where that is not known."""
        if self.collated is None or call.rows < 2 or not self.collated.may_differ():
            return None
        if self._given is None:
            wanted = list[int]()  # short ones, and the longest
            for length, places in _by_length(call, _places(call)).items():
                for guess in self._guesses(call, places)[:1]:
                    wanted += [*_padded(guess.own, length)[:_ROWS], int(guess.own.argmax())]
            self._given = (self.collated.given(call, wanted),)
        return self._given[0]

    def _guesses(self, call: Call, places: list[Place]) -> list[Guess]:
        """Of the batch at hand."""
        key = tuple(sorted(places))
        if key not in self._guessed:
            self._guessed[key] = guesses(call, places)
        return self._guessed[key]

    def _count(self, compared: bool | None) -> None:
        """What came of a try of the batch at hand."""
        if self._now is None or compared is None:
            return
        call, form = self._now[1], _form(self._now[1])
        self._tried[form] += compared
        self._in_vain[form] += not compared
        longest = max((call.tensors()[i].shape[d] for i, d in self._changing[form]), default=0)
        self._longest[form] = max(longest, self._longest.get(form, 0))

    def _try(self) -> bool | None:
        """Whether anything could be compared; None if nothing was tried, as nothing is padded."""
        if self._now is None:
            return None
        module, call, layouts = self._now
        given, self._found = self._by_loader(call), []
        self._on_try(True)
        try:
            compared, told = None, set[int]()
            if given is not None and given.alone:
                alone = _compared(module, call, given.alone, (True, False), layouts, in_depth=True)
                compared, told = alone is not None, given.lengths if alone is not None else told
                self._found += alone or []
            for length, places in _by_length(call, self._changing[_form(call)]).items():
                if length in told:
                    continue
                now, found = self._try_guesses(self._guesses(call, places), places, length)
                compared = now if compared is None or now else compared
                self._found += found
            return compared
        finally:
            self._on_try(False)

    def _try_guesses(self, guessed: list[Guess], places: list[Place], length: int) -> tuple[bool | None, list[Padded]]:
        """As `_try`, for places of one length. Of guesses for which as much speaks, one that fits is enough."""
        module, call, layouts = self._now  # type: ignore[misc]
        refused, compared = None, None
        for guess in guessed:
            padded = _padded(guess.own, length)
            if not padded:
                continue
            alone = {}
            for row in padded[:: max(1, len(padded) // _ROWS)][:_ROWS]:
                kept = int(guess.own[row])
                own = (0 if guess.at_end else length - kept, kept)
                alone[row] = call.single(row).cut(dict.fromkeys(places, own))
            try:
                found = _compared(module, call, alone, (guess.at_end,), layouts)
            except InvalidArgument as error:
                refused = refused or error
                continue
            compared = bool(compared) or found is not None
            if found:
                return True, found
        if refused is not None:
            raise refused
        return compared, []


def _compared(module: nn.Module, *how: Any, **more: Any) -> list[Padded] | None:
    try:
        return compare(module, *how, **more)
    except PaddingShows:
        raise InvalidArgument(
            "module",
            type(module).__name__,
            "outputs and gradients of an example that do not change with its padding, or with others in its batch; "
            "inputs are padded to the longest of their batch, so that one example changes what others contribute: "
            "mask the padding (an attention mask, means over real positions, recurrent networks read where the "
            "example ends), compute what inputs are (normalise, number) from an example's own positions, or "
            f"{_ONE_LENGTH}. {ALONE}",
        ) from None


def looks_at_padding(loss: Tensor, outputs: Sequence[Output], rows: int, padded: Sequence[Padded]) -> bool | None:
    """Whether a loss has a gradient where a row has padding; None if nothing shows it yet.

    Zeros that the module has put there are nobody's, whatever their gradient is, unless it gives nothing but zeros yet.
    """
    tensors, certain = [o.tensor for o in outputs], False
    if not tensors:
        return None
    gradients: list[Any] = list(torch.autograd.grad(loss, tensors, retain_graph=True, allow_unused=True))
    for o, gradient in zip(outputs, gradients, strict=True):
        for p in padded if gradient is not None and o.layout is not None else ():
            of_row, values = (o.layout.of(t.detach(), rows, [p.row]) for t in (gradient, o.tensor))  # type: ignore[union-attr]
            outside = p.outside(o.place, of_row)
            if outside is None:
                continue
            size = of_row.abs().nan_to_num().max()
            if bool((of_row[outside].abs().nan_to_num() <= _ZERO * size).all()):
                certain = True
            elif bool((values[outside] != 0).any()):
                return True
            else:
                certain |= bool((values[~outside] != 0).any())
    return False if certain else None


def _form(call: Call) -> tuple[int, ...]:
    return tuple(t.ndim for t in call.tensors())


def _padded(own: Tensor, length: int) -> list[int]:
    """Rows with padding, the shortest first, without those that are nothing else."""
    return [row for row in own.argsort().tolist() if 0 < own[row] <= length - RUN]


def _places(call: Call) -> list[Place]:
    """All dimensions but those of the rows."""
    inputs = enumerate(call.tensors())
    return [(n, d) for n, t in inputs if call.has_rows(t) and t.numel() for d in range(t.ndim) if d != call.dimension]


def _by_length(call: Call, places: Iterable[Place]) -> dict[int, list[Place]]:
    found, inputs = defaultdict[int, list[Place]](list), call.tensors()
    for number, d in places:
        found[inputs[number].shape[d]].append((number, d))
    return found
