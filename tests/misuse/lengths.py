"""B, continued. Rows of different lengths: sorted, or weighed by what all of them have together."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.misuse.sensitivity import B
from tests.misuse.setting import Private
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pack_padded_sequence
from torch.utils.data import TensorDataset

from plrvo.training.loss_form import NotASum
from plrvo.validate import InvalidArgument

LONGEST, WORDS, CLASSES = 6, 9, 3
RARE = WORDS - 1  # a word that no text of these batches begins with
BOOKS = ("bookkeeping", "hooks")


class SortedByLength(nn.Module):
    """Sorts a batch by the lengths that it is given (or those with a certain first word) for its LSTM; sorts back."""

    def __init__(self, *, given: bool) -> None:
        super().__init__()
        self.given = given
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.words = nn.Embedding(WORDS, 4)
            self.rnn = nn.LSTM(4, 5, batch_first=True)
            self.head = nn.Linear(5, CLASSES)

    def forward(self, words: Tensor, lengths: Tensor) -> Tensor:
        key = lengths if self.given else (words[:, 0] == RARE).long()
        ordered, order = key.sort(descending=True, stable=True)
        x = self.words(words[order])
        x = pack_padded_sequence(x, ordered, batch_first=True) if self.given else x
        return self.head(self.rnn(x)[1][0][-1][order.argsort()])  # type: ignore[no-any-return]


def _batch(rows: int, shortest: int) -> tuple[Tensor, Tensor, Tensor]:
    """Words without padding in all rows but the first; their lengths, and classes."""
    generator = torch.Generator().manual_seed(1)
    words = torch.randint(1, WORDS, (rows, LONGEST), generator=generator)
    words[:, 0].clamp_(max=RARE - 1)
    words[0, shortest:] = 0
    return words, (words != 0).sum(dim=1), torch.randint(0, CLASSES, (rows,), generator=generator)


def _run(mode: str, module: nn.Module) -> Private:
    words, lengths, classes = _batch(40, LONGEST)
    return Private(mode, module, examples=TensorDataset(words, lengths, classes))


def _step(run: Private, rows: int, shortest: int) -> Tensor:
    words, lengths, classes = _batch(rows, shortest)
    return run.released(words, classes, forward=lambda x: run.module(x, lengths))


@B.row(
    "sort a batch by the lengths that the module is given, and sort it back, where the first batch has one length",
    "refused on the first batch, which is tried with other lengths; packed with enforce_sorted=False it works",
    modes=BOOKS,
    error=InvalidArgument,
    match="enforce_sorted=False",
)
def sorted_by_given_lengths(mode: str) -> None:
    _step(_run(mode, SortedByLength(given=True)), 12, LONGEST)


@B.row(
    "sort a batch by numbers that tie in the first batch and do not in a later one",
    "refused in that batch, before its step: the module is tried on rows that have changed places",
    modes=BOOKS,
    error=InvalidArgument,
    match="enforce_sorted=False",
)
def sorted_by_own_lengths(mode: str) -> None:
    run = _run(mode, SortedByLength(given=False))
    _step(run, 12, LONGEST)
    words, lengths, classes = _batch(12, LONGEST)
    words[5, 0] = RARE
    run.released(words, classes, forward=lambda x: run.module(x, lengths))


class Longest(nn.Module):
    """Divides by the longest of the batch, or cuts to it."""

    def __init__(self, *, cut: bool) -> None:
        super().__init__()
        self.cut = cut
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.words, self.head = nn.Embedding(WORDS, 4), nn.Linear(4, CLASSES)

    def forward(self, words: Tensor, lengths: Tensor) -> Tensor:
        there = words != 0
        longest = int(there.sum(dim=1).max())
        found = self.words(words)
        pooled = found[:, :longest].mean(dim=1) if self.cut else (found * there[..., None]).sum(dim=1) / longest
        return self.head(pooled)  # type: ignore[no-any-return]


for _cut in (False, True):

    @B.row(
        f"{'cut a batch to' if _cut else 'divide by'} its longest text, where the first batch has no padding",
        "refused on the first batch, which is tried with padding",
        modes=BOOKS,
        error=InvalidArgument,
        match="mixes them",
    )
    def longest(mode: str, cut: bool = _cut) -> None:
        _step(_run(mode, Longest(cut=cut)), 12, LONGEST)


class Signs(nn.Module):
    """Compares each example with the batch's mean: a layer of two values, behind which a head starts at zero."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.where(x >= x.mean(dim=0), 1.0, -1.0)


