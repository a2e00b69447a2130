"""B, continued. Losses that look at other examples, and losses that do not and must pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from tests.misuse.sensitivity import B
from tests.misuse.setting import CLASSES, FEATURES, Private, data, mlp
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import TensorDataset

from plrvo.training.loss_form import NotASum


def one_output() -> nn.Module:
    return nn.Sequential(nn.Linear(FEATURES, 8), nn.Tanh(), nn.Linear(8, 1))


def _two_classes() -> TensorDataset:
    x, y = data().tensors
    return TensorDataset(x, (y > 0).float())


def _ranking(scores: Tensor, y: Tensor) -> Tensor:
    s = scores.squeeze(1)
    return functional.relu(1 - (s[y > 0][:, None] - s[y == 0][None])).sum()


def _each(outputs: Tensor, y: Tensor) -> Tensor:
    return functional.cross_entropy(outputs, y, reduction="none")


def _hard(outputs: Tensor, y: Tensor) -> Tensor:
    losses = _each(outputs, y)
    return losses.topk(min(8, len(losses))).values.sum()


def _above_the_mean(outputs: Tensor, y: Tensor) -> Tensor:
    losses = _each(outputs, y)
    return losses[losses > losses.mean()].sum()


def _contrastive(outputs: Tensor, y: Tensor) -> Tensor:
    distance, same = torch.cdist(outputs, outputs, p=1), (y[:, None] == y[None]).float()
    return (same * distance + (1 - same) * functional.relu(1 - distance)).sum()


def _rare_classes_first(outputs: Tensor, y: Tensor) -> Tensor:
    return (_each(outputs, y) / torch.bincount(y, minlength=CLASSES)[y]).sum()


def _relative_to_the_batch(outputs: Tensor, y: Tensor) -> Tensor:
    losses = _each(outputs, y)
    return (losses * losses.detach() / losses.detach().mean()).sum()


def _balanced(scores: Tensor, y: Tensor) -> Tensor:
    weight = (y == 0).sum() / (y == 1).sum()
    return functional.binary_cross_entropy_with_logits(scores.squeeze(1), y, pos_weight=weight, reduction="sum")


def _all_against_all(scores: Tensor, y: Tensor) -> Tensor:
    return (scores - y).square().sum()  # (B, 1) against (B,)


_LOOKING: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], bool]] = {
    "a ranking loss over pairs (AUC, hinge)": (_ranking, True),
    "train on the hardest eight of a batch": (_hard, False),
    "train on those above the batch's mean loss": (_above_the_mean, False),
    "contrast examples of a batch by l1 distances": (_contrastive, False),
    "weigh examples by the classes in the batch (`bincount`)": (_rare_classes_first, False),
    "weigh losses relative to the batch's mean, detached": (_relative_to_the_batch, False),
    "take `pos_weight` from the labels of the batch": (_balanced, True),
    "subtract targets (B,) from outputs (B, 1), so that all meet all": (_all_against_all, True),
}


def _looking(loss: Any, binary: bool) -> Callable[[str], None]:
    def attempt(mode: str) -> None:
        module, examples = (one_output(), _two_classes()) if binary else (mlp(), data())
        Private(mode, module, examples=examples, loss_reduction="sum").train(loss=loss)

    return attempt


for _does, (_loss, _binary) in _LOOKING.items():
    B.row(
        _does,
        "refused before the first step: the loss is computed once more with other examples, and one example's gradient "
        "changes",
        error=NotASum,
        match="changes with other examples",
    )(_looking(_loss, _binary))


def _same_class(outputs: Tensor, y: Tensor) -> Tensor:
    """Examples of one class attract each other, but for class 0."""
    same = ((y[:, None] == y[None]) & (y > 0)[:, None]).float()
    return (same * torch.cdist(outputs, outputs).square()).sum()


@B.row(
    "have only some examples attract each other, on data sorted by class",
    "refused: rows are tried at random",
    error=NotASum,
    match="changes with other examples",
)
def some_only(mode: str) -> None:
    x, y = data().tensors
    order = y.argsort()
    examples = TensorDataset(x[order], y[order])
    Private(mode, examples=examples, loss_reduction="sum", steps=40).train(loss=_same_class)


@B.row(
    "switch a contrastive term on after some steps, with `public_loss_weights=True`",
    "refused at the step in which it first counts, or by chance soon after",
    modes=("bookkeeping", "hooks"),
    error=NotASum,
    match="changes with other examples",
)
def later(mode: str) -> None:
    run, weight = Private(mode, loss_reduction="sum", public_loss_weights=True), iter([0.0] * 5 + [1.0] * 5)

    def loss(outputs: Tensor, y: Tensor) -> Tensor:
        return _each(outputs, y).sum() + next(weight) * _contrastive(outputs, y)

    run.train(loss=loss)


class OwnLoss(nn.Module):
    """Tokens in, and a loss of its own out: a mean over all tokens that are not to be ignored."""

    def __init__(self, logits_too: bool, by_example: bool = False) -> None:
        super().__init__()
        self.tokens, self.head = nn.Embedding(5, 8), nn.Linear(8, 5)
        self.logits_too, self.by_example = logits_too, by_example

    def forward(self, x: Tensor, y: Tensor) -> Any:
        logits = self.head(self.tokens(x))
        if self.by_example:
            loss = functional.cross_entropy(logits.mean(dim=1), y[:, 0])
        else:
            loss = functional.cross_entropy(logits.flatten(0, 1), y.flatten(), ignore_index=-1)
        return (logits, loss) if self.logits_too else loss


def _texts() -> TensorDataset:
    generator = torch.Generator().manual_seed(4)
    x = torch.randint(0, 5, (60, 6), generator=generator)
    y = torch.randint(0, 5, (60, 6), generator=generator)
    kept = torch.arange(6) < torch.randint(1, 7, (60, 1), generator=generator)
    return TensorDataset(x, torch.where(kept, y, -1))


def _on_own_loss(run: Private) -> None:
    for x, y in run.loader:
        run.optimizer.zero_grad()
        found = run.module(x, y)
        (found[1] if isinstance(found, tuple) else found).backward()
        run.optimizer.step()


@B.row(
    "train on the loss that the module returns, a mean over tokens that are not ignored (nanoGPT, HF's `.loss`)",
    "refused before the first step, whether logits are returned beside it or not",
    modes=("bookkeeping", "hooks"),
    error=NotASum,
    match="number that the module computes",
)
def own_token_mean(mode: str) -> None:
    _on_own_loss(Private(mode, OwnLoss(logits_too=mode == "bookkeeping"), examples=_texts()))


@B.row(
    "train on the loss that the module returns, the mean over its examples",
    "works",
    modes=("bookkeeping", "hooks"),
)
def own_mean(mode: str) -> None:
    for logits_too in (True, False):
        x, y = _texts().tensors
        module = OwnLoss(logits_too, by_example=True)
        run = Private(mode, module, examples=TensorDataset(x, y.clamp(min=0)))
        _on_own_loss(run)
        assert len(run.engine.accountant) == 10


@B.row(
    "learn weights of the losses in a tensor of your own (`torch.zeros(3, requires_grad=True)`)",
    "refused: it would learn without noise",
    error=NotASum,
    match="wants a gradient",
)
def kendall(mode: str) -> None:
    variance = torch.zeros(CLASSES, requires_grad=True)
    Private(mode).train(loss=lambda outputs, y: (_each(outputs, y) * torch.exp(-variance)[y]).mean())


@B.row(
    "write constants as whole numbers, weigh classes, smooth labels, mask a rare task, call backward() twice",
    "works: what looks at each example alone passes",
)
def ordinary(mode: str) -> None:
    weights, rare = torch.tensor([0.5, 1.5, 1.0]), torch.rand(CLASSES) < 0.5
    losses: list[Callable[[Tensor, Tensor], Tensor]] = [
        lambda o, y: functional.cross_entropy(o, y) / 2,
        lambda o, y: 2 * functional.cross_entropy(o, y),
        lambda o, y: (weights[y] * _each(o, y)).mean(),
        lambda o, y: functional.cross_entropy(o, y, label_smoothing=0.1),
        lambda o, y: functional.cross_entropy(o, y) + (rare[y] * o[:, 0].square()).mean(),
        lambda o, y: functional.cross_entropy(functional.dropout(o, 0.2), y),
        lambda o, y: ((1 - torch.exp(-_each(o, y))) ** 2 * _each(o, y)).mean(),
    ]
    for loss in losses:
        run = Private(mode)
        run.train(loss=loss)
        assert len(run.engine.accountant) == 10
    run = Private(mode)
    for x, y in run.loader:
        run.optimizer.zero_grad()
        outputs = run.module(x)
        functional.cross_entropy(outputs, y).backward(retain_graph=True)
        if mode == "bookkeeping":
            (0.3 * outputs.square().mean()).backward()
        run.optimizer.step()
