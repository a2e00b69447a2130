"""A call with lengths, masks and padding that differ from row to row, made of one in which they may all be alike.

What a module does with rows of different lengths (sorts them, divides by what all of them have together) does not show
in a batch of one length, and the next batch may be another one. So rows are made different, with what a user's own
examples might have had: shorter lengths (in a tensor, a list or an array), fewer ones in a mask, more that is left out
by a mask of padding or one that is added to scores, zeros after the last token.
"""

from __future__ import annotations

import torch
from torch import Tensor

from plrvo.training.call import Call

_LEFT_OUT = -1e4  # added to scores


def ragged(call: Call) -> Call | None:
    """The call with rows that differ, in no order; None where nothing in it says how long they are."""
    if call.rows < 2:
        return None
    labels = call.kwargs.get("labels")
    shares = _shares(call.rows)
    differs = False

    def changed(t: Tensor) -> Tensor:
        nonlocal differs
        # A loss of the module's own may divide by how many labels count, as long as that is the same in all rows; what
        # it divides by is read off every step's graph.
        if isinstance(labels, Tensor) and t.shape == labels.shape and torch.equal(t, labels):
            return t
        new = _changed(t.movedim(call.dimension, 0), shares.to(t.device)).movedim(0, call.dimension)
        differs |= not torch.equal(new, t)
        return new

    varied = call.mapped(changed, call.rows, texts=False)
    return varied if differs else None


def _shares(rows: int) -> Tensor:
    """From 0 to 1, each row another one: low and high in turn, so that sorting either way moves rows."""
    order = [i // 2 if i % 2 == 0 else rows - 1 - i // 2 for i in range(rows)]
    return torch.tensor(order, dtype=torch.float64) / (rows - 1)


def _changed(t: Tensor, shares: Tensor) -> Tensor:
    whole = not t.is_floating_point() and t.dtype != torch.bool
    if t.ndim == 1 or (t.ndim == 2 and t.shape[1] == 1):
        is_length = whole or (t.is_floating_point() and bool((t == t.round()).all()))
        return _cut(t.flatten().nan_to_num().long(), shares).to(t.dtype).view_as(t) if is_length else t
    if not t.is_floating_point() or t.ndim == 2 or t.shape[1] == 1 or t.shape[-2] == t.shape[-1]:
        lines = t.reshape(len(t), -1, t.shape[-1])  # the last dimension is that of the positions
        return _masked(lines, shares).reshape(t.shape) if t.shape[-1] > 1 and t.numel() else t
    return t


def _masked(t: Tensor, shares: Tensor) -> Tensor:
    """As (rows, lines, positions)."""
    by_line = shares[:, None].expand(t.shape[:2])
    place = torch.arange(t.shape[2], device=t.device)
    left_out = place >= _cut(torch.full(t.shape[:2], t.shape[2], device=t.device), by_line)[..., None]
    if bool(((t == 0) | (t == 1)).all()):  # a mask: the first ones of each row
        count = t.long().cumsum(dim=2)
        total = count[..., -1]
        if t.dtype == torch.bool and not bool(total.any()):  # of padding, of which there is none
            return left_out
        if t.is_floating_point() and t.shape[1] == 1 and not bool(total.any()):  # added to scores
            return t.masked_fill(left_out, _LEFT_OUT)
        if bool((total == total[:1]).all()) and int(total.max()) < t.shape[2]:
            return t  # as many in every row, and not all: so many are chosen, which is no length
        return t * (count <= _cut(total, by_line)[..., None])
    lowest = t.min()
    if t.is_floating_point() and float(lowest) <= _LEFT_OUT and bool(((t == 0) | (t == lowest)).all()):
        return t.masked_fill(left_out, float(lowest))
    # Tokens, of which the last ones become padding; below zero are labels to ignore.
    if t.shape[1] == 1 and not t.is_floating_point() and t.dtype != torch.bool and int(lowest) >= 0:
        return t.masked_fill(left_out, 0)
    return t


def _cut(lengths: Tensor, shares: Tensor) -> Tensor:
    """From 2 to what they are: a variance of one number is none."""
    return torch.where(lengths > 2, 2 + ((lengths - 2) * shares).long(), lengths)
