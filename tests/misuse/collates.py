"""B, continued. What a collate function makes of an example because of the others in its batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from tests.misuse.sensitivity import B
from tests.misuse.setting import Private
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import Dataset

from plrvo.validate import InvalidArgument

CLASSES, FEATURES, COUNT = 2, 4, 24
MODES = ("hooks", "functorch")
Rows = list[Any]


class Series(Dataset[Any]):
    """Of 5 to 11 positions, but for one of 40."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(1)
        lengths = [*(5 + i % 7 for i in range(COUNT - 1)), 40]
        self.items = [torch.randn(n, FEATURES, generator=generator) + i % 2 for i, n in enumerate(lengths)]

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, i: int) -> tuple[Tensor, int]:
        return self.items[i], i % CLASSES


def padded(rows: Rows) -> Tensor:
    return pad_sequence([t for t, _ in rows], batch_first=True)


def mask(rows: Rows) -> Tensor:
    return pad_sequence([torch.ones(len(t)) for t, _ in rows], batch_first=True)


def _mean(x: Tensor, weights: Tensor) -> Tensor:
    return (x * weights[..., None]).sum(1) / weights.sum(1, keepdim=True)


class Pooled(nn.Module):
    """Takes the mean of all positions, or by a mask."""

    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(1)
            self.one, self.head = nn.Linear(FEATURES, 8), nn.Linear(8, CLASSES)

    def forward(self, x: Tensor, weights: Tensor | None = None) -> Tensor:
        found = self.one(x).tanh()
        return self.head(found.mean(1) if weights is None else _mean(found, weights))  # type: ignore[no-any-return]


class OfImages(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.head = nn.Conv2d(1, 4, 3, padding=1), nn.Linear(4, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.one(x).tanh().mean((2, 3)))  # type: ignore[no-any-return]


class Strips(nn.Module):
    """Of 16 positions each."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.head = nn.Linear(16 * FEATURES, 8), nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.one(x.reshape(len(x), x.shape[1] // 16, -1)).tanh().mean(1))  # type: ignore[no-any-return]


class OfLists(Pooled):
    def forward(self, x: Any, sizes: Tensor) -> Tensor:  # type: ignore[override]
        return super().forward(torch.as_tensor(x).reshape(len(sizes), -1, FEATURES)) + 0 * sizes[:, None]


class Gated(Pooled):
    """A frozen encoder that masks padding, and what does not behind a gate that starts at zero."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Linear(FEATURES, CLASSES).requires_grad_(False)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(self, x: Tensor, weights: Tensor) -> Tensor:  # type: ignore[override]
        return _mean(self.encoder(x), weights) + super().forward(x)


class Offset(Pooled):
    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        return super().forward(x) + 1e4


class MasksInEval(Pooled):
    def forward(self, x: Tensor, weights: Tensor) -> Tensor:  # type: ignore[override]
        return super().forward(x, None if self.training else weights)


def _normalised(rows: Rows) -> Any:
    x = padded(rows)
    return (x - x.mean(1, keepdim=True)) / (x.std(1, keepdim=True) + 1e-3), mask(rows)


def _with_time(rows: Rows) -> Any:
    x, there = padded(rows), mask(rows)
    x[..., 3] = torch.linspace(0, 1, x.shape[1]) * there
    return x, there


def _centred(rows: Rows) -> Any:
    x = torch.stack([t[:5] for t, _ in rows])
    return x - x.mean(0)


def _dithered(rows: Rows) -> Any:
    x = padded(rows)
    noise = 1e-3 * torch.randn(x.shape[1:], generator=torch.Generator().manual_seed(0))
    return torch.where(mask(rows)[..., None] > 0, x, noise)


def _numbered(rows: Rows) -> Any:
    x = padded(rows)
    x[..., 3] = torch.arange(x.shape[1]) / 10
    return x


def _resized(rows: Rows) -> Any:
    longest = max(len(t) for t, _ in rows)
    return torch.cat([functional.interpolate(t.T[None], size=longest).transpose(1, 2) for t, _ in rows])


def _in_strips(rows: Rows) -> Any:
    x = padded(rows)
    return functional.pad(x, (0, 0, 0, -x.shape[1] % 16))


_MADE: dict[str, tuple[Callable[[], nn.Module], Callable[[Rows], Any]]] = {
    "normalise each example over the padded length, for a model that masks padding": (Pooled, _normalised),
    "give each position its share of the longest length, for a model that masks padding": (Pooled, _with_time),
    "take the batch's mean from each example": (Pooled, _centred),
    "pad by random numbers, without a mask": (Pooled, _dithered),
    "pad by zeros, and number all positions, without a mask": (Pooled, _numbered),
    "resize all examples to the longest": (Pooled, _resized),
    "pad spectrograms of four dimensions, without a mask": (OfImages, lambda rows: padded(rows).mT[:, None]),
    "pad to a multiple of 16, for a model without a mask that takes 16 positions at a time": (Strips, _in_strips),
    "pad in lists of lists, without a mask": (OfLists, lambda rows: (padded(rows).tolist(), torch.zeros(len(rows)))),
    "pad in NumPy's arrays, without a mask": (OfLists, lambda rows: (padded(rows).numpy(), torch.zeros(len(rows)))),
    "pad for a model that does not mask behind a gate of zeros": (Gated, lambda rows: (padded(rows), mask(rows))),
    "pad for a model without a mask that adds a large number to its outputs": (Offset, padded),
    "pad for a model that masks in eval mode only": (MasksInEval, lambda rows: (padded(rows), mask(rows))),
}

for _does, (_module, _collate) in _MADE.items():

    @B.row(
        f"{_does} (in the collate function)",
        "refused at the first batch: the loader is asked for single examples, whose outputs and gradients must be "
        "what they are in the batch",
        modes=MODES[:1] if _module is OfLists else MODES,
        error=InvalidArgument,
        match="outputs and gradients of an example",
    )
    def made(mode: str, module: Callable[[], nn.Module] = _module, collate: Callable[[Rows], Any] = _collate) -> None:
        def labelled(rows: Rows) -> Any:
            return collate(rows), torch.tensor([label for _, label in rows])

        run = Private(mode, module(), examples=Series(), sample_rate=1.0, steps=2, collate=labelled)
        run.train(forward=lambda given: run.module(*given) if isinstance(given, tuple) else run.module(given))
