"""Per-example gradients of layers without a rule: the clipped sums are those of a loop over the examples."""

import copy
from typing import Any

import pytest
import torch
from opacus.layers import DPLSTM
from opacus.optimizers import DPOptimizer
from tests.training.clipping.helpers import by_loop, call, squares
from tests.training.clipping.test_layers import normal, randomised
from tests.training.helpers import private, small_data, small_model, take_steps
from torch import nn
from torch.nn.utils import parametrizations, weight_norm
from torch.nn.utils.rnn import pack_padded_sequence

from plrvo.training.clipping import SamplesMixin, SamplesModule
from plrvo.training.clipping.again import Known, again
from plrvo.training.clipping.module import Inputs
from plrvo.validate import InvalidArgument

ROWS = 5


class Clipping(SamplesMixin, DPOptimizer):
    """Clips, adds no noise."""

    clipping = "flat"

    @property
    def clip(self) -> float:
        return self.max_grad_norm


def by_samples(module: nn.Module, x: Any, clip: float, batch_first: bool = True) -> list[torch.Tensor]:
    wrapped = SamplesModule(module, batch_first=batch_first)
    parameters = [p for p in module.parameters() if p.requires_grad]
    optimizer = Clipping(
        torch.optim.SGD(parameters, lr=0.1), noise_multiplier=0.0, max_grad_norm=clip, expected_batch_size=1
    )
    optimizer.keep(wrapped.book)
    squares(call(wrapped, x)).mean().backward()
    optimizer.clip_and_accumulate()
    wrapped.cleanup()
    return optimizer.sums


class Own(nn.Module):
    """A parameter of its own beside layers, as in vision transformers."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.token, self.linear = nn.Parameter(torch.zeros(1, 1, 6)), nn.Linear(6, 6)
        self.dropout, self.out = nn.Dropout(dropout), nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tokens = torch.cat([self.token.expand(len(x), -1, -1), x[:, None]], dim=1)
        return self.out(self.dropout(self.linear(tokens)).mean(dim=1))


class TwoInputs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.bilinear = nn.Bilinear(6, 6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.bilinear(x, x.roll(1, dims=1))


class TwoOutputs(nn.Module):
    """A layer with a parameter of its own that gives more than one output."""

    class Inner(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale, self.linear = nn.Parameter(torch.ones(6)), nn.Linear(6, 6)

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
            y = self.linear(x * self.scale)
            return y, {"square": y * y, "unused": y[:, 0]}

    def __init__(self) -> None:
        super().__init__()
        self.inner = self.Inner()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y, more = self.inner(x)
        return y + more["square"]


class Unused(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.unused, self.out = nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(x)


class Tied(nn.Module):
    """The parent owns the bias of its child."""

    def __init__(self) -> None:
        super().__init__()
        self.bias, self.out = nn.Parameter(torch.zeros(3)), nn.Linear(6, 3)
        self.out.bias = self.bias

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(x)


class Positions(nn.Module):
    """Position numbers that come once for all examples."""

    def __init__(self, dimensions: int) -> None:
        super().__init__()
        self.linear, self.positions, self.dimensions = nn.Linear(6, 4), nn.Embedding(6, 4), dimensions

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        ids = torch.arange(ROWS).view([1] * (self.dimensions - 1) + [ROWS])
        return torch.tanh(self.linear(x)[:, None] + self.positions(ids)).mean(dim=1)


MODULES = {
    "own parameter": Own,
    "two inputs": TwoInputs,
    "two outputs": TwoOutputs,
    "unused layer": Unused,
    "tied to a child": Tied,
    "positions (1, T)": lambda: Positions(2),
    "positions (T), as many as rows": lambda: Positions(1),
    "weight_norm": lambda: nn.Sequential(weight_norm(nn.Linear(6, 4)), nn.Linear(4, 3)),
    "parametrized": lambda: nn.Sequential(parametrizations.weight_norm(nn.Linear(6, 4)), nn.Linear(4, 3)),
    "changed in place": lambda: nn.Sequential(nn.Linear(6, 4), nn.ReLU(inplace=True), nn.Linear(4, 3)),
}


@pytest.mark.filterwarnings("ignore:.*weight_norm.*:FutureWarning", "ignore:There is a performance drop:UserWarning")
@pytest.mark.parametrize("clip", [1e-3, 1e4])
@pytest.mark.parametrize("name", MODULES)
def test_clipped_sums_are_those_of_a_loop(name: str, clip: float) -> None:
    module, x = randomised(MODULES[name]()), normal(ROWS, 6)
    for found, expected in zip(by_samples(module, x, clip), by_loop(module, x, clip), strict=True):
        assert torch.allclose(found, expected, rtol=1e-4, atol=1e-6 * float(expected.abs().max()))


def test_dropout_falls_as_it_fell_in_the_pass() -> None:
    """One example, whose clipped gradient is autograd's under the same seed, at a clip that does not clip."""
    module, x = randomised(Own(dropout=0.5)), normal(1, 6)
    torch.manual_seed(3)
    expected = torch.autograd.grad(squares(module(x)).mean(), list(module.parameters()))
    wrapped = SamplesModule(copy.deepcopy(module))
    wrapped(x)  # the pass on which it is tried out leaves the generator alone
    torch.manual_seed(3)
    squares(wrapped(x)).mean().backward()
    wrapped.watch.remove()
    for p, e in zip(wrapped.parameters(), expected, strict=True):
        assert torch.allclose(wrapped.book.contributions(p)[0].per_example()[0], e, rtol=1e-4, atol=1e-6)