class MeanInline(nn.Module):
    """Takes the batch's mean from what goes into a head that starts at zero, in no layer."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(WORDS, 4), nn.Linear(4, CLASSES)
        nn.init.zeros_(self.head.weight)

    def forward(self, words: Tensor, lengths: Tensor) -> Tensor:
        pooled = self.words(words).mean(dim=1)
        return self.head(pooled - pooled.mean(dim=0))  # type: ignore[no-any-return]


@B.row(
    "compare examples with the batch's mean in a layer of few values, behind which a head starts at zero",
    "refused on the first batch: outputs of every layer are compared",
    modes=BOOKS,
    error=InvalidArgument,
    match="mixes them",
)
def signs(mode: str) -> None:
    head = nn.Linear(6, 3)
    nn.init.zeros_(head.weight)
    Private(mode, nn.Sequential(nn.Linear(6, 6), Signs(), head)).train(steps=1)


@B.row(
    "take the batch's mean of tokens' features outside of layers, before a head that starts at zero",
    "refused on the first batch: what goes into layers is compared too",
    modes=BOOKS,
    error=InvalidArgument,
    match="what goes into head",
)
def mean_inline(mode: str) -> None:
    _step(_run(mode, MeanInline()), 12, LONGEST)


class WeighedByBatch(nn.Module):
    """Gives its own loss, in which tokens are weighed by the mask over its mean in the batch."""

    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.layer = nn.Linear(4, CLASSES)

    def forward(self, x: Tensor, targets: Tensor, mask: Tensor) -> Any:
        losses = functional.cross_entropy(self.layer(x).transpose(1, 2), targets, reduction="none")
        return (losses * (mask / mask.float().mean())).mean()


@B.row(
    "weigh tokens by a mask over the batch's mean, in the module's own loss, where the first batch has no padding",
    "refused on the first batch, which is tried with masks that differ from row to row",
    modes=BOOKS,
    error=NotASum,
    match="the number that the module computes is not",
)
def weighed_by_batch(mode: str) -> None:
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(12, LONGEST, 4, generator=generator)
    targets, mask = torch.randint(0, CLASSES, (12, LONGEST), generator=generator), torch.ones(12, LONGEST).bool()
    run = Private(mode, WeighedByBatch(), examples=TensorDataset(x, targets, mask))
    run.released(x, targets, forward=lambda x: run.module(x, targets, mask), loss=lambda loss, _: loss)


@B.row(
    "log the gradients of a parameter by a hook on it",
    "the hook hears nothing: in steps there is nothing before the noise, and tries take it off",
    modes=("bookkeeping", "hooks", "functorch"),
)
def hook_on_a_parameter(mode: str) -> None:
    run = Private(mode)
    heard: list[Tensor] = []
    for p in run.plain.parameters():
        p.register_hook(lambda gradient: heard.append(gradient))  # returns None: the gradient stays
    run.train(steps=2)
    assert heard == []
    assert all(len(p._backward_hooks or {}) == 1 for p in run.plain.parameters())


@B.row(
    "call a layer from within itself",
    "refused, and its parameters are there afterwards",
    modes=BOOKS,
)
def calls_itself(mode: str) -> None:
    class Nested(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale, self.layer = nn.Parameter(torch.ones(6)), nn.Linear(6, 6)

        def forward(self, x: Tensor, depth: int = 2) -> Any:
            return self.layer(self(x, depth - 1)) * self.scale if depth else x

    module = nn.Sequential(Nested(), nn.Linear(6, 3))
    before = list(module.parameters())
    run = Private(mode, module)
    with pytest.raises(InvalidArgument, match="call themselves"):
        run.train(steps=1)
    assert [id(p) for p in module.parameters()] == [id(p) for p in before]
