"""B, continued. Losses weighed by the labels of the batch, where these are few, or rare; and tables looked up once."""

from __future__ import annotations

import pytest
import torch
from tests.misuse.losses import one_output
from tests.misuse.sensitivity import B
from tests.misuse.setting import CLASSES, FEATURES, Private, data
from torch import Tensor, nn
from torch.nn import functional

from plrvo.training.loss_form import NotASum
from plrvo.validate import InvalidArgument

BOOKS = ("bookkeeping", "hooks", "functorch")


@B.row(
    "weigh two classes, whose labels are real numbers, by their shares of a batch of up to 16",
    "refused before the first step: what has a row for each example shows where rows change places",
    modes=BOOKS,
    error=NotASum,
    match="changes with other examples",
)
def few_rows(mode: str) -> None:
    def loss(out: Tensor, y: Tensor) -> Tensor:
        each = functional.binary_cross_entropy_with_logits(out[:, 0], y, reduction="none")
        return (each * torch.where(y == 1, 1 - y.mean(), y.mean())).mean()

    x, y = (t[:16] for t in data().tensors)
    Private(mode, one_output()).released(x, (y == 0).float(), loss=loss)


@B.row(
    "shift outputs by the classes' shares of the batch (balanced softmax), where the first batches have one class",
    "refused before the first step: losses are tried with labels that the batch has nowhere",
    modes=BOOKS,
    error=NotASum,
    match="changes with other examples",
)
def rare_classes(mode: str) -> None:
    def loss(out: Tensor, y: Tensor) -> Tensor:
        return functional.cross_entropy(out + (torch.bincount(y, minlength=CLASSES) + 1).log(), y)

    x, y = data().tensors
    Private(mode).released(x, torch.zeros_like(y), loss=loss)


class Table(nn.Module):
    """Scores all labels by a table that is looked up."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.labels = nn.Linear(FEATURES, 8), nn.Embedding(CLASSES, 8)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) @ self.labels(torch.arange(CLASSES)).T  # type: ignore[no-any-return]


@B.row(
    "score labels by a table that is looked up once for all examples (`h @ table(arange(C)).T`)",
    'refused with the mode that takes it: `grad_sample_mode="functorch"`, where it works',
    modes=("bookkeeping", "hooks"),
    error=InvalidArgument,
    match='looked up once.*grad_sample_mode="functorch"',
)
def table(mode: str) -> None:
    Private("functorch", Table()).train(steps=2)
    Private(mode, Table()).train(steps=1)


@B.row(
    "score labels by such a table, and leave the mode to the engine",
    'works: "auto" comes to `grad_sample_mode="functorch"` on the first batch, with a warning',
    modes=("auto", "exact"),
)
def table_in_auto(mode: str) -> None:
    run = Private(mode, Table())
    with pytest.warns(UserWarning, match="functorch instead of bookkeeping or hooks"):
        run.train(steps=2)
    assert run.optimizer.steps_taken == 2
