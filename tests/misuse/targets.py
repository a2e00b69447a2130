"""B, continued. Losses that look at others by targets which are in no row of their own, or shared by two losses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from tests.misuse.sensitivity import B
from tests.misuse.setting import CLASSES, FEATURES, Private
from torch import Tensor, nn
from torch.nn import functional

from plrvo.training.loss_form import NotASum

ROWS, LENGTH, WORDS = 24, 6, 9
Batch = tuple[Tensor, ...]
Loss = Callable[..., Tensor]


def _generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def _texts(seed: int, marked: bool = False) -> Batch:
    """Tokens, labels and weights; in a `marked` batch, the first text counts for much more."""
    source = _generator(seed)
    x = torch.randint(1, WORDS, (ROWS, LENGTH), generator=source)
    y, w = torch.zeros_like(x), 0.5 + torch.rand(ROWS, LENGTH, generator=source)
    if marked:
        y[0], w[0] = 1, 1000.0
    return x, y, w


def _points(seed: int, marked: bool = False) -> Batch:
    source = _generator(seed)
    x, y = 1 + 0.3 * torch.randn(ROWS, FEATURES, generator=source), torch.zeros(ROWS, dtype=torch.long)
    y[0] = int(marked)
    return x, y, torch.randperm(1000, generator=source)[:ROWS]


def _tagger() -> nn.Module:
    return nn.Sequential(nn.Embedding(WORDS, 8), nn.Linear(8, CLASSES))


def _net() -> nn.Module:
    return nn.Sequential(nn.Linear(FEATURES, 8), nn.Tanh(), nn.Linear(8, CLASSES))


def _identity() -> nn.Module:
    found = nn.Linear(ROWS, ROWS)
    with torch.no_grad():
        found.weight.copy_(torch.eye(ROWS))
        found.bias.zero_()
    return found


def _far_apart(seed: int, marked: bool = False) -> Batch:
    x = torch.eye(ROWS) + 0.1 * torch.randn(ROWS, ROWS, generator=_generator(seed))
    return x, torch.zeros(ROWS), torch.zeros(ROWS)


def _balanced(outputs: Tensor, y: Tensor) -> Tensor:
    """Rare classes of the batch count for more."""
    w = (1 / torch.bincount(y, minlength=CLASSES).float().clamp(min=1))[y]
    return (functional.cross_entropy(outputs, y, reduction="none") * (w / w.mean())).mean()


def _flat_weights(model: nn.Module, x: Tensor, y: Tensor, w: Tensor) -> Tensor:
    y, w = y.view(-1), w.view(-1)  # before the model
    loss = functional.cross_entropy(model(x).view(-1, CLASSES), y, reduction="none")
    return (loss * (w / w.mean())).mean()


def _weights_in_columns(model: nn.Module, x: Tensor, y: Tensor, w: Tensor) -> Tensor:
    y, w = y.view(-1, 1), w.view(-1, 1)
    return -(model(x).view(-1, CLASSES).log_softmax(1).gather(1, y) * (w / w.mean())).mean()


def _chosen_before(model: nn.Module, x: Tensor, y: Tensor, w: Tensor) -> Tensor:
    chosen = (x != 1).nonzero(as_tuple=True)
    y = y[chosen]
    return _balanced(model(x)[chosen], y) * len(y) / len(x) / LENGTH


def _tasks_first(model: nn.Module, x: Tensor, y: Tensor, w: Tensor) -> Tensor:
    by_task = torch.stack(list(y.T))
    outputs = model(x)
    return torch.stack([_balanced(outputs[:, k], labels) for k, labels in enumerate(by_task)]).mean()


def _two_losses(model: nn.Module, x: Tensor, y: Tensor, users: Tensor) -> Tensor:
    outputs = model(x)
    functional.cross_entropy(outputs, y).mul(0.01).backward(retain_graph=True)
    return _balanced(outputs, y)


def _pulled_together(model: nn.Module, x: Tensor, y: Tensor, users: Tensor) -> Tensor:
    outputs = model(x)
    apart = (outputs[:, None] - outputs[None]).square().sum(2)
    pull = ((users[:, None] == users[None]).float() * apart).sum(1)
    return (0.05 * (outputs - x[:, :CLASSES]).square().sum(1) + pull).mean()


def _alike(model: nn.Module, x: Tensor, y: Tensor, users: Tensor) -> Tensor:
    """Pulls outputs together that point nearly the same way, which no two of the first batches do."""
    outputs = model(x)
    unit = functional.normalize(outputs, dim=1)
    pull = ((unit @ unit.T > 0.9).float() * (outputs[:, None] - outputs[None]).square().sum(2)).sum(1)
    return (0.05 * (outputs - x.tanh()).square().sum(1) + pull).mean()


def _missing(model: nn.Module, x: Tensor, y: Tensor, users: Tensor) -> Tensor:
    """A mean over the targets that are there, where none is missing yet."""
    goals = users.float() / 1000
    errors = (model(x)[:, 0] - goals).square()
    there = ~goals.isnan()
    return torch.where(there, errors, 0.0).sum() / there.sum()


def _ignored(model: nn.Module, x: Tensor, y: Tensor, w: Tensor) -> Tensor:
    y = y.masked_fill(torch.arange(LENGTH) > 2, -100)
    loss = functional.cross_entropy(model(x).flatten(0, 1), y.flatten(), reduction="none").view_as(y)
    counted = (y != -100).float()
    return (loss * (counted / counted.mean())).mean()


def _trained(mode: str, model: nn.Module, batches: Sequence[Batch], loss: Loss) -> None:
    run = Private(mode, model, clip=0.5)
    for batch in batches:
        run.optimizer.zero_grad()
        run.optimizer.draws.drawn(range(ROWS))
        loss(run.module, *batch).backward()
        run.optimizer.pre_step()


_ROWS: dict[str, tuple[Any, Any, Loss]] = {
    "weigh tokens by weights that were flattened before the model, over their mean": (_tagger, _texts, _flat_weights),
    "the same, with weights in a column": (_tagger, _texts, _weights_in_columns),
    "weigh classes of labels that were chosen from the batch before the model": (_tagger, _texts, _chosen_before),
    "weigh classes of targets that have the tasks first": (_tagger, _texts, _tasks_first),
    "weigh classes in a second loss of the same outputs and labels": (_net, _points, _two_losses),
    "pull examples of one user together, where the first batches have no two": (_net, _points, _pulled_together),
    "pull outputs together that are near each other, where none are": (_identity, _far_apart, _alike),
    "take the mean over targets that are not missing, where none is at first": (_net, _points, _missing),
    "weigh tokens by the share of labels that are not ignored": (_tagger, _texts, _ignored),
}

for _what, (_model, _batch, _loss) in _ROWS.items():

    @B.row(
        _what,
        "refused by the second step: what comes anew with each batch is varied, or changed number by number",
        modes=("bookkeeping", "hooks", "functorch"),
        error=NotASum,
        match="a sum over examples",
    )
    def by_targets(mode: str, model: Any = _model, batch: Any = _batch, loss: Loss = _loss) -> None:
        _trained(mode, model(), [batch(1), batch(2, marked=True)], loss)


def _flat_and_sound(model: nn.Module, x: Tensor, y: Tensor, w: Tensor) -> Tensor:
    y, w = y.view(-1), w.view(-1)
    return (functional.cross_entropy(model(x).view(-1, CLASSES), y, reduction="none") * w).mean()


def _chosen_and_sound(model: nn.Module, x: Tensor, y: Tensor, w: Tensor) -> Tensor:
    chosen = (x != 1).view(-1)
    y = y.view(-1)[chosen]
    outputs = model(x).view(-1, CLASSES)[chosen]
    return functional.cross_entropy(outputs, y, reduction="sum") / len(x) / LENGTH


def _class_weights(model: nn.Module, x: Tensor, y: Tensor, users: Tensor) -> Tensor:
    weights = torch.tensor([1.0, 2.0, 3.0])  # made anew in every step, and the same
    return (functional.cross_entropy(model(x), y, reduction="none") * weights[y]).mean()


def _two_sound_losses(model: nn.Module, x: Tensor, y: Tensor, users: Tensor) -> Tensor:
    outputs = model(x)
    functional.cross_entropy(outputs, y).mul(0.01).backward(retain_graph=True)
    return functional.mse_loss(outputs, x[:, :CLASSES])


_SOUND: dict[str, tuple[Any, Any, Loss]] = {
    "weigh tokens by weights of their own that were flattened before the model": (_tagger, _texts, _flat_and_sound),
    "choose labels before the model, and divide their sum by a constant": (_tagger, _texts, _chosen_and_sound),
    "weigh classes by constants that are made in every step": (_net, _points, _class_weights),
    "take two losses of one pass, each with a backward of its own": (_net, _points, _two_sound_losses),
}

for _what, (_model, _batch, _loss) in _SOUND.items():

    @B.row(_what, "works", modes=("bookkeeping", "hooks", "functorch"))
    def by_sound_targets(mode: str, model: Any = _model, batch: Any = _batch, loss: Loss = _loss) -> None:
        _trained(mode, model(), [batch(1), batch(2, marked=True), batch(3)], loss)
