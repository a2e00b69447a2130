"""B, continued. Batches padded to their longest text, and losses in the loop that look at the padding, or do not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from tests.misuse.sensitivity import B
from tests.misuse.setting import CLIP, Private
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pack_padded_sequence
from torch.utils.data import TensorDataset

from plrvo.training.loss_form import NotASum, by_example
from plrvo.validate import InvalidArgument

WORDS, CLASSES, IGNORED = 20, 3, -100
BOOKS = ("bookkeeping", "hooks", "functorch")
Loss = Callable[[Tensor, Tensor], Tensor]


class Tagger(nn.Module):
    """Outputs by position, which look at no other; `masks`: zeros where there is padding."""

    def __init__(self, masks: bool = False) -> None:
        super().__init__()
        self.masks = masks
        with torch.random.fork_rng():
            torch.manual_seed(1)
            self.words, self.head = nn.Embedding(WORDS, 8), nn.Linear(8, CLASSES)

    def forward(self, words: Tensor) -> Tensor:
        found = self.head(self.words(words))
        return found * (words != 0)[..., None] if self.masks else found  # type: ignore[no-any-return]


def texts(lengths: list[int], left: bool = False) -> tuple[Tensor, Tensor]:
    """Words and their labels, padded to the longest."""
    words = torch.zeros(len(lengths), max(lengths), dtype=torch.long)
    labels = torch.full_like(words, IGNORED)
    for i, n in enumerate(lengths):
        own = slice(max(lengths) - n, None) if left else slice(n)
        words[i, own], labels[i, own] = 1 + torch.arange(i, i + n) % (WORDS - 1), torch.arange(n) % CLASSES
    return words, labels


LENGTHS = ([5, 3] * 6, [4, 9] * 6, [7, 2] * 6)


def _train(mode: str, loss: Loss, module: nn.Module | None = None, left: bool = False) -> Private:
    run = Private(mode, module or Tagger(), examples=TensorDataset(*texts([9] * 40)))
    for lengths in LENGTHS:
        run.released(*texts(lengths, left), loss=loss)
    return run


def _each(out: Tensor, labels: Tensor) -> Tensor:
    return functional.cross_entropy(out.transpose(1, 2), labels, ignore_index=IGNORED, reduction="none")


def _first(labels: Tensor) -> Tensor:
    return labels.clamp(min=0).amax(dim=1)


def _loop(out: Tensor, labels: Tensor) -> Tensor:
    return torch.stack([functional.mse_loss(o, torch.zeros_like(o)) for o in out]).mean()


_LOOKING: dict[str, Loss] = {
    "average each text's tokens over the padded length, with padding ignored": lambda o, y: (
        _each(o, y).mean(dim=1).mean()
    ),
    "average over the padded length by a negative dimension": lambda o, y: _each(o, y).mean(-1).mean(),
    "pool outputs in the loop by a mean over positions": lambda o, y: functional.cross_entropy(o.mean(1), _first(y)),
    "read outputs in the loop at the last position": lambda o, y: functional.cross_entropy(o[:, -1], _first(y)),
    "pool outputs in the loop by logsumexp": lambda o, y: functional.cross_entropy(o.logsumexp(1), _first(y)),
    "take torch's mean of each text's outputs, in a loop over texts": _loop,
}

for _does, _loss in _LOOKING.items():

    @B.row(
        f"{_does}, where batches are padded to their longest text",
        "refused at the first batch of another length: a loss must not look at padding, nor divide by its length",
        modes=BOOKS,
        error=NotASum,
        match="padded to",
    )
    def looking(mode: str, loss: Loss = _loss) -> None:
        _train(mode, loss)


def _counts(labels: Tensor) -> Tensor:
    return (labels != IGNORED).sum(dim=1)


_OWN: list[tuple[Loss, bool, bool]] = [  # with padding on the left, and with zeros there
    (lambda o, y: (_each(o, y).sum(1) / _counts(y)).mean(), False, False),
    (lambda o, y: (_each(o, y).sum(1) / 9).mean(), False, False),
    (lambda o, y: (o.sum(1) / _counts(y)[:, None]).square().sum(1).mean(), False, True),
    (lambda o, y: functional.cross_entropy(o[:, 0], _first(y)), False, False),
    (lambda o, y: functional.cross_entropy(o[:, -1], _first(y)), True, False),
    (lambda o, y: functional.cross_entropy(o[torch.arange(len(y)), _counts(y) - 1], _first(y)), False, False),
    (lambda o, y: torch.stack([a[:n].mean(0).square().sum() for a, n in zip(o, _counts(y), strict=True)]).mean(),
     False, False),
    (lambda o, y: functional.cross_entropy(
        o.masked_fill((y == IGNORED)[..., None], -1e4).logsumexp(1), _first(y)), False, False),
]  # fmt: skip


@B.row(
    "divide each text's loss by its own number of tokens or by a constant, or read outputs where it ends",
    "works, however far batches are padded",
    modes=BOOKS,
)
def own_tokens(mode: str) -> None:
    for loss, left, masks in _OWN:
        _train(mode, loss, Tagger(masks), left)


@B.row(
    "give the criterion of `grad_sample_mode='ghost'` texts that are padded to the longest of a batch",
    "works: it divides by each text's own number of targets that are not ignored",
    modes=BOOKS,
)
def criterion_by_example(mode: str) -> None:
    criterion = by_example(nn.CrossEntropyLoss(ignore_index=IGNORED), "mean")

    def loss(out: Tensor, labels: Tensor) -> Any:
        return criterion(out.transpose(1, 2), labels)

    lengths, found = [40] + [3, 4] * 10, []
    for start in (0, 1):
        words, labels = (t[start:, : max(lengths[start:])] for t in texts(lengths))
        found.append(_train(mode, loss).released(words, labels, loss=loss))
    assert float((found[0] - found[1]).norm()) <= 1.001 * CLIP


class CutTo(nn.Module):
    """Cuts a batch to its longest text, and takes the mean over all positions; with `rows_second`, along the first."""

    def __init__(self, rows_second: bool = False) -> None:
        super().__init__()
        self.rows_second = rows_second
        with torch.random.fork_rng():
            torch.manual_seed(1)
            self.words, self.head = nn.Embedding(WORDS, 8), nn.Linear(8, CLASSES)

    def forward(self, words: Tensor, lengths: Any) -> Tensor:
        if self.rows_second:
            return self.head(self.words(words[: int(lengths.max())]).mean(0, keepdim=True))  # type: ignore[no-any-return]
        return self.head(self.words(words[:, : int(max(lengths))]).mean(1))  # type: ignore[no-any-return]


_KINDS: dict[str, Callable[[list[int]], Any]] = {
    "a list": list,
    "a tuple": tuple,
    "NumPy's array": np.array,
    "real numbers": lambda n: torch.tensor(n).float(),
    "a column (B, 1)": lambda n: torch.tensor(n)[:, None],
}

for _name, _kind in _KINDS.items():

    @B.row(
        f"cut a batch to its longest text by lengths that are {_name}, where the first batch has one length",
        "refused on the first batch, which is tried with other lengths",
        modes=BOOKS,
        error=InvalidArgument,
        match="mixes them",
    )
    def cut_by(mode: str, kind: Callable[[list[int]], Any] = _kind) -> None:
        words, labels = texts([9] * 12)
        run = Private(mode, CutTo(), examples=TensorDataset(words, labels))
        run.released(words, labels[:, 0], forward=lambda x: run.module(x, kind([9] * 12)))


@B.row(
    "cut a batch to its longest text with the rows second (`batch_first=False`)",
    "refused on the first batch, which is tried with other lengths in that dimension",
    modes=("hooks",),
    error=InvalidArgument,
    match="mixes them",
)
def cut_rows_second(mode: str) -> None:
    words, labels = texts([9] * 12)
    run = Private(mode, CutTo(rows_second=True), examples=TensorDataset(words, labels), batch_first=False)
    lengths = torch.full((1, 12), 9)
    run.released(words, labels[:, 0], forward=lambda x: run.module(x.T, lengths)[0])


class Packed(nn.Module):
    """Reads a recurrent network at the end of each text; takes a size that is no example's."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.rnn = nn.Embedding(WORDS, 8), nn.GRU(8, 8, batch_first=True)
        self.head = nn.Linear(8, CLASSES)

    def forward(self, words: Tensor, lengths: Any, size: tuple[int, ...]) -> Tensor:
        packed = pack_padded_sequence(self.words(words), lengths, batch_first=True, enforce_sorted=False)
        return self.head(self.rnn(packed)[1][0].reshape(-1, *size).flatten(1))  # type: ignore[no-any-return]


