"""Whether an example's outputs and gradients are what they are without its padding."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from plrvo.training.call import Call
from plrvo.training.layout import Layout, layout_of
from plrvo.training.probe import passes_in_eval
from plrvo.training.state import State
from plrvo.training.structure import tensors_in

_CLOSE = 1e-3  # relative: other shapes round differently, by far less
_CLOSE_HALF = 5e-2
_NOTHING = 1e-6  # a gradient's norm, where outputs are weighed by numbers about one
_IN_DEPTH = 2  # rows

Outputs = Mapping[int, Tensor]
Pairs = list[tuple[int, tuple[Tensor, Tensor], list[tuple[int, int]]]]


@dataclass(frozen=True)
class Padded:
    """A row with padding, and what is its own of each tensor that the module gives: (start, length) by dimension."""

    row: int
    own: Mapping[int, Sequence[tuple[int, int]]]

    def outside(self, place: int, of_row: Tensor) -> Tensor | None:
        """Where a row's part of that tensor is padding; None where nothing is."""
        own, outside = self.own.get(place, ()), torch.ones(of_row.shape, dtype=torch.bool, device=of_row.device)
        if len(own) != of_row.ndim or any(start + n > size for (start, n), size in zip(own, of_row.shape, strict=True)):
            return None
        outside[tuple(slice(start, start + length) for start, length in own)] = False
        return outside if bool(outside.any()) else None


class PaddingShows(Exception):
    """Outputs or gradients of an example change with its padding."""


def compare(
    module: nn.Module,
    call: Call,
    alone: Mapping[int, Call],
    sides: Sequence[bool],
    layouts: Mapping[int, Layout],
    *,
    in_depth: bool = False,
) -> list[Padded] | None:
    """The rows that are the same `alone` as in the batch; None if nothing could be compared, or all is random.

    `sides`: whether padding is at the end of a row, where that is known. `in_depth`: gradients too, which outputs may
    hide (a gate that starts at zero, a large constant), and both where all but dropout is as in training.
    """
    with passes_in_eval(module) as outputs:
        whole, found, compared = numbers(outputs(call)), list[Padded](), False
        for row, single in alone.items():
            try:
                of_alone = numbers(outputs(single))
                # Of a loss alone: that of the row with its padding.
                in_batch = _of_row(whole, call, row, layouts) or numbers(outputs(call.single(row)))
            except Exception:  # too short for it, such as for a kernel
                continue
            ways = [_pairs(in_batch, of_alone, at_end) for at_end in sides]
            compared |= any(ways)
            fits = next((pairs for pairs in ways if all(close(a, b) for _, (a, b), _ in pairs)), None)
            if fits is not None:
                found.append(Padded(row, {place: where for place, _, where in fits}))
                continue
            again = numbers(outputs(call, seed=1))
            if all(close(t, again[place]) for place, t in whole.items()):
                raise PaddingShows
            return None
        deep = list[Padded]()
        for p in found[:_IN_DEPTH] if in_depth else ():
            with suppress(Exception):  # some modules do something else with one row by itself: rows in lists of lists
                if _is_same(numbers(outputs(call.single(p.row))), _of_row(whole, call, p.row, layouts), p):
                    deep.append(p)
    for p in deep:
        _compare_in_depth(module, call.single(p.row), alone[p.row], sides, set(p.own))
    return found if compared else None


def _is_same(single: Outputs, in_batch: Outputs, padded: Padded) -> bool:
    both = [(single.get(place), in_batch.get(place, single.get(place))) for place in padded.own]
    return all(a is not None and b is not None and a.shape == b.shape and close(a, b) for a, b in both)


def _compare_in_depth(
    module: nn.Module, in_batch: Call, alone: Call, sides: Sequence[bool], places: Collection[int]
) -> None:
    """A row with its padding, by itself, against the example without it, at these places among the outputs."""
    state = State(module)
    try:
        if any(_differ(module, state, (in_batch, alone), sides, places, training) for training in (True, False)):
            raise PaddingShows
    finally:
        state.restore()


