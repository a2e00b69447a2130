"""B. Sensitivity that is what the clip says."""

from __future__ import annotations

import copy
import random
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from tests.misuse.row import Section
from tests.misuse.setting import CLASSES, CLIP, FEATURES, Private, data, effect_of_first, mlp
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import TensorDataset

from plrvo.training.draws import BatchMismatch
from plrvo.training.loss_form import NotASum
from plrvo.validate import InvalidArgument

B = Section("B. Sensitivity")
TOKENS = 16
# One example at the clip, floating-point dust, and half a cell a coordinate in exact mode.
WITHIN = 1 + 1e-3


class OnTokens(nn.Module):
    """A linear layer on all tokens of all examples as one long batch."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(FEATURES, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x.flatten(0, 1)).view(len(x), TOKENS, CLASSES).mean(dim=1)


def tokens() -> TensorDataset:
    generator = torch.Generator().manual_seed(4)
    x = torch.randn(60, TOKENS, FEATURES, generator=generator)
    return TensorDataset(x, torch.randint(0, CLASSES, (60,), generator=generator))


@B.row(
    "have a layer work on `x.flatten(0, 1)`, tokens of all examples in one row",
    "refused on the first batch: rows are not examples",
    modes=("bookkeeping", "hooks"),
    error=(BatchMismatch, RuntimeError, InvalidArgument),
    match="rows|by example",
)
def flattened(mode: str) -> None:
    Private(mode, OnTokens(), examples=tokens()).train()


@B.row(
    'the same with `grad_sample_mode="auto"`, or in exact mode',
    "works: the whole module is computed once more for each example, and a warning says so",
    modes=("auto", "exact"),
)
def flattened_in_auto(mode: str) -> None:
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        run = Private(mode, OnTokens(), examples=tokens())
        run.train()
    assert run.engine.grad_sample_mode == "functorch"
    assert any("functorch instead of" in str(w.message) for w in heard)


@B.row(
    "repeat every example eight times, for augmentation",
    "refused before the step: eight rows would be clipped for one example",
    error=BatchMismatch,
    match="rows in a step than its batch has",
)
def repeated(mode: str) -> None:
    run = Private(mode)
    for x, y in run.loader:
        run.optimizer.zero_grad()
        functional.cross_entropy(run.module(x.repeat(8, 1)), y.repeat(8)).backward()
        run.optimizer.step()


@B.row(
    "take half of the batch, or a batch and a bit",
    "refused before the step",
    error=BatchMismatch,
    match="rows in a step than its batch has",
)
def half(mode: str) -> None:
    run = Private(mode)
    for x, y in run.loader:
        run.optimizer.zero_grad()
        functional.cross_entropy(run.module(x[::2]), y[::2]).backward()
        run.optimizer.step()


@B.row(
    "run the model twice on the batch and sum both losses",
    "the example's whole gradient is clipped once, as for one loss",
)
def twice(mode: str) -> None:
    x, y = data().tensors

    def both(module: Any) -> Any:
        return lambda batch: (module(batch), module(2 * batch))

    found = []
    for start in (0, 1):
        run = Private(mode)
        found.append(
            run.released(
                x[start:20],
                y[start:20],
                loss=lambda o, y: functional.cross_entropy(o[0], y) + functional.cross_entropy(o[1], y),
                forward=both(run.module),
            )
        )
    assert float((found[0] - found[1]).norm()) <= CLIP * 1.01


def _loss_row(does: str, happens: str, loss: Any, match: str) -> None:
    @B.row(does, happens, error=RuntimeError, match=match)
    def attempt(mode: str) -> None:
        run = Private(mode)
        _MODELS[:] = [run.plain]
        run.train(loss=loss)


_HEAD = nn.Linear(CLASSES, CLASSES)
_MODELS: list[Any] = []


def _current() -> Any:
    """The first layer of the model that is trained at the moment."""
    return _MODELS[0][0]


def _relative(y: Tensor) -> Tensor:
    weights = torch.tensor([0.1, 1.0, 10.0])[y]
    return weights / weights.mean()


_loss_row(
    "weigh classes in the cross entropy (`weight=`) and take its mean",
    "refused: that mean divides by the weights of the batch",
    nn.CrossEntropyLoss(weight=torch.tensor([0.1, 1.0, 10.0])),
    "divides by",
)
_loss_row(
    "ignore some targets (`ignore_index`) and take the mean over the others",
    "refused: that mean divides by how many of the batch are left",
    nn.CrossEntropyLoss(ignore_index=1),
    "divides by",
)
_loss_row(
    "divide by the sum of a mask of the batch",
    "refused before the first step",
    lambda o, y: (functional.cross_entropy(o, y, reduction="none") * (y > 0)).sum() / (y > 0).sum(),
    "by the tensor|changes with other examples",
)
_loss_row(
    "multiply each loss by one over a count from the batch",
    "refused before the first step",
    lambda o, y: (functional.cross_entropy(o, y, reduction="none") * (1 / (y > 0).sum())).sum(),
    "changes with other examples",
)
_loss_row(
    "sum the losses and leave `loss_reduction='mean'`",
    "refused at the second batch: gradients would be scaled by its size",
    nn.CrossEntropyLoss(reduction="sum"),
    "it is a sum",
)
_loss_row(
    "take the root of the mean squared error",
    "refused: it is a function of all examples together",
    lambda o, y: functional.mse_loss(o, functional.one_hot(y, CLASSES).float()).sqrt(),
    "Sqrt acts on the loss of the whole batch",
)
_loss_row(
    "compare examples with each other (contrastive loss)",
    "refused",
    lambda o, y: functional.cross_entropy(o @ o.t(), torch.arange(len(o))),
    "changes with other examples",
)
_loss_row(
    "flood or clamp the batch's loss (`(loss - b).abs() + b`)",
    "refused: each example's gradient depends on all others",
    lambda o, y: (functional.cross_entropy(o, y) - 0.5).abs() + 0.5,
    "Abs acts on the loss of the whole batch",
)
_loss_row(
    "switch the loss off by its own value (`loss * (loss < b)`)",
    "refused",
    lambda o, y: functional.cross_entropy(o, y) * (functional.cross_entropy(o, y) < 2).float(),
    "by the tensor",
)
_loss_row(
    "weigh examples by weights that were divided by their mean in the batch",
    "refused: with other examples they are others",
    lambda o, y: (functional.cross_entropy(o, y, reduction="none") * _relative(y)).mean(),
    "changes with other examples",
)
_loss_row(
    "penalise weights in the loss",
    "refused: use the optimizer's weight_decay",
    lambda o, y: functional.cross_entropy(o, y) + 0.1 * _current().weight.square().sum(),
    "weight_decay",
)
_loss_row(
    "train a head outside of the private module with its outputs",
    "refused: it would learn without noise",
    lambda o, y: functional.cross_entropy(_HEAD(o), y),
    "outside of the module",
)
_loss_row(
    "change the module's outputs in place (`logits -= logits.mean(0)`)",
    "refused",
    lambda o, y: functional.cross_entropy(o.sub_(50 * o.mean(dim=0)), y),
    "changed in place|inplace|changes with other examples",
)
_loss_row(
    "call backward on the vector of losses with a gradient of one's own",
    "refused: the loss is one number",
    lambda o, y: _Vector(functional.cross_entropy(o, y, reduction="none")),
    "expected one number",
)


class _Vector:
    def __init__(self, losses: Tensor) -> None:
        self.losses = losses

    def backward(self) -> None:
        self.losses.backward(torch.rand(len(self.losses)))


@B.row("take gradients with `torch.autograd.grad` instead of `loss.backward()`", "refused: the loss was not seen",
       modes=("bookkeeping",), error=(NotASum, BatchMismatch), match="loss was not seen|other rows")  # fmt: skip
def by_grad(mode: str) -> None:
    run = Private(mode)
    for x, y in run.loader:
        run.optimizer.zero_grad()
        inputs = x.requires_grad_()
        torch.autograd.grad(functional.cross_entropy(run.module(inputs), y), [inputs])
        run.optimizer.step()


def _halved() -> nn.Module:
    return mlp().to(torch.bfloat16)


@B.row("train parameters in bfloat16 or float16", "refused in `make_private`",
       error=InvalidArgument, match="in bfloat16.*float32")  # fmt: skip
def half_precision(mode: str) -> None:
    Private(mode, _halved())


@B.row("compute under `torch.autocast` in bfloat16", "refused in the first pass", error=InvalidArgument,
       match=r"under torch\.autocast")  # fmt: skip
def autocast(mode: str) -> None:
    run = Private(mode)
    with torch.autocast("cpu", torch.bfloat16):
        run.train()


class _Knowing(nn.Module):
    """Its outputs know how many rows there are, or which number a row has."""

    def __init__(self, factor: Callable[[int], Any]) -> None:
        super().__init__()
        self.inner, self.factor = mlp(), factor

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.inner(x) * self.factor(len(x))
        return found


@B.row("divide by the number of rows inside of the module", "refused in the first pass", error=InvalidArgument,
       match="how many examples there are")  # fmt: skip
def divided_within(mode: str) -> None:
    Private(mode, _Knowing(lambda n: 1 / n)).train()


@B.row("treat rows by their number inside of the module", "refused in the first pass", error=InvalidArgument,
       match="its place in the batch")  # fmt: skip
def by_number(mode: str) -> None:
    Private(mode, _Knowing(lambda n: (torch.arange(n) % 2)[:, None] + 1.0)).train()


@B.row("lower torch's precision of float32 products", "refused in `make_private`", error=InvalidArgument,
       match="float32_matmul_precision")  # fmt: skip
def low_products(mode: str) -> None:
    torch.set_float32_matmul_precision("medium")
    try:
        Private(mode)
    finally:
        torch.set_float32_matmul_precision("highest")


def _odd_value(value: float) -> Any:
    def attempt(mode: str) -> None:
        x, y = (t[:20].clone() for t in data().tensors)
        x[0, 2] = value
        run = Private(mode)
        out = run.released(x, y)
        assert bool(torch.isfinite(out).all())
        assert effect_of_first(mode, x, y) <= WITHIN

    return attempt


for _name, _value in (("NaN", float("nan")), ("an infinity", float("inf")), ("1e20", 1e20), ("1e38", 1e38)):
    B.row(
        f"have {_name} among the features of one example",
        "that example contributes zero or its clip; the release stays finite",
    )(_odd_value(_value))


@B.row("have a loss that overflows for one example", "that example contributes zero")
def overflowing(mode: str) -> None:
    x, y = (t[:20].clone() for t in data().tensors)
    x[0] *= 1e30
    loss = _exponential
    assert bool(torch.isfinite(Private(mode).released(x, y, loss=loss)).all())
    assert effect_of_first(mode, x, y, loss=loss) <= WITHIN


def _exponential(o: Tensor, y: Tensor) -> Tensor:
    return (o.exp() * (1 + y[:, None])).sum(dim=1).mean()


class Normed(nn.Module):
    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        self.one, self.norm, self.two = nn.Linear(FEATURES, 8), norm, nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.two(self.norm(self.one(x)))


def _frozen(norm: nn.Module) -> nn.Module:
    for p in norm.parameters():
        p.requires_grad_(False)
    return norm


class Centred(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x - x.mean(dim=0)


class Remembers(nn.Module):
    """Keeps a moving mean of what it sees."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(8))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.mean += 0.1 * (x.detach().mean(dim=0) - self.mean)
        return x


