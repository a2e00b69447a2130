"""The numbers that a loss multiplies its examples by, read off the autograd graph between the loss and the outputs.

A mean over the tokens that are not padding, or over the weights of the classes in the batch, divides by something of
the batch: the factors between the loss and its terms must be numbers, not tensors, and the same in every step (up to
1/rows, which a mean brings and the clipping undoes). Once examples have been summed, only sums and products with
numbers may follow: no root, no absolute value, no clamp of the batch's loss. A number that depends on one row is that
row's own. A mean over positions divides by how many a batch was padded to: that is a factor, too. Where the module
gives the loss by itself, the graph is read on inside of it, up to the first values that are no single number.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from plrvo.training.loss_form import WITHIN, NotASum
from plrvo.training.modes import unheard
from plrvo.training.order import signed

_MOST_NODES = 5000  # between the loss and the outputs: losses are small
_MEAN = 1  # torch's number for reduction="mean"
# What may act on the batch's loss, one number, and what may make that number of rows.
_LINEAR = {"Add", "Sub", "Neg", "Mul", "Div", "View", "Reshape", "ReshapeAlias", "UnsafeView", "Squeeze", "Unsqueeze"}
_LINEAR |= {"Clone", "ToCopy", "Alias", "Expand", "Copy", "CopyBackwards", "Select", "Index", "Unbind", "Stack", "Cat"}
_LINEAR |= {"Sum", "Mean", "Nansum", "Dot", "Mv", "Mm", "Permute", "Transpose", "T", "Split", "Slice", "As_strided"}
_LINEAR |= {"AsStrided", "Where", "BackwardHookFunction"}


class Factors:
    """Compares the factors of every step with those of the first, each of its backward passes by itself."""

    def __init__(self, reduction: str, dimension: int = 0) -> None:
        self._reduction, self._dimension = reduction, dimension
        self._first: list[tuple[tuple[float, ...], int]] = []

    def check(self, loss: Tensor, stops: Collection[Any], rows: int, weight: float = 1.0, turn: int = 0) -> None:
        """Raise unless the loss of a batch with so many rows has the factors that the first one had.

        `turn` counts the backward passes of a step. A number of the module's own in which no sum is seen counts as what
        the loss should be.
        """
        if rows == 0 or loss.grad_fn is None:
            return
        scale = rows if self._reduction == "mean" else 1
        with unheard():
            each = factors(loss, stops, rows, self._dimension)
            found = _distinct(f * weight * (1 if own else scale) for f, own in each)
        if turn >= len(self._first):
            self._first.append((found, rows))
            return
        first, first_rows = self._first[turn]
        if len(found) != len(first) or not all(map(_equal, found, first)):
            if all(_equal(f * first_rows, g * rows) for f, g in zip(found, first, strict=False)):
                raise NotASum(
                    f"loss: expected a {self._reduction} over examples; it is a "
                    f"{'sum' if self._reduction == 'mean' else 'mean'}. Pass loss_reduction to make_private accordingly"
                )
            raise NotASum(
                f"loss: expected a {self._reduction} over examples; it weighs them by {_shown(found)} in a batch of "
                f"{rows} and by {_shown(first)} in one of {first_rows}, as a mean over tokens or weights "
                "of the batch does, and a mean over positions that are padded to its longest. "
                f"{WITHIN} (loss_reduction says which; "
                "a schedule that looks at no data: make_private(public_loss_weights=True))"
            )


def factors(loss: Tensor, stops: Collection[Any], rows: int, dimension: int = 0) -> set[tuple[float, bool]]:
    """The products of the numbers that stand between the loss and the outputs, one for each way through the graph.

    With each, whether the way ends at a number inside of the module. A number that depends on one row is that row's.
    """
    found: set[tuple[float, bool]] = set()
    seen: set[tuple[Any, float, bool]] = set()
    of_one_row = _of_one_row(loss, stops, rows, dimension)
    waiting: list[tuple[Any, float, bool]] = [(loss.grad_fn, 1.0, False)]
    while waiting and len(seen) < _MOST_NODES:
        node, factor, inside = at = waiting.pop()
        if at in seen:
            continue
        seen.add(at)
        number = _is_number(node)
        is_output = node in stops or "_Tap" in node.name()
        inside |= is_output
        below = [n for n, _ in node.next_functions if n is not None]
        if (number and node in of_one_row) or (inside and not number):
            found.add((factor, False))
        elif not below or "_Tap" in node.name() or (inside and not _is_linear(node)):
            found.add((factor, number and inside))
        else:
            here = _factor(node, rows, inside, node in of_one_row)
            waiting += [(child, factor * here, inside) for child in below]
    return found


def _of_one_row(loss: Tensor, stops: Collection[Any], rows: int, dimension: int) -> set[Any]:
    """The nodes that depend on one row at most: losses of examples that were taken one by one, and what they are of."""
    many = -1
    owner: dict[Any, int | None] = {}  # the row that a node depends on, many, or None for no row
    waiting = [loss.grad_fn]
    while waiting:
        node: Any = waiting[-1]
        edges = [(n, i) for n, i in node.next_functions if n is not None] if node not in stops else []
        missing = [n for n, i in edges if n not in owner and _row_taken(n, i, rows, dimension) is None]
        if node not in owner and missing:
            owner[node] = many  # until its own are known; graphs have no cycles
            waiting += missing
            continue
        waiting.pop()
        of = {owner[n] if (row := _row_taken(n, i, rows, dimension)) is None else row for n, i in edges} - {None}
        owner[node] = many if node in stops or len(of) > 1 else next(iter(of), None)
    return {node for node, of in owner.items() if of != many}


def _row_taken(node: Any, output: int, rows: int, dimension: int) -> int | None:
    """The row that a node takes out of a batch, as by `outputs[i]` or in a loop over them."""
    if getattr(node, "_saved_dim", None) != dimension:
        return None
    if _kind(node) in ("Unbind", "Split"):
        return output if len(node._input_metadata) == rows else None
    if _kind(node) not in ("Select", "Slice") or node._saved_self_sym_sizes[dimension] != rows:
        return None
    if _kind(node) == "Select":
        return int(node._saved_index) % rows
    return int(node._saved_start) % rows if len(range(rows)[node._saved_start : node._saved_end]) == 1 else None


def _is_linear(node: Any) -> bool:
    return _kind(node) in _LINEAR or hasattr(node, "_saved_reduction")


def _factor(node: Any, rows: int, inside: bool, of_one_row: bool) -> float:
    """What a node multiplies its operands by, if that is one number for all rows; 1 for everything else."""
    kind, number = _kind(node), _is_number(node)
    if number and not _is_linear(node):
        raise NotASum(
            f"loss: expected a sum over examples; {kind} acts on the loss of the whole batch, so that each example's "
            "gradient depends on all others. Apply it to each example's loss, then sum (or announce a loss that is a "
            "sum all the same: make_private(public_loss_weights=True))"
        )
    if kind in ("Mul", "Div"):
        other = _other(node, rows, number, inside)
        return 1.0 if other is None else other if kind == "Mul" else 1 / other if other else 1.0
    if kind == "Mean":
        if number:
            return _share(int(node._saved_self_sym_numel), rows, inside)
        if of_one_row:  # its own length
            return 1.0
        # Over examples, or over positions, of which there are as many as the batch was padded to.
        sizes, over = node._saved_self_sym_sizes, getattr(node, "_saved_dim", None) or ()
        return 1 / max(1, math.prod(int(sizes[signed(d)]) for d in over))
    return _of_loss(node, rows, inside) if number and hasattr(node, "_saved_reduction") else 1.0


def _share(count: int, rows: int, inside: bool) -> float:
    if inside and count % rows:
        raise NotASum(
            f"loss: expected a sum over examples; the module averages {count} numbers of {rows} examples, some of "
            f"which have more of them than others. {WITHIN}"
        )
    return 1 / max(1, count)


def _of_loss(node: Any, rows: int, inside: bool) -> float:
    """The factor of torch's own losses that reduce by themselves."""
    if node._saved_reduction != _MEAN:
        return 1.0
    total = getattr(node, "_saved_total_weight", None)
    if total is None:
        return _share(node._saved_self.numel(), rows, inside)
    target, weights, weight = node._saved_target, node._saved_weight, float(total)
    count = target.numel()
    if count and abs(weight - count) > 1e-6 * count:
        kept = target != node._saved_ignore_index
        each = kept.double() if weights is None else kept * weights.double()[target.where(kept, 0)]
        # The module's own labels may be ignored where they are in every row alike (as the last token of a text is).
        if not inside or count % rows or not _are_alike(each, rows):
            raise NotASum(
                f"loss: expected a sum over examples; cross entropy divides by {weight:g} for {count} targets, the "
                f"weights of classes or the targets that are not ignored in this batch. Use reduction='none'. {WITHIN}"
            )
        return 1 / weight if weight else 1.0
    return _share(count, rows, inside)


