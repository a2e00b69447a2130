"""Between which data sets a guarantee holds, and how batches are drawn from them."""

from __future__ import annotations

from enum import StrEnum


class Adjacency(StrEnum):
    """What is done to one example to get the neighbouring data set."""

    add_or_remove = "add or remove one example"
    zero_out = "zero out one example: its contributions are replaced by zero, the others stay in their batches"


class Sampling(StrEnum):
    """How an example comes into a batch: by a coin in every step, by a coin in its group's turn, or by an order."""

    poisson = "poisson"
    cyclic = "cyclic"
    order = "order"
