"""A call with lengths, masks and padding that differ from row to row, made of one in which they may all be alike.

What a module does with rows of different lengths (sorts them, divides by what all of them have together) does not show
in a batch of one length, and the next batch may be another one. So rows are made different, with what a user's own
examples might have had: shorter lengths, fewer ones in a mask, zeros after the last token.
"""

from __future__ import annotations

import torch
from torch import Tensor

from plrvo.training.call import Call


def ragged(call: Call) -> Call | None:
    """The call with rows that differ, in no order; None where nothing in it says how long they are."""
    if call.rows < 2 or call.dimension:
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
        new = _changed(t, shares.to(t.device))
        differs |= new is not t and not torch.equal(new, t)
        return new

    varied = call.mapped(changed, call.rows)
    return varied if differs else None


def _shares(rows: int) -> Tensor:
    """From 0 to 1, each row another one: low and high in turn, so that sorting either way moves rows."""
    order = [i // 2 if i % 2 == 0 else rows - 1 - i // 2 for i in range(rows)]
    return torch.tensor(order, dtype=torch.float64) / (rows - 1)


def _changed(t: Tensor, shares: Tensor) -> Tensor:
    whole = not t.is_floating_point() and t.dtype != torch.bool
    if t.ndim == 1 and whole:
        return _cut(t, shares).to(t.dtype)
    if t.ndim != 2 or t.shape[1] < 2:
        return t
    if bool(((t == 0) | (t == 1)).all()):  # a mask: the first ones of each row
        count = t.long().cumsum(dim=1)
        total = count[:, -1]
        if bool((total == total[0]).all()) and int(total[0]) < t.shape[1]:
            return t  # as many in every row, and not all: so many are chosen, which is no length
        return t * (count <= _cut(total, shares)[:, None])
    if whole and int(t.min()) >= 0:  # tokens, of which the last ones become padding; below zero are labels to ignore
        place = torch.arange(t.shape[1], device=t.device)
        return t.masked_fill(place >= _cut(torch.full_like(t[:, 0], t.shape[1]), shares)[:, None], 0)
    return t


def _cut(lengths: Tensor, shares: Tensor) -> Tensor:
    """From 2 to what they are: a variance of one number is none."""
    return torch.where(lengths > 2, 2 + ((lengths - 2) * shares).long(), lengths)