def _differ(
    module: nn.Module,
    state: State,
    both: tuple[Call, Call],
    sides: Sequence[bool],
    places: Collection[int],
    train: bool,
) -> bool:
    """Whether outputs or gradients differ, whichever side padding is on; not where nothing can be said."""

    def outputs(call: Call) -> dict[int, Tensor]:
        _set_modes(module, train)
        found = enumerate(tensors_in(module(*call.args, **call.kwargs)))
        return {place: t for place, t in found if place in places and t.is_floating_point()}

    def made(call: Call) -> tuple[dict[int, Tensor], bool]:
        with state.fresh(0), torch.no_grad():
            found = outputs(call)
        return found, state.drew

    def gradients(call: Call, shapes: Mapping[int, Sequence[int]], at_end: bool) -> list[Tensor]:
        generator, parameters = torch.Generator().manual_seed(1), [p for p in module.parameters() if p.requires_grad]
        with state.fresh(0), torch.enable_grad():
            score = torch.zeros(())
            for place, t in outputs(call).items():
                if place in shapes:
                    weights = torch.randn(tuple(shapes[place]), generator=generator)
                    score = score + (_cut(t, shapes[place], at_end) * weights.to(t)).sum().cpu().float()
            found: tuple[Tensor | None, ...] = ()
            if score.requires_grad:
                found = torch.autograd.grad(score, parameters, allow_unused=True)
        return [torch.zeros(()) if g is None else g.to_dense() for g in found]

    try:
        (long, drew), (short, drew_too) = map(made, both)
        if drew or drew_too:
            return False
        for at_end in sides:
            pairs = _pairs(long, short, at_end)
            shapes = {place: a.shape for place, (a, _), _ in pairs}
            if all(close(a, b) for _, (a, b), _ in pairs) and not _apart(*(gradients(c, shapes, at_end) for c in both)):
                return False
    except (RuntimeError, ValueError, TypeError, IndexError, AssertionError):  # a pass, or a way back, that fails
        return False
    return True


def _set_modes(module: nn.Module, training: bool) -> None:
    """As it is in training, but for dropout, which would fall differently in other shapes; or in eval mode."""
    if not training:
        module.eval()
    for m in module.modules():
        if isinstance(m, _DropoutNd):
            m.eval()


def _apart(ones: Sequence[Tensor], others: Sequence[Tensor]) -> bool:
    size = sum(float(g.double().square().sum()) for g in ones)
    difference = sum(float((a.double() - b.double()).square().sum()) for a, b in zip(ones, others, strict=True))
    return difference > _CLOSE**2 * size + _NOTHING**2


def numbers(output: Any) -> dict[int, Tensor]:
    """By their places among all tensors of an output."""
    return {place: t.detach() for place, t in enumerate(tensors_in(output)) if t.is_floating_point()}


def _of_row(outputs: Outputs, call: Call, row: int, layouts: Mapping[int, Layout]) -> dict[int, Tensor]:
    """A row of the outputs that have rows; all positions may lie in the first dimension."""
    found = {}
    for place, t in outputs.items():
        layout = layout_of(t, layouts.get(place), call.rows, call.dimension)
        if layout is None and call.dimension == 0 and Layout(0).fits(t, call.rows):
            layout = Layout(0)
        if layout is not None:
            found[place] = layout.of(t, call.rows, [row])
    return found


def _pairs(long: Outputs, short: Outputs, at_end: bool) -> Pairs:
    """Of each output both at the positions that both have, and where those are in the long one."""
    found: Pairs = []
    for place, t in long.items():
        other = short.get(place)
        if other is None or t.ndim != other.ndim or not other.numel():
            continue
        shape = [min(a, b) for a, b in zip(t.shape, other.shape, strict=True)]
        where = [(0 if at_end else a - n, n) for a, n in zip(t.shape, shape, strict=True)]
        found.append((place, (_cut(t, shape, at_end), _cut(other, shape, at_end)), where))
    return found


def _cut(t: Tensor, shape: Sequence[int], at_end: bool) -> Tensor:
    for d, n in enumerate(shape):
        t = t.narrow(d, 0 if at_end else t.shape[d] - n, n)
    return t


def close(one: Tensor, other: Tensor) -> bool:
    """Numbers that are none equal anything: they tell nothing."""
    halves = one.dtype in (torch.float16, torch.bfloat16) or torch.is_autocast_enabled(one.device.type)
    difference = torch.nan_to_num((one.double() - other.double()).abs(), 0.0, 0.0)
    size = torch.nan_to_num(one.double().abs(), 0.0, 0.0)
    if not difference.numel():
        return True
    return bool(difference.max() <= (_CLOSE_HALF if halves else _CLOSE) * size.max() + 1e-30)