def test_rows_of_a_packed_sequence_are_examples() -> None:
    class ByLength(nn.Module):
        """Rows sorted by their first number, which is their length."""

        def __init__(self) -> None:
            super().__init__()
            self.recurrent, self.out = DPLSTM(2, 4, batch_first=True), nn.Linear(4, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            lengths = x[:, 0].long()
            packed = pack_padded_sequence(x[:, 1:].view(len(x), 3, 2), lengths, batch_first=True)
            return self.out(self.recurrent(packed)[1][0][-1])

    module, x = ByLength(), normal(ROWS, 7)
    x[:, 0] = torch.tensor([3.0, 3.0, 3.0, 2.0, 1.0])
    wrapped = SamplesModule(copy.deepcopy(module))
    wrapped.watch.is_trying, wrapped._is_comparing = True, True  # the extremes of a try are no lengths
    found = wrapped._gradients(lambda: squares(wrapped(x)).sum(), ROWS)
    for i in range(ROWS):
        expected = torch.autograd.grad(squares(module(x[i : i + 1])).sum(), list(module.parameters()))
        for p, e in zip(wrapped.parameters(), expected, strict=True):
            assert torch.allclose(found[p][i], e, rtol=1e-4, atol=1e-6)
    assert not any(hasattr(layer, "max_batch_len") for layer in wrapped.modules())  # which is private
    wrapped.cleanup()


@pytest.mark.parametrize("mode", ["bookkeeping", "hooks"])
def test_a_pass_after_the_step_changes_nothing(mode: str) -> None:
    found = []
    for looks in (False, True):
        _, model, optimizer, loss, loader = private(mode=mode, steps=3)
        for x, y in loader:
            optimizer.zero_grad()
            loss(model(x), y).backward()
            optimizer.step()
            if looks:
                model(x).argmax(dim=1)
        found.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
    assert torch.equal(*found)


def test_nothing_of_a_batch_is_on_the_module_between_the_passes() -> None:
    _, model, optimizer, loss, loader = private(module=(module := small_model()))
    x, y = next(iter(loader))
    loss(model(x), y).backward()
    tensors = [v for m in module.modules() for v in vars(m).values() if isinstance(v, torch.Tensor)]
    tensors += [v for p in module.parameters() for v in vars(p).values() if isinstance(v, torch.Tensor)]
    assert not tensors
    assert optimizer.rows == len(x)


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_a_layer_that_values_decide_in_goes_in_a_loop(dropout: float) -> None:
    class Counts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(144))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = nn.functional.dropout(x, dropout)
            return x * self.scale if float(x.sum()) > 0 else self.scale * x  # the same, whatever others are

    module = small_model()
    module.insert(4, Counts())
    _, model, optimizer, loss, loader = private(module=module, data=small_data())
    take_steps(model, optimizer, loss, loader)  # its first batch is compared with autograd


def test_a_layer_whose_output_is_of_another_size_for_an_example_alone_is_refused() -> None:
    class Trimmed(nn.Module):
        """As wide as the largest number of its batch says."""

        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(6))

        def forward(self, x: torch.Tensor, widths: torch.Tensor) -> torch.Tensor:
            return (x * self.scale)[:, : int(widths.max())]

    layer, x, widths = Trimmed(), normal(ROWS, 6), torch.tensor([1, 2, 3, 4, 5])
    with pytest.raises(InvalidArgument, match="an example alone an output of the same size"):
        list(again(0, Known(), layer, Inputs((x, widths), {}), torch.ones(ROWS, 5)))