class Cumulates(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.cumsum(dim=0)


class Dices(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x - random.random() * x.mean(dim=0)


class Flips(nn.Module):
    """Mixes if a coin of NumPy's says so."""

    def forward(self, x: Tensor) -> Tensor:
        return 0.5 * x + 0.5 * x.mean(dim=0) if np.random.rand() < 0.5 else x  # noqa: NPY002


class Guards(nn.Module):
    """Shrinks the batch where some number of it is large."""

    def forward(self, x: Tensor) -> Tensor:
        top = x.abs().max()
        return x * (100 / top) if top > 100 else x


class Repairs(nn.Module):
    """Gives up the batch where some number of it is none."""

    def forward(self, x: Tensor) -> Tensor:
        return x if bool(torch.isfinite(x).all()) else torch.zeros_like(x)


class RemembersInAParameter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mean = nn.Parameter(torch.zeros(8), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        self.mean.data.lerp_(x.detach().mean(dim=0), 0.1)
        return x


class RemembersInAnAttribute(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.kept = [torch.zeros(8)]

    def forward(self, x: Tensor) -> Tensor:
        self.kept[0].data.copy_(x.detach().mean(dim=0))
        return x


class RemembersANumber(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = 1.0

    def forward(self, x: Tensor) -> Tensor:
        self.scale = 0.9 * self.scale + 0.1 * float(x.detach().abs().max())
        return x


class PeeksABit(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + 1e-3 * x.mean(dim=0)


for _name, _norm, _match in (
    (
        "batch normalisation without affine parameters",
        lambda: nn.BatchNorm1d(8, affine=False),
        "norm|BatchNorm|buffers",
    ),
    ("batch normalisation with frozen parameters", lambda: _frozen(nn.BatchNorm1d(8)), "norm|BatchNorm|buffers"),
    (
        "batch normalisation without running statistics",
        lambda: nn.BatchNorm1d(8, affine=False, track_running_stats=False),
        "norm",
    ),
    ("a layer of one's own that subtracts the mean of the batch", Centred, r"norm \(Centred\) mixes"),
    ("a layer that adds a thousandth of the batch's mean", PeeksABit, r"norm \(PeeksABit\) mixes"),
    ("a buffer that learns from examples in `forward`", Remembers, "norm.mean changes"),
    ("a layer that lets rows see those before them", Cumulates, r"norm \(Cumulates\) mixes"),
    ("a mixing layer with randomness of Python's own", Dices, r"norm \(Dices\) mixes"),
    ("a layer that mixes with probability 1/2", Flips, r"norm \(Flips\) mixes"),
    ("a layer that scales the batch if a number of it is large", Guards, r"norm \(Guards\) mixes"),
    ("a layer that drops the batch if a number of it is none", Repairs, r"norm \(Repairs\) mixes"),
    ("a frozen parameter that learns from examples in `forward`", RemembersInAParameter, "changes norm.mean"),
    ("a tensor in a list that learns from examples in `forward`", RemembersInAnAttribute, "norm.kept changes"),
    ("a number that learns from examples in `forward`", RemembersANumber, "norm.scale changes"),
):

    @B.row(
        f"put {_name} into the model",
        "refused on the first batch, naming the layer",
        error=(InvalidArgument, NotImplementedError),
        match=_match,
    )
    def mixing(mode: str, norm: Any = _norm) -> None:
        Private(mode, Normed(norm())).train()


@B.row("compile the private module (`torch.compile`)", "refused on the first batch", error=InvalidArgument,
       match="torch.compile")  # fmt: skip
def compiled(mode: str) -> None:
    run = Private(mode)
    forward: Any = torch.compile(run.module, backend="eager")
    run.train(forward=forward.__call__)


class OverPadding(nn.Module):
    """A mean over all positions, padding among them."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(TOKENS, FEATURES), nn.Linear(FEATURES, CLASSES)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.words(ids).mean(dim=1))


def padded_sentences(longest: int, length: int | None = None) -> tuple[Tensor, Tensor]:
    """20 of them, padded by 0; the first is the longest."""
    generator = torch.Generator().manual_seed(longest)
    ids = torch.randint(1, TOKENS, (20, length or longest), generator=generator)
    lengths = torch.randint(2, 6, (20,), generator=generator)
    lengths[0] = longest
    ids[torch.arange(ids.shape[1]) >= lengths[:, None]] = 0
    return ids, torch.randint(0, CLASSES, (20,), generator=generator)


@B.row(
    "pad batches to their longest example, in a model that does not mask the padding",
    "refused at the first batch of another length: one long example changes what all others contribute",
    error=InvalidArgument,
    match="mask the padding",
)
def padded_to_the_longest(mode: str) -> None:
    run = Private(mode, OverPadding(), examples=TensorDataset(*padded_sentences(8)))
    for longest in (8, 16):
        run.released(*padded_sentences(longest))


@B.row("pad all batches to one length, in a model that does not mask the padding", "as it should be")
def padded_to_one_length(mode: str) -> None:
    run = Private(mode, OverPadding(), examples=TensorDataset(*padded_sentences(8, 16)))
    for longest in (8, 16):
        run.released(*padded_sentences(longest, 16))


class Scaled(nn.Module):
    """A parameter of its own beside other layers, and dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.drop, self.scale = nn.Linear(FEATURES, CLASSES), nn.Dropout(), nn.Parameter(torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        return self.scale * self.drop(self.linear(x))


@B.row(
    "give the model a bare parameter (positions, a class token, a temperature) beside dropout",
    "works, by gradients of each example",
    modes=("hooks", "exact"),
)
def bare_parameter(mode: str) -> None:
    Private(mode, Scaled()).train()


@B.row(
    "hand over a model in eval mode, as `from_pretrained` returns it",
    "refused in `make_private`: `module.train()`",
    error=InvalidArgument,
    match=r"in eval mode.*call module\.train\(\)",
)
def in_eval_mode(mode: str) -> None:
    Private(mode, mlp().eval())


class StartsLater(nn.Module):
    """Begins to learn from examples after some passes."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(8))
        self.starts = False

    def forward(self, x: Tensor) -> Tensor:
        if self.starts and torch.is_grad_enabled():
            self.mean += 0.1 * (x.detach().mean(dim=0) - self.mean)
        return x


@B.row(
    "have a buffer begin to learn from examples in mid-run",
    "refused at the first pass that changes it",
    error=InvalidArgument,
    match="norm.mean changes",
)
def starting_later(mode: str) -> None:
    module = Normed(StartsLater())
    run = Private(mode, module)
    run.train(3)
    module.norm.starts = True
    run.train(1)


@B.row("have embeddings with `max_norm`, which rescales rows that are looked up", "refused", error=InvalidArgument,
       match="max_norm")  # fmt: skip
def max_norm(mode: str) -> None:
    ids = TensorDataset(torch.arange(60)[:, None] % 9, data().tensors[1])
    module = nn.Sequential(nn.Embedding(9, 4, max_norm=0.1), nn.Flatten(), nn.Linear(4, CLASSES))
    Private("hooks" if mode == "bookkeeping" else mode, module, examples=ids).train()


@B.row("have instance normalisation with running statistics", "refused", error=(InvalidArgument, NotImplementedError))
def instance(mode: str) -> None:
    images = TensorDataset(torch.randn(60, 2, 4, 4), data().tensors[1])
    norm = nn.InstanceNorm2d(2, track_running_stats=True)
    Private(
        mode, nn.Sequential(nn.Conv2d(2, 2, 1), norm, nn.Flatten(), nn.Linear(32, CLASSES)), examples=images
    ).train()


@B.row(
    "hide a mixing layer behind a head that starts at zero",
    "refused: every layer's outputs are compared, not only the last",
    error=InvalidArgument,
    match=r"norm \(Centred\) mixes",
)
def zero_head(mode: str) -> None:
    module = Normed(Centred())
    nn.init.zeros_(module.two.weight)
    Private(mode, module).train()


@B.row(
    "replace a layer by a mixing one after the first batch",
    "refused on the next batch",
    error=InvalidArgument,
    match=r"norm \(Centred\) mixes",
)
def replaced(mode: str) -> None:
    module = Normed(nn.Identity())
    run = Private(mode, module)
    run.train(2)
    module.norm = Centred()
    run.train()


@B.row(
    "change the loss to a contrastive one after some steps",
    "refused at its first batch",
    error=NotASum,
    match="changes with other examples",
)
def later_contrast(mode: str) -> None:
    run = Private(mode)
    run.train(5)
    run.train(loss=lambda o, y: functional.cross_entropy(o @ o.t(), torch.arange(len(o))))


@B.row(
    "look at an input's gradient before the step (`torch.autograd.grad`)",
    "the step is as without it",
    modes=("bookkeeping",),
)
def saliency(mode: str) -> None:
    x, y = (t[:20] for t in data().tensors)
    one, other = Private(mode), Private(mode)

    def looking(batch: Tensor) -> Tensor:
        inputs = batch.clone().requires_grad_()
        outputs = other.module(inputs)
        torch.autograd.grad(outputs.sum(), inputs, retain_graph=True)
        return outputs

    assert torch.equal(one.released(x, y), other.released(x, y, forward=looking))


@B.row(
    "switch a frozen batch normalisation from eval() back to train() in mid-run",
    "refused on the first batch after it",
    error=InvalidArgument,
    match="norm",
)
def switched_back(mode: str) -> None:
    module = Normed(nn.BatchNorm1d(8, affine=False))
    run = Private(mode, module)
    module.norm.eval()
    run.train(2)
    module.norm.train()
    run.train()


class Cancels(nn.Module):
    """Positions whose contributions to the weight's gradient nearly cancel."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(64, 64, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x)


def _opposite(o: Tensor, y: Tensor) -> Tensor:
    weights = torch.ones(o.shape[1])
    weights[1::2] = -1
    return (o * weights[:, None] * torch.linspace(1, 2, 64)).sum(dim=(1, 2)).mean()


@B.row(
    "have examples whose positions cancel in the gradient (ghost norms round)",
    "the norm is bounded from above; where rounding could hide it, it is computed in doubles",
)
def cancelling(mode: str) -> None:
    generator = torch.Generator().manual_seed(8)
    x = torch.randn(6, 2, 64, generator=generator).repeat(1, 4, 1) * 1e4
    x[:, 1::2] = x[:, 0::2] + 1e-3 * torch.randn(6, 4, 64, generator=generator)
    y = torch.zeros(6, dtype=torch.long)
    module = Cancels()
    found = Private(mode, copy.deepcopy(module), examples=TensorDataset(x, y)).released(x[:1], y[:1], loss=_opposite)
    assert float(found.norm()) <= CLIP * 1.05  # of which u S, the dust of the sum itself, is the most


@B.row(
    "have tiny output gradients and huge inputs (products underflow)",
    "the norm is that of the product all the same",
)
def underflow(mode: str) -> None:
    x = torch.full((4, 2, 64), 1e28)
    y = torch.zeros(4, dtype=torch.long)
    run = Private(mode, Cancels(), examples=TensorDataset(x, y))
    out = run.released(x[:1], y[:1], loss=lambda o, y: (o * 1e-28).flatten(1).sum(dim=1).mean())
    assert 0 < float(out.norm()) <= CLIP * WITHIN


@B.row(
    "train on an example with a feature of 3e38",
    "it moves the release by its clip at most, or contributes zero; nothing becomes infinite",
)
def huge_feature(mode: str) -> None:
    x, y = (t[:20].clone() for t in data().tensors)
    x[0, 0] = 3e38
    assert effect_of_first(mode, x, y, nn.Linear(FEATURES, CLASSES)) <= WITHIN


@B.row(
    "train with a clip of 1e-25",
    "refused: singles would lose what is clipped",
    error=InvalidArgument,
    match="at least 1e-20|cell|grid",
)
def tiny_clip(mode: str) -> None:
    Private(mode, clip=1e-25)


class HookedGradient(nn.Module):
    """Has a hook on the gradient of its features."""

    def __init__(self, hook: Any) -> None:
        super().__init__()
        self.one, self.two, self.hook = nn.Linear(FEATURES, 8), nn.Linear(8, CLASSES), hook

    def forward(self, x: Tensor) -> Tensor:
        h = torch.tanh(self.one(x))
        if h.requires_grad:
            h.register_hook(self.hook)
        return self.two(h)


def _clipped_together(g: Tensor) -> Tensor:
    return g * min(1.0, 50 / (float(g.norm()) + 1e-9))


for _name, _hook in (
    ("clips the norm of the batch's gradient inside of the module", _clipped_together),
    ("takes the sign of gradients inside of the module", lambda g: 1e-4 * g.sign()),
):

    @B.row(
        f"register a hook that {_name}",
        "refused on the first batch: a row's gradient must scale with its own loss, and with no other",
        error=InvalidArgument,
        match="by row, and linearly",
    )
    def hooked_gradient(mode: str, hook: Any = _hook) -> None:
        Private(mode, HookedGradient(hook)).train()


@B.row(
    "put an encoder, or a prompt, in front of the private module, with an optimizer of its own",
    "refused at the step: it would learn without noise",
    error=NotASum,
    match="in front of the module",
)
def in_front(mode: str) -> None:
    run, prompt = Private(mode), torch.zeros(FEATURES, requires_grad=True)
    run.train(forward=lambda x: run.module(x + prompt))


@B.row(
    "train a generator through the private module between its steps (DP-GAN), or look for adversarial inputs",
    "works: those gradients of the private module are dropped before its step",
)
def generator_step(mode: str) -> None:
    run, generator = Private(mode), nn.Linear(2, FEATURES)
    for x, y in run.loader:
        run.optimizer.zero_grad()
        change = torch.zeros_like(x, requires_grad=True)
        functional.cross_entropy(run.module(x + change), y).backward()
        run.optimizer.zero_grad()
        functional.cross_entropy(run.module(x + 0.1 * change.grad.sign()), y).backward()
        run.optimizer.step()
        run.optimizer.zero_grad()
        run.module(generator(torch.randn(4, 2))).square().sum(dim=1).mean().backward()
    assert len(run.engine.accountant) == 10
    assert generator.weight.grad is not None
