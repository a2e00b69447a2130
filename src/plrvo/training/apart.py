"""Tries whether a module keeps examples apart: a row's outputs stay as they are whatever the other rows are.

`probe` says what is tried, and when. All layers are looked at, and what goes into them: a head that starts at zero
hides what is before it.
"""

from __future__ import annotations

import math
import secrets
import weakref
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from plrvo.training.alike import alike, largest
from plrvo.training.call import Call
from plrvo.training.collectives import alone
from plrvo.training.layout import Layout
from plrvo.training.loss_form import ALONE
from plrvo.training.state import State
from plrvo.training.structure import map_leaves, tensors_in
from plrvo.training.unchanged import EVERY_PASS, refuse_dependent
from plrvo.validate import InvalidArgument

_EXTREMES = (1e4, 1e-4, math.nan)
_HOLES = (math.nan, math.inf, -math.inf)
_APART = 1e-5  # relative: passes of one shape give the same bits, so that a trace of other rows is seen
_CLOSE = 1e-3  # relative, for numbers by two ways: rounding is far below, and a wrong rule far above
_CLOSE_HALF = 5e-2  # where activations have eight bits

HALVES = (torch.float16, torch.bfloat16)
IN_HALVES = (
    "float32: in halves an example's gradient is rounded as the size of its batch and the length of others ask for, so "
    "that one example more moves those of all others as well"
)

Use = tuple[str, int, int]  # a layer, how often it was called before, and which of its outputs
ITSELF = "forward itself"


Look = Callable[[Use, Tensor], None]