def _are_alike(weights: Tensor, rows: int) -> bool:
    """Whether all rows have the same total, in one of the two orders that rows and positions can have."""
    totals = weights.reshape(rows, -1).sum(dim=1), weights.reshape(-1, rows).sum(dim=0)
    return any(bool((t - t[0]).abs().max() <= 1e-6 * t[0].abs()) for t in totals)


def _other(node: Any, rows: int, number: bool, inside: bool) -> float | None:
    """The number that a product or quotient has as its other operand; None if it has a row for each example."""
    operands = [getattr(node, "_saved_other", None)]
    if _kind(node) == "Mul":
        operands.append(getattr(node, "_saved_self", None))
    other = next((o for o in operands if o is not None), None)
    if not isinstance(other, Tensor):
        return None if other is None else float(other)
    if sum(child is not None for child, _ in node.next_functions) > 1 or other.requires_grad:
        if number and not inside:
            raise NotASum(
                "loss: expected a sum over examples; it multiplies or divides one sum over the batch by another"
            )
        return None
    if other.ndim == 0 or (other.numel() == 1 and rows > 1):  # of one row, every tensor by row has one element
        is_count = not other.is_floating_point() and other.dtype != torch.bool  # smoothed labels divide by one
        if number and not _is_of_python(other) and not is_count:
            raise NotASum(
                f"loss: expected a sum over examples; it is multiplied or divided by the tensor {float(other):g}, "
                f"which may be something of the batch. {WITHIN}; a constant is written as a Python number"
            )
        if number and is_count and not _is_of_python(other):
            _share(int(other), rows, inside)
        return float(other)
    return None


def _is_of_python(number: Tensor) -> bool:
    """Whether a tensor is a number from Python, which gives way to the type of any other operand."""
    return number.dtype != torch.bool and torch.result_type(number, torch.zeros((), dtype=torch.int8)) != number.dtype


def _kind(node: Any) -> str:
    name: str = node.name()
    return name.rstrip("0123456789").removesuffix("Backward")


def _is_number(node: Any) -> bool:
    return all(tuple(of.shape) == () for of in node._input_metadata)


def _equal(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=1e-5)


def _distinct(values: Iterable[float]) -> tuple[float, ...]:
    found: list[float] = []
    for value in sorted(values):
        if not found or not _equal(value, found[-1]):
            found.append(value)
    return tuple(found)


def _shown(values: Sequence[float]) -> str:
    return ", ".join(f"{value:g}" for value in values[:4])
