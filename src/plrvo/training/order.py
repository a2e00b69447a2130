"""Rows that a module puts into another order, as recipes do which sort a batch by length and sort it back.

Gradients are taken by row: row i of every layer is held to be example i. A layer on sorted rows has other examples in
them than a layer on rows as they came, and what would be clipped together is of two examples. Whether rows are sorted
may be decided by the batch: where all lengths are the same, nothing moves, and no try shows it. So the graph of every
pass is looked through for operations that take rows by a tensor of indices. Layers in two orders have one of these
between them; not all that have are wrong (packed sequences are put back), so that the module is tried on what moved.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

# By the name of the node; operations with indices of their own, and those that move along dimensions.
_BY_INDEX = {
    "Index", "IndexSelect", "Gather", "Sort", "Topk", "IndexPut", "Scatter", "ScatterAdd", "ScatterReduce",
    "IndexCopy", "IndexAdd", "IndexReduce",
}  # fmt: skip
_WHOLE = {"Flip", "Roll"}
_COLUMNS = 8  # of indices that differ along other dimensions: enough, where each has an order of its own
_kinds: dict[type, str] = {}  # of nodes, by type: a name is looked at once


def moved_rows(outputs: Iterable[Tensor], rows: int) -> dict[str, list[int]]:
    """For each operation that has moved rows in the pass that gave these outputs, up to four examples that it moved.

    By a name which is the same in every pass of the same operations: some are harmless, and must not hide the others.
    """
    found: dict[str, list[int]] = {}
    number = 0
    waiting: list[Any] = [t.grad_fn for t in outputs if t.grad_fn is not None]
    seen = set(waiting)
    while waiting:
        node = waiting.pop()
        kind = _kinds.get(type(node)) or _kind(type(node))
        if kind in _BY_INDEX or kind in _WHOLE:
            number += 1
            exchanged: list[int] = []
            if kind in _WHOLE:
                exchanged = [0, rows - 1] if any(_size(node, d) == rows for d in node._saved_dims) else []
            else:
                exchanged = next((_exchanged(i) for i in _indices(node) if len(i) == rows), [])
            if exchanged:
                found[f"{kind} {number}"] = exchanged
        for below, _ in node.next_functions:
            if below is not None and below not in seen:
                seen.add(below)
                waiting.append(below)
    return found


def _kind(of: type) -> str:
    name = of.__name__
    _kinds[of] = name.rstrip("0123456789").removesuffix("Backward")
    return _kinds[of]


def _indices(node: Any) -> Iterator[Tensor]:
    """As (n, m): n places in a dimension, and up to m indices for each."""
    found = node._saved_indices if hasattr(node, "_saved_indices") else node._saved_index
    if isinstance(found, Tensor):
        if found.ndim > 1:
            found = found.movedim(signed(node._saved_dim), 0)
        found = (found,)
    # Several indices make one together: the first is that of the rows, or they are in none of these dimensions.
    for index in [i for i in found if i is not None][:1]:
        if index.dtype != torch.bool and index.ndim and index.numel():
            yield index.detach().reshape(len(index), -1)[:, :_COLUMNS]


def _exchanged(index: Tensor) -> list[int]:
    """Neighbours that are not in their order, by their places before and after."""
    falls = (index[1:] < index[:-1]).nonzero()
    if not len(falls):
        return []
    at, column = falls[0].tolist()
    return sorted({at, at + 1, *(int(i) % len(index) for i in index[at : at + 2, column])})


def _size(node: Any, dimension: int) -> int:
    shape = node._input_metadata[0].shape
    dimension = signed(dimension)
    return int(shape[dimension]) if -len(shape) <= dimension < len(shape) else -1


def signed(dimension: int) -> int:
    """Nodes have negative dimensions without their sign."""
    return dimension - 2**64 if dimension >= 2**63 else dimension
