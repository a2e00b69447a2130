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


class Flat(nn.Module):
    """Tokens in; outputs of all positions of all examples in one dimension, or with the positions first."""

    def __init__(self, positions_first: bool) -> None:
        super().__init__()
        self.tokens, self.head, self.positions_first = nn.Embedding(5, 8), nn.Linear(8, CLASSES), positions_first

    def forward(self, x: Tensor) -> Tensor:
        found = self.head(self.tokens(x))
        return found.transpose(0, 1) if self.positions_first else found.reshape(-1, CLASSES)


def _flat(mode: str, positions_first: bool, loss: Callable[[Tensor, Tensor], Tensor]) -> None:
    generator = torch.Generator().manual_seed(4)
    x, y = torch.randint(0, 5, (60, 6), generator=generator), torch.randint(0, CLASSES, (60, 6), generator=generator)
    run = Private(mode, Flat(positions_first), examples=TensorDataset(x, y))
    run.train(loss=lambda o, y: loss(o.reshape(-1, CLASSES), (y.t() if positions_first else y).reshape(-1)))
    assert len(run.engine.accountant) == 10


for _shape, _first in (("(B * T, V)", False), ("(T, B, V)", True)):

    @B.row(
        f"have a model return {_shape}, and train on its tokens above the batch's mean loss",
        "refused before the first step: which entries are an example's is found when the module is tried",
        modes=("bookkeeping", "hooks"),
        error=NotASum,
        match="changes with other examples",
    )
    def flat_coupled(mode: str, first: bool = _first) -> None:
        _flat(mode, first, lambda o, y: (_each(o, y) * (_each(o, y) > _each(o, y).mean())).mean())

    @B.row(f"have a model return {_shape}, and train on the mean of its tokens", "works", modes=("bookkeeping",))
    def flat_alone(mode: str, first: bool = _first) -> None:
        _flat(mode, first, functional.cross_entropy)


class Pooled(nn.Module):
    """Rows, and beside them something of the batch without any."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(FEATURES, CLASSES)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        found = self.linear(x)
        return found, found.mean(dim=0)


@B.row(
    "add a term of an output that has no rows (a mean over the batch) to the loss of one that has",
    "refused before the first step",
    modes=("bookkeeping", "hooks"),
    error=NotASum,
    match="a row for each example",
)
def pooled(mode: str) -> None:
    Private(mode, Pooled()).train(loss=lambda o, y: functional.cross_entropy(o[0], y) + o[1].square().mean())


@B.row(
    "train on the module's own mean over tokens, when few examples have ignored ones",
    "refused at the first batch that has such an example, whether it was among the rows that were tried or not",
    modes=("bookkeeping", "hooks"),
    error=NotASum,
    match="divides by|number that the module computes",
)
def own_rare(mode: str) -> None:
    x, y = _texts().tensors
    y = y.clamp(min=0)
    y[::20, 1:] = -1
    run = Private(mode, OwnLoss(logits_too=mode == "hooks"), examples=TensorDataset(x, y), sample_rate=1.0)
    _on_own_loss(run)


@B.row(
    "train on the module's own mean over tokens, where the last of every text is ignored (`labels=input_ids`)",
    "works: all examples have the same number",
    modes=("bookkeeping", "hooks"),
)
def own_shifted(mode: str) -> None:
    x, y = _texts().tensors
    y = y.clamp(min=0)
    y[:, -1] = -1
    _on_own_loss(Private(mode, OwnLoss(logits_too=True), examples=TensorDataset(x, y)))


@B.row(
    "have a loss of the batch's statistics in every fifth step",
    "refused at the first of them: every pass is recorded, and every new form of loss is tried",
    modes=("bookkeeping", "hooks"),
    error=NotASum,
    match="changes with other examples",
)
def now_and_then(mode: str) -> None:
    run = Private(mode, steps=30)
    for number, (x, y) in enumerate(run.loader):
        run.optimizer.zero_grad()
        losses = _each(run.module(x), y)
        odd = number >= 10 and number % 5 == 0
        (losses * (losses > losses.mean()) if odd else losses).mean().backward()
        run.optimizer.step()
        assert number < 10  # or it was not refused


def _running(outputs: Tensor, y: Tensor, counts: Tensor) -> Tensor:
    counts.mul_(0.9).add_(torch.bincount(y, minlength=CLASSES), alpha=0.1)
    return (_each(outputs, y) / counts[y]).mean()


class _Halved(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return 0.5 * gradients[0]


@B.row(
    "keep running weights of the classes, changed in place by every batch",
    "refused: a loss that cannot be computed once more was not tried",
    error=NotASum,
    match="could not be tried: it writes into",
)
def running_weights(mode: str) -> None:
    counts = torch.ones(CLASSES)
    Private(mode).train(loss=lambda o, y: _running(o, y, counts))


@B.row(
    "have a backward function of one's own in the loss (`torch.autograd.Function`)",
    "refused, likewise; `public_loss_weights=True` takes your word for it",
    modes=("bookkeeping", "hooks"),
    error=NotASum,
    match="could not be tried: its operations give another gradient",
)
def own_function(mode: str) -> None:
    def halved(outputs: Tensor, y: Tensor) -> Tensor:
        return functional.cross_entropy(_Halved.apply(outputs), y)

    Private(mode, public_loss_weights=True).train(loss=halved)
    Private(mode).train(loss=halved)


@B.row("write the loss as a loop over examples, or squeeze its rows away where a batch has one", "works")
def loops(mode: str) -> None:
    def focal(outputs: Tensor, y: Tensor) -> Tensor:
        losses = [functional.cross_entropy(o, t) for o, t in zip(outputs, y, strict=True)]
        return torch.stack([(1 - torch.exp(-one)) ** 2 * one for one in losses]).mean() if losses else outputs.sum()

    Private(mode).train(loss=focal)
    run = Private(mode, one_output(), examples=_two_classes(), sample_rate=0.02, steps=30)
    run.train(loss=lambda o, y: ((o.squeeze() - y.squeeze()) ** 2).mean())


@B.row(
    "flood the losses of pairs of examples (a clamp of what depends on two rows)",
    "refused: only a number that depends on one row is that row's",
    error=NotASum,
    match="Clamp acts on",
)
def pairs(mode: str) -> None:
    def loss(outputs: Tensor, y: Tensor) -> Tensor:
        losses = _each(outputs, y)
        return torch.stack([(losses[i] + losses[i - 1]).clamp(min=1e-3) for i in range(len(y))]).mean()

    Private(mode).train(loss=loss)