class Pass:
    """The outputs of every layer in the order of the pass, the module's own last, and what it leaves behind.

    They are as large as all that the module gives. A `look` at each as it comes stands in the place of keeping them.
    """

    def __init__(
        self, module: nn.Module, call: Call, state: State, look: Look | None = None, *, evaluating: bool = False
    ) -> None:
        self.rows, self.outputs, self._look = call.rows, dict[Use, Tensor](), look
        self._copied = dict[int, tuple[Any, Tensor]]()
        calls = Counter[str]()

        def note(name: str) -> Any:
            def hook(m: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
                self._keep(f"{name} ({type(m).__name__})", calls, output)
                # No layer may have made it. What a block is given by keyword (masks, which may stand in other forms for
                # the same) goes into its layers.
                given = args if next(m.children(), None) is not None else (args, kwargs)
                self._keep(f"what goes into {name} ({type(m).__name__})", calls, given)

            return hook

        hooks = [m.register_forward_hook(note(name), with_kwargs=True) for name, m in module.named_modules() if name]
        try:
            with state.fresh(), torch.enable_grad(), alone():  # as in training: what it does then is what counts
                if evaluating:
                    module.eval()  # until its state is put back
                self._keep(ITSELF, calls, module(*call.args, **call.kwargs))
                self.state = state.now()
        finally:
            self._copied.clear()
            for hook in hooks:
                hook.remove()

    def _keep(self, name: str, calls: Counter[str], output: Any) -> None:
        packed = _packed_in(output)  # the steps of all rows in one, which follow their lengths, not their number
        for i, t in enumerate(tensors_in(output)):
            if (t.is_floating_point() or name == ITSELF) and id(t) not in packed:
                use = name, calls[name], i
                if self._look is None:
                    self.outputs[use] = self._copy(t)
                else:
                    self._look(use, t.detach())
        calls[name] += 1

    def _copy(self, t: Tensor) -> Tensor:
        """One for all: what a layer gives goes into the next, and comes out of the block that it is the last of."""
        known, copy = self._copied.get(id(t), (lambda: None, t))
        if known() is not t or not _is_equal(t, copy):
            copy = t.detach().clone()
            self._copied[id(t)] = weakref.ref(t), copy
        return copy


class Beside:
    """What a pass gives, beside the outputs of a first one that was kept.

    The pass goes on whatever is seen, and an error while looking is none of the module's: both are told afterwards.
    """

    def __init__(self, first: Pass, look: Callable[[Use, Tensor, Tensor], Any]) -> None:
        self.uses, self.found = set[Use](), dict[Use, Any]()
        self._first, self._look, self._error = first, look, list[Exception]()

    def __call__(self, use: Use, two: Tensor) -> None:
        self.uses.add(use)
        one = self._first.outputs.get(use)
        if one is None or self._error:
            return
        try:
            self.found[use] = self._look(use, one, two)
        except Exception as error:
            self._error.append(error)

    def told(self) -> dict[Use, Any]:
        """What was found, in the order of the first pass."""
        if self._error:
            raise self._error[0]
        return {use: self.found[use] for use in self._first.outputs if use in self.found}


def _is_equal(t: Tensor, copy: Tensor) -> bool:
    """By its numbers: what is written through `.data` or NumPy is not counted among a tensor's changes."""
    is_plain = type(t) is Tensor and t.layout == torch.strided and not t.is_meta
    return is_plain and t.dtype == copy.dtype and torch.equal(t.detach(), copy)


def _packed_in(output: Any) -> set[int]:
    found: list[PackedSequence] = []
    map_leaves(output, lambda leaf: found.append(leaf) if isinstance(leaf, PackedSequence) else None, until=_is_packed)
    return {id(t) for packed in found for t in tensors_in(tuple(packed))}


def _is_packed(value: Any) -> bool:
    return isinstance(value, PackedSequence)


def check_apart(module: nn.Module, call: Call, state: State, again: bool) -> dict[Use, list[Layout]]:
    """Raise where a row's outputs change with the others; the layouts that were found.

    None for what the module itself gives and no gradient goes through, where it changes with other examples (a
    statistic of the batch, a mask of whole numbers): to look at it is fine, and a loss may not be made of it.
    """
    first = Pass(module, call, state)
    drew = state.drew
    if half := next((use for use, t in first.outputs.items() if t.dtype in HALVES), None):
        raise InvalidArgument("module", f"{half[0]} in halves", f"{IN_HALVES}. {ALONE}")
    same = Beside(first, lambda _, one, two: not one.is_floating_point() or _all_close(one, two))
    if names := first.state.differing(Pass(module, call, state, same).state):
        refuse_dependent(module, min(names), what=EVERY_PASS)
    if first.outputs.keys() != same.uses or not all(same.told().values()):
        raise InvalidArgument(
            "module", type(module).__name__, "outputs that are the same in two equal passes; it draws randomness that "
            "torch, NumPy and Python do not know of, and whether it keeps examples apart cannot be tried"
        )  # fmt: skip
    del same  # which holds the first one, too
    gives_a_number = any(use[0] == ITSELF and t.ndim == 0 for use, t in first.outputs.items())
    if call.rows < 2:
        return {}
    layouts = _layouts(module, call, state, first)
    resized = set[Use]()
    for row in (0, call.rows - 1):
        resized |= _compare(module, first, call.copies(row), state, row, layouts)
    if resized:
        _compare_in_size(module, call, state, first, layouts, resized)
    extremes = _EXTREMES if call.has_floats else ()
    row = secrets.randbelow(call.rows)  # one for all: what is above a mean of large others is below one of small others
    for factor in [secrets.choice(extremes)] if extremes and again else extremes:
        _compare(module, first, call.extreme(row, factor), state, row, layouts, is_made_up=True)
    del first
    if extremes:
        _compare_with_holes(module, call, state, layouts, again)
    _compare_places(module, call, state, layouts, drew)
    state.drew = drew
    if not any(layouts.values()) and not gives_a_number:
        what = (
            "outputs, or layers, with a row for each example, so that it can be tried whether it keeps examples apart"
        )
        raise InvalidArgument("module", type(module).__name__, what)
    return layouts


def _compare_with_holes(
    module: nn.Module, call: Call, state: State, layouts: dict[Use, list[Layout]], again: bool
) -> None:
    """What a module does with numbers that are none (it fills them in) must not come from the other rows either."""
    for value in [secrets.choice(_HOLES)] if again else _HOLES:
        row = secrets.randbelow(call.rows)
        holed = call.holed(row, value)
        try:
            one = Pass(module, holed, state)
        except Exception:  # a module that takes no such values
            continue
        _compare(module, one, holed.extreme(row, _EXTREMES[0]), state, row, layouts, is_made_up=True)
        del one


def _compare_places(module: nn.Module, call: Call, state: State, layouts: dict[Use, list[Layout]], drew: bool) -> None:
    """A row's outputs must not change with its place in the batch either, nor with how many rows there are.

    Copies of one row are the same in every place, and one copy more changes none of them, up to the rounding of other
    shapes. What is drawn is another for each of them: a module that draws is looked at in eval mode, and not at all
    if it draws there as well.
    """
    copies, close = call.copies(secrets.randbelow(call.rows)), closeness(module)

    def are_copies(use: Use, t: Tensor, other: Tensor) -> bool:
        fitting = [layout for layout in layouts.get(use, ()) if layout.fits(t, call.rows)]
        known = not fitting or not t.is_floating_point()
        return known or any(_are_copies(layout, t, other, call.rows, close) for layout in fitting)

    try:
        here = Pass(module, copies, state, evaluating=drew)
        more = Beside(here, are_copies)
        Pass(module, copies.one_more(), state, more, evaluating=drew)
    except Exception:  # it takes so many rows only, or none that are all the same
        return
    if state.drew:
        return
    for use, found in more.told().items():
        if not found:
            raise InvalidArgument(
                "module",
                type(module).__name__,
                "outputs of an example that depend neither on its place in the batch nor on how many examples there "
                f"are; those of {use[0]} do (a division by len(x) belongs into the loss, as its mean). {ALONE}",
            )


def _are_copies(layout: Layout, t: Tensor, more: Tensor, rows: int, close: float) -> bool:
    if not layout.fits(more, rows + 1):
        return True  # its size follows from something else
    first, room = layout.of(t, rows, [0]).flatten(), close * largest(t)
    if first.numel() != layout.of(more, rows + 1, [0]).numel():
        return True
    # One row at a time: all of them in order would be two more copies.
    return all(
        alike(layout.of(whole, count, [row]).flatten(), first, relative=close, absolute=room)
        for whole, count in ((t, rows), (more, rows + 1))
        for row in range(count)
    )


def compare_under_seed(module: nn.Module, call: Call, state: State, layouts: dict[Use, list[Layout]]) -> None:
    """What `check_apart` compares, for one row; layers that no earlier pass has called get a layout first."""
    first = Pass(module, call, state)
    if not first.outputs.keys() <= layouts.keys():
        layouts |= {use: found for use, found in _layouts(module, call, state, first).items() if use not in layouts}
    row = secrets.randbelow(call.rows)
    _compare(module, first, call.copies(row), state, row, layouts)


def _layouts(module: nn.Module, call: Call, state: State, first: Pass) -> dict[Use, list[Layout]]:
    """Where the rows are in each output: in the dimension that grows with them."""
    more = dict[Use, torch.Size]()
    try:
        Pass(module, call.one_more(), state, lambda use, t: more.__setitem__(use, t.shape))
    except Exception:  # it takes so many rows only: what has as many in their dimension
        where = call.dimension
        return {u: [Layout(where)] for u, t in first.outputs.items() if t.ndim > where and t.shape[where] == call.rows}
    found: dict[Use, list[Layout]] = {}
    for use, t in first.outputs.items():
        shape = more.get(use, ())
        if len(shape) != t.ndim:
            continue
        grown = [d for d in range(t.ndim) if t.shape[d] and shape[d] * call.rows == t.shape[d] * (call.rows + 1)]
        if grown:
            where = call.dimension if call.dimension in grown else grown[0]
            # Where positions lie beside the rows, they may vary faster or slower than those: comparisons will tell.
            found[use] = [Layout(where), Layout(where, rows_first=False)][: 1 if t.shape[where] == call.rows else 2]
    return found


def _compare_in_size(
    module: nn.Module, call: Call, state: State, first: Pass, layouts: dict[Use, list[Layout]], resized: set[Use]
) -> None:
    """Where copies of a row give outputs of another size, as in a model that cuts its batch to the longest.

    Copies of the longest row do not, nor do other numbers in rows that are as long as before. What has another size
    even so is compared at the positions that both have, if the module itself gives it.
    """
    waiting = set(resized)
    for row in range(1, call.rows - 1):
        if waiting:
            waiting &= _compare(module, first, call.copies(row), state, row, layouts)
    for row in {0, secrets.randbelow(call.rows), call.rows - 1}:
        filled = call.filled(row)
        if passes(module, filled, state):
            waiting &= _compare(module, first, filled, state, row, layouts)
    copies = Pass(module, call.copies(0), state).outputs if any(use[0] == ITSELF for use in waiting) else {}
    for use in waiting & copies.keys():
        one, two = first.outputs[use], copies[use]
        fitting = [layout for layout in layouts[use] if layout.fits(two, call.rows)]
        if use[0] == ITSELF and fitting and not any(
            close_where_both_are(layout.of(one, call.rows, [0]), layout.of(two, call.rows, [0]), closeness(module))
            for layout in fitting
        ):  # fmt: skip
            _refuse_mixing(module, use)


def close_where_both_are(one: Tensor, two: Tensor, close: float) -> bool:
    """From their beginning, or up to their end: either may be cut."""
    both = [min(sizes) for sizes in zip(one.shape, two.shape, strict=True)]
    for at_end in (False, True):
        a, b = one, two
        for d, n in enumerate(both):
            a, b = (t.narrow(d, t.shape[d] - n if at_end else 0, n) for t in (a, b))
        if alike(a, b, relative=close, absolute=close * largest(a)):
            return True
    return False


def _compare(
    module: nn.Module,
    first: Pass,
    call: Call,
    state: State,
    row: int,
    layouts: dict[Use, list[Layout]],
    *,
    is_made_up: bool = False,
) -> set[Use]:
    """What has another size than before in a pass of this call, and could not be compared.

    A module may not take a call whose numbers are made up; it cannot be tried with them.
    """

    def fitting(use: Use, one: Tensor, two: Tensor) -> list[Layout] | None:
        if use not in layouts:
            return [] if use[0] == ITSELF and not _same_where_both_are(one, two) else None
        if one.shape != two.shape:
            return None
        return [layout for layout in layouts[use] if _all_close(*(layout.of(t, first.rows, [row]) for t in (one, two)))]

    beside = Beside(first, lambda use, one, two: (one.shape != two.shape, fitting(use, one, two)))
    try:
        other = Pass(module, call, state, beside)
    except Exception:
        if is_made_up:
            return set()
        raise
    if first.state.differing(other.state):
        refuse_dependent(module, min(first.state.differing(other.state)))
    resized = set[Use]()
    for use, (is_resized, found) in beside.told().items():
        if layouts.get(use) and is_resized:
            resized.add(use)
        elif found is not None:
            had = layouts.get(use)
            layouts[use] = found
            if had and not found and first.outputs[use].is_floating_point():
                _refuse_mixing(module, use)
    return resized


def _same_where_both_are(one: Tensor, two: Tensor) -> bool:
    """Of what has no rows: it may be cut to the longest."""
    if one.ndim != two.ndim:
        return False
    for d, n in enumerate(map(min, one.shape, two.shape)):
        one, two = one.narrow(d, 0, n), two.narrow(d, 0, n)
    return _all_close(one, two)


def _refuse_mixing(module: nn.Module, use: Use) -> None:
    raise InvalidArgument(
        "module",
        type(module).__name__,
        f"outputs of an example that do not change with other examples; {use[0]} mixes them "
        "(PrivacyEngine.get_compatible_module(module) replaces batch normalisation; an input that all examples share "
        "and that is as large as the batch, such as a mask, belongs into a buffer, or gets a first dimension of one: "
        "mask[None]; examples keep their order in every layer, so that sequences are packed with enforce_sorted=False)"
        f". {ALONE}",
    )


def passes(module: nn.Module, call: Call, state: State) -> bool:
    """Whether the module takes a call that was made up."""
    try:
        Pass(module, call, state, look=lambda use, t: None)
    except Exception:
        return False
    return True


def closeness(module: nn.Module) -> float:
    """How far numbers by two ways may be apart."""
    parameters = list(module.parameters())
    singles = all(p.dtype in (torch.float32, torch.float64) for p in parameters)
    halves = not singles or (bool(parameters) and torch.is_autocast_enabled(parameters[0].device.type))
    return _CLOSE_HALF if halves else _CLOSE


def _all_close(a: Tensor, b: Tensor) -> bool:
    if a.shape != b.shape:
        return False
    a, b = (torch.view_as_real(t) if t.is_complex() else t for t in (a, b))
    if not a.is_floating_point():
        return torch.equal(a, b)
    return alike(a, b, relative=_APART, absolute=_APART * largest(a))