@B.row(
    "give a model that packs its texts their lengths in a list, and a size that is as long as a small batch",
    "works",
    modes=("hooks",),
)
def packed_by_a_list(mode: str) -> None:
    for sizes in ((2, 12, 2), (12, 2, 7)):
        run = Private(mode, Packed())
        for rows in sizes:
            lengths = [3 + i % 4 for i in range(rows)]
            words, labels = texts(lengths)
            run.released(words, labels[:, 0], forward=lambda x, n=lengths, m=run.module: m(x, n, (2, 4)))


class Frames(nn.Module):
    """Takes the mean of all frames of a spectrogram."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.head = nn.Linear(4, 8), nn.Linear(8, CLASSES)

    def forward(self, frames: Tensor) -> Tensor:
        return self.head(self.one(frames).tanh().mean(dim=1))  # type: ignore[no-any-return]


_FLOORS: dict[str, Callable[[Tensor], Tensor]] = {
    "by -80 dB": lambda frames: torch.full((4,), -80.0),
    "by zeros that are normalised afterwards": lambda frames: torch.tensor([-1.0, 0.5, 2.0, 3.0]),
    "by their own last frame": lambda frames: frames[-1],
}

for _name, _floor in _FLOORS.items():

    @B.row(
        f"pad spectrograms {_name} to the longest of a batch, for a model that averages over all frames",
        "refused at the first batch of another length: outputs must not change with padding, whatever its value is",
        modes=BOOKS,
        error=InvalidArgument,
        match="mask the padding",
    )
    def frames(mode: str, floor: Callable[[Tensor], Tensor] = _floor) -> None:
        generator = torch.Generator().manual_seed(1)
        run = Private(mode, Frames(), examples=TensorDataset(torch.zeros(40, 9, 4), torch.zeros(40).long()))
        for lengths in LENGTHS:
            own = [torch.randn(n, 4, generator=generator) for n in lengths]
            padded = [torch.cat([t, floor(t).expand(max(lengths) - len(t), 4)]) for t in own]
            run.released(torch.stack(padded), torch.arange(12) % CLASSES)


class Mean(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(WORDS, 8), nn.Linear(8, CLASSES)

    def forward(self, words: Tensor, weights: Tensor | None = None) -> Tensor:
        found = self.words(words).mean(dim=1)
        return self.head(found if weights is None else found * weights[:, None])  # type: ignore[no-any-return]


@B.row(
    "average over padding in a model that two tasks call in turns, one with an argument more",
    "refused: lengths are watched for each form of a call by itself",
    modes=BOOKS,
    error=InvalidArgument,
    match="mask the padding",
)
def in_turns(mode: str) -> None:
    run = Private(mode, Mean())
    for lengths in LENGTHS:
        words, labels = texts(lengths)
        run.released(words, labels[:, 0], forward=lambda x: run.module(x, torch.ones(len(x))))
        run.released(words, labels[:, 0])
