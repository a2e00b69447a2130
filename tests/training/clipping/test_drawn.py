"""Gradients by example are those of the pass that was, whatever it has drawn: for each example, for all, or both."""

import copy
from collections.abc import Callable

import pytest
import torch
from tests.training.clipping.helpers import squares
from tests.training.clipping.test_layers import normal, randomised
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from plrvo.training.clipping import SamplesModule
from plrvo.training.clipping.drawn import CannotRedraw, Drawing, Redrawing, by_example, for_all, for_any
from plrvo.training.clipping.mode import wrapper_of
from plrvo.training.clipping.samples import WholeModule
from plrvo.validate import InvalidArgument

ROWS, T, D = 4, 3, 6


class Drawer(nn.Module):
    """Linear layers, a table and a weight of its own around something that draws."""

    def __init__(self, draws: Callable[["Drawer", Tensor], Tensor]) -> None:
        super().__init__()
        self.draws, self.table, self.weight = draws, nn.Parameter(torch.ones(1, T, D)), nn.Parameter(torch.ones(D, D))
        self.first, self.looked_up, self.last = nn.Linear(D, D), nn.Embedding(T, D), nn.Linear(D, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.tanh(self.draws(self, self.first(x)))).sum(dim=1)


def attention(m: Drawer, x: Tensor) -> Tensor:
    return functional.scaled_dot_product_attention(x, x @ m.weight, x + m.table, dropout_p=0.3)


DRAWS = {
    "dropout of activations": lambda m, x: functional.dropout(x @ m.weight, 0.5),
    "dropout of a table": lambda m, x: x + functional.dropout(m.table, 0.5),
    "dropout of positions (T)": lambda m, x: x + functional.dropout(m.looked_up(torch.arange(T)), 0.5),
    "dropout of positions (1, T)": lambda m, x: x + functional.dropout(m.looked_up(torch.arange(T)[None]), 0.5),
    "DropConnect": lambda m, x: x @ functional.dropout(m.weight, 0.5),
    "mixout": lambda m, x: x @ torch.where(torch.bernoulli(torch.full_like(m.weight, 0.5)) > 0, m.weight, 0.3),
    "noise on a weight": lambda m, x: x @ (m.weight * torch.randn_like(m.weight)),
    "noise on a weight, in place": lambda m, x: x @ (m.weight * torch.empty(D, D).normal_()),
    "noise on a weight, and dropout": lambda m, x: functional.dropout(x @ (m.weight * torch.rand(D, D)), 0.5),
    "in place for all, and dropout": lambda m, x: functional.dropout(x @ (m.weight * torch.empty(D, D).normal_()), 0.5),
    "examples and positions in one": lambda m, x: functional.dropout((x @ m.weight).flatten(0, 1), 0.5).view_as(x),
    "dropout of channels": lambda m, x: functional.dropout1d(x @ m.weight, 0.5),
    "alpha dropout": lambda m, x: functional.alpha_dropout(x @ m.weight, 0.5, training=True),
    "rrelu": lambda m, x: functional.rrelu(x @ m.weight, training=True),
    "gumbel softmax": lambda m, x: functional.gumbel_softmax(x @ m.weight) * x,
    "dropout in attention": attention,
    "a layer that is left out": lambda m, x: x @ m.weight if torch.rand([]) < 0.5 else x,
    "a layer that is left out, and dropout": lambda m, x: functional.dropout(
        x @ m.weight if torch.rand([]) < 0.5 else x, 0.5
    ),
    "an order of features": lambda m, x: (x @ m.weight)[..., torch.randperm(D)],
    "nothing, by attention without dropout": lambda m, x: functional.scaled_dot_product_attention(x, x @ m.weight, x),
}


