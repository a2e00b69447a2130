"""B, continued. Layers that mix examples where a first batch, or the weights that a model starts with, hide it."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import torch
from tests.misuse.sensitivity import WITHIN, B
from tests.misuse.setting import CLASSES, CLIP, FEATURES, Private, data, effect_of_first
from torch import Tensor, nn
from torch.nn import functional

from plrvo.validate import InvalidArgument


class Fills(nn.Module):
    """What is missing in its inputs is filled in."""

    def __init__(self, fill: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.fill, self.into, self.out = fill, nn.Linear(FEATURES, 8), nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(torch.relu(self.into(self.fill(x))))  # type: ignore[no-any-return]


def _by_the_mean(x: Tensor) -> Tensor:
    return torch.where(x.isnan(), x.nanmean(dim=0), x)


def _by_the_median(x: Tensor) -> Tensor:
    return torch.where(x.isinf(), x.median(dim=0).values, x)


def _with_holes(value: float, share: float = 0.3) -> tuple[Tensor, Tensor]:
    x, y = (t[:40] for t in data().tensors)
    return x.masked_fill(torch.rand(x.shape, generator=torch.Generator().manual_seed(2)) < share, value), y * 0


for _what, _fill, _value, _share in (
    ("missing values (NaN) by the mean of the batch", _by_the_mean, math.nan, 0.3),
    ("infinities by the median of the batch", _by_the_median, math.inf, 0.3),
    ("missing values by the mean of the batch, with none missing in the first batches", _by_the_mean, math.nan, 0.0),
):

    @B.row(
        f"fill in {_what}, inside of the module",
        "refused on the first batch: rows are tried as they came, and with numbers that are none beside others",
        modes=("bookkeeping", "hooks"),
        error=InvalidArgument,
        match="mixes them",
    )
    def fills(mode: str, fill: Any = _fill, value: float = _value, share: float = _share) -> None:
        x, y = _with_holes(value, share)
        Private(mode, Fills(fill)).released(x, y)


@B.row(
    "fill in missing values by a constant, or by something of the example's own",
    "works: one example moves the sum by one clip at most",
    modes=("bookkeeping", "hooks"),
)
def fills_by_itself(mode: str) -> None:
    x, y = _with_holes(math.nan)
    x[0] = 1000.0
    for fill in (torch.nan_to_num, lambda x: torch.where(x.isnan(), x.nanmean(dim=1, keepdim=True), x)):
        assert effect_of_first(mode, x, y, Fills(fill)) <= WITHIN


class Written(nn.Module):
    """Changes what its last layer gives in a way that autograd does not count as a change."""

    def __init__(self, write: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.write, self.out = write, nn.Linear(FEATURES, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        h = self.out(x)
        self.write(h)
        return h  # type: ignore[no-any-return]


def _by_numpy(h: Tensor) -> None:
    numbers = h.detach().numpy()
    numbers -= numbers.mean(axis=0)


for _where, _write in (
    ("through .data", lambda h: h.data.sub_(h.data.mean(dim=0))),
    ("through NumPy", _by_numpy),
    ("by an assignment to .data", lambda h: setattr(h, "data", h.data - h.data.mean(dim=0))),
):

    @B.row(
        f"take the mean of the batch from a layer's output, {_where}",
        "refused on the first batch: outputs are compared by their numbers",
        modes=("bookkeeping", "hooks", "functorch"),
        error=InvalidArgument,
        match="mixes them",
    )
    def written(mode: str, write: Any = _write) -> None:
        Private(mode, Written(write)).train()


class Gated(nn.Module):
    """A residual branch with a gate that starts at zero, over tokens, which no try makes extreme."""

    def __init__(self, branch: Callable[[Tensor], Tensor], gate: Tensor) -> None:
        super().__init__()
        self.table, self.out = nn.Embedding(50, 8), nn.Linear(8, CLASSES)
        self.branch, self.gate = branch, nn.Parameter(gate)

    def forward(self, ids: Tensor) -> Tensor:
        h = self.table(ids).mean(dim=1)
        return self.out(h + (self.gate - self.gate.detach()[-1].round()) * self.branch(h))  # type: ignore[no-any-return]


class IntoAHead(Gated):
    """Frozen features, centred over the batch, go by keyword into a head that starts at zero."""

    def __init__(self) -> None:
        super().__init__(torch.tanh, torch.zeros(8))
        self.table.requires_grad_(False)
        nn.init.zeros_(self.out.weight)
        self.out.weight.requires_grad_(False)

    def forward(self, ids: Tensor) -> Tensor:
        h = self.table(ids).mean(dim=1)
        return self.out(input=h - h.mean(dim=0)) + self.gate[:CLASSES]  # type: ignore[no-any-return]


def _words() -> tuple[Tensor, Tensor]:
    x = torch.randint(1, 50, (40, 5), generator=torch.Generator().manual_seed(2))
    x[0] = 0
    return x, torch.zeros(40, dtype=torch.long)


_GATES = {
    "a gate of zeros": lambda: Gated(lambda h: h - h.mean(dim=0), torch.zeros(8)),
    "zeros among the numbers of a gate": lambda: Gated(
        lambda h: (h - h.mean(dim=0)) * (torch.arange(8) < 4), torch.tensor([0.0] * 4 + [1e-3] * 4)
    ),
    "the difference of a gate from one, which it is at first": lambda: Gated(lambda h: h.mean(dim=0), torch.ones(8)),
    "a frozen head of zeros, called by keyword": IntoAHead,
}

for _name, _make in _GATES.items():

    @B.row(
        f"hide a layer that mixes examples behind {_name}",
        "refused on the first batch: what is zero, or all the same, is tried with other numbers too",
        modes=("bookkeeping", "hooks", "functorch"),
        error=InvalidArgument,
        match="mixes them",
    )
    def hidden(mode: str, make: Any = _make) -> None:
        Private("auto" if mode == "bookkeeping" else mode, make()).released(*_words())


@B.row(
    "begin with gates and heads of zeros, and scales of ones, in a model that keeps examples apart",
    "works, and no number of the model is another one after the tries",
    modes=("functorch",),
)
def gated_by_itself(mode: str) -> None:
    module = Gated(torch.tanh, torch.zeros(8))
    nn.init.zeros_(module.out.weight)
    before = {name: (p.detach().clone(), p._version) for name, p in module.named_parameters()}
    Private(mode, module).module(_words()[0])
    for name, p in module.named_parameters():
        assert torch.equal(p, before[name][0])
        assert p._version == before[name][1]
    fresh = Gated(torch.tanh, torch.zeros(8))
    fresh.table.weight.data[0] = 60.0
    assert effect_of_first(mode, *_words(), fresh) <= WITHIN


class Tagger(nn.Module):
    """Cuts its batch to the longest text, so that a batch of copies has outputs of another size."""

    def __init__(self, centre: Callable[[Tensor], Any], longest: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.table = nn.Embedding(50, 8).requires_grad_(False)
        self.into, self.out, self.centre, self.longest = nn.Linear(8, 8), nn.Linear(8, CLASSES), centre, longest

    def forward(self, ids: Tensor, lengths: Tensor) -> Tensor:
        x = self.table(ids[:, : int(self.longest(lengths))])
        return self.out(torch.tanh(self.into(x - self.centre(x))))  # type: ignore[no-any-return]


def _texts() -> tuple[Tensor, Tensor]:
    """The ends of the batch are not the longest."""
    lengths = 10 + torch.randperm(80, generator=torch.Generator().manual_seed(2))[:41]
    lengths[[0, 1, 40]] = 9
    ids = torch.randint(1, 49, (41, 90), generator=torch.Generator().manual_seed(3))
    ids[0] = 49
    return ids * (torch.arange(90) < lengths[:, None]), lengths


def _of_tags(out: Tensor, lengths: Tensor) -> Tensor:
    each = functional.cross_entropy(out.transpose(1, 2), torch.zeros(out.shape[:2], dtype=torch.long), reduction="none")
    return ((each * (torch.arange(out.shape[1]) < lengths[:, None])).sum(dim=1) / lengths).mean()


for _name, _centre, _longest in (
    ("by a mean over all tokens of the batch", lambda x: x.mean(dim=(0, 1)), Tensor.amax),
    ("by the last token of its longest text", lambda x: x[:, -1].sum(dim=0), Tensor.amax),
    # No row by itself has this length.
    (
        "by a mean, at a length that all examples make together",
        lambda x: x.mean(dim=(0, 1)),
        lambda n: n.sum() % 50 + 9,
    ),
):

    @B.row(
        f"centre a batch that is cut to the longest of its texts {_name}",
        "refused on the first batch: also the longest is tried beside others, and others within their lengths",
        modes=("bookkeeping", "hooks"),
        error=InvalidArgument,
        match="mixes them",
    )
    def cut(mode: str, centre: Any = _centre, longest: Any = _longest) -> None:
        ids, lengths = _texts()
        run = Private(mode, Tagger(centre, longest))
        run.released(ids, lengths, forward=lambda x: run.module(x, lengths), loss=_of_tags)


@B.row(
    "cut the batch to the longest of its texts, in a model that keeps examples apart",
    "works: one example moves the sum by one clip at most",
    modes=("bookkeeping", "hooks"),
)
def cut_by_itself(mode: str) -> None:
    ids, lengths = _texts()
    found = []
    for start in (0, 1):
        torch.manual_seed(1)
        run = Private(mode, Tagger(lambda x: x.mean(dim=2, keepdim=True), Tensor.amax))
        own = lengths[start:]
        forward = functools.partial(_given, run.module, own)
        found.append(run.released(ids[start:], own, forward=forward, loss=_of_tags))
    assert float((found[0] - found[1]).norm()) / CLIP <= WITHIN


def _given(module: Any, lengths: Tensor, ids: Tensor) -> Any:
    return module(ids, lengths)