def gradients(kind: type, module: nn.Module, x: Tensor, seed: int) -> dict[str, Tensor]:
    """By example, without the comparison that the engine makes."""
    wrapped = kind(copy.deepcopy(module))
    wrapped.watch.is_trying, wrapped._is_comparing = True, True
    try:
        for rows in (ROWS, ROWS - 1, ROWS):  # as a try does, so that it is known what follows the rows
            torch.manual_seed(seed)
            found = wrapped._gradients(lambda n=rows: squares(wrapped(x[:n])).sum(), rows)
        return {name: found[p] for name, p in wrapped._module.named_parameters() if p in found}
    finally:
        wrapped.cleanup()


@pytest.mark.parametrize("kind", ["auto", "hooks", "functorch"])
@pytest.mark.parametrize("name", DRAWS)
def test_gradients_are_those_of_the_pass(name: str, kind: str) -> None:
    module, x = randomised(Drawer(DRAWS[name])), normal(ROWS, T, D)
    wrapper = wrapper_of("bookkeeping" if kind == "auto" else kind, module, kind)
    for seed in range(3):
        found = gradients(wrapper, module, x, seed)
        torch.manual_seed(seed)
        scores = squares(module(x))
        for row, score in enumerate(scores):
            expected = torch.autograd.grad(score, list(module.parameters()), retain_graph=True, allow_unused=True)
            for (parameter, _), e in zip(module.named_parameters(), expected, strict=True):
                own = found[parameter][row] if parameter in found else torch.zeros(())
                assert torch.allclose(own, torch.zeros(()) if e is None else e, rtol=1e-3, atol=1e-4), parameter


def one_by_one(m: Drawer, x: Tensor) -> Tensor:
    return torch.stack([functional.dropout(row @ m.weight, 0.5) for row in x])


def checkpointed(m: Drawer, x: Tensor) -> Tensor:
    return checkpoint(lambda t: functional.dropout(t @ m.weight, 0.5), x, use_reentrant=False)


def in_place(m: Drawer, x: Tensor) -> Tensor:
    return functional.rrelu(x @ m.weight, training=True, inplace=True)


@pytest.mark.parametrize("draws", [one_by_one, checkpointed, in_place])
@pytest.mark.parametrize("kind", [SamplesModule, WholeModule])
def test_what_cannot_be_handed_out_again_is_refused(kind: type, draws: Callable[..., Tensor]) -> None:
    with pytest.raises(InvalidArgument, match=r"that torch\.func can differentiate by example"):
        gradients(kind, randomised(Drawer(draws)), normal(ROWS, T, D), seed=0)


def test_each_example_has_its_rows_of_a_draw() -> None:
    numbers = torch.arange(24.0).view(2, 12)
    assert torch.equal(by_example(numbers, torch.Size((2, 3)), 4), numbers.view(2, 4, 3).transpose(0, 1))
    assert torch.equal(by_example(numbers, torch.Size((2, 12)), 4), numbers.expand(4, 2, 12))
    for shape in ((2, 4), (1, 3), (2, 12, 1), (24,)):
        with pytest.raises(CannotRedraw):
            by_example(numbers, torch.Size(shape), 4)


def test_a_pass_that_draws_more_less_or_otherwise_is_refused() -> None:
    (drawing := Drawing()).resume()
    torch.randn(2, 3)
    drawing.pause()
    torch.randn(7)  # which it does not hear
    assert [(kind, None if t is None else t.shape) for kind, t in drawing.drawn] == [("normal", (2, 3))]
    with Redrawing(drawing.drawn, for_any):
        assert torch.equal(torch.empty(2, 3).normal_(), drawing.drawn[0][1])
        with pytest.raises(CannotRedraw, match="not drawn that way"):
            torch.randn(2, 3)
    for draw in (lambda: torch.rand(2, 3), lambda: torch.randn(3)):
        with Redrawing(drawing.drawn, for_any), pytest.raises(CannotRedraw):
            draw()
    with Redrawing(drawing.drawn, for_all(5)), pytest.raises(CannotRedraw):
        torch.randn(2, 3)
    with pytest.raises(CannotRedraw, match="draws 0 times, and its batch 1"):
        Redrawing(drawing.drawn, for_any).end()
