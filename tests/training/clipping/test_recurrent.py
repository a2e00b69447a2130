"""Clipped sums of recurrent layers, as users write them, equal those of a loop over examples."""

from __future__ import annotations

import copy
import weakref
from typing import Any

import pytest
import torch
from tests.training.clipping.helpers import assert_equal_to_loop, by_books, squares, uses_ghost_norms
from tests.training.clipping.test_layers import normal
from tests.training.helpers import private, take_steps
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from torch.utils.data import TensorDataset

from plrvo.training import PrivacyEngine
from plrvo.training.clipping import SamplesModule
from plrvo.training.clipping.recurrent import is_recurrent
from plrvo.training.structure import tensors_in
from plrvo.validate import InvalidArgument

ROWS, LENGTH, WIDTH = 5, 4, 3
KINDS: dict[str, Any] = {
    "LSTM": nn.LSTM,
    "GRU": nn.GRU,
    "tanh": nn.RNN,
    "relu": lambda *a, **o: nn.RNN(*a, nonlinearity="relu", **o),
}
OPTIONS: dict[str, dict[str, Any]] = {
    "one layer": {},
    "two layers, both directions": {"num_layers": 2, "bidirectional": True},
    "no bias, both directions": {"bias": False, "bidirectional": True},
    "steps first": {"batch_first": False},
}


class Sequences(nn.Module):
    """Embedded inputs, so that gradients go through the layer; outputs and last states both reach the loss."""

    def __init__(self, kind: str, size: int = 4, **options: Any) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(4)
            self.into = nn.Linear(WIDTH, WIDTH)
            self.layer = KINDS[kind](WIDTH, size, **{"batch_first": True, **options})

    def forward(self, x: Tensor) -> Tensor:
        x = self.into(x)
        first = self.layer.batch_first
        outputs, state = self.layer(x if first else x.transpose(0, 1))
        outputs = outputs if first else outputs.transpose(0, 1)
        ends = [end.transpose(0, 1).flatten(1) for end in (state if isinstance(state, tuple) else (state,))]
        return torch.cat([outputs.flatten(1), *ends], dim=1)


class Packed(Sequences):
    """Of lengths that stand in front; `sort` says whether the layer sorts them."""

    def __init__(self, kind: str, sort: bool, **options: Any) -> None:
        super().__init__(kind, **options)
        self.sort = sort

    def forward(self, x: Tensor) -> Tensor:
        lengths = x[:, 0, 0].nan_to_num(1.0).clamp(1, LENGTH).long()
        packed = pack_padded_sequence(self.into(x[:, 1:]), lengths, batch_first=True, enforce_sorted=not self.sort)
        outputs, state = self.layer(packed)
        padded, _ = pad_packed_sequence(outputs, batch_first=True, total_length=LENGTH)
        ends = [end.transpose(0, 1).flatten(1) for end in (state if isinstance(state, tuple) else (state,))]
        return torch.cat([padded.flatten(1), *ends], dim=1)


def by_length(lengths: list[int]) -> Tensor:
    x = normal(len(lengths), LENGTH + 1, WIDTH)
    x[:, 0] = torch.tensor(lengths, dtype=torch.float32)[:, None]
    return x


def assert_gradients_of_a_loop(module: nn.Module, x: Tensor) -> None:
    """Without a try, whose rows need not be lengths, and which takes longer than all the rest."""
    wrapped = SamplesModule(copy.deepcopy(module))
    wrapped.watch.is_trying, wrapped._is_comparing = True, True
    found = wrapped._gradients(lambda: squares(wrapped(x)).sum(), len(x))
    wrapped.cleanup()
    for i in range(len(x)):
        expected = torch.autograd.grad(squares(module(x[i : i + 1])).sum(), list(module.parameters()))
        size = max(float(e.norm()) for e in expected)
        for p, e in zip(wrapped.parameters(), expected, strict=True):
            assert float((found[p][i] - e).norm()) <= 1e-5 * size


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_gradients_of_examples_equal_those_of_a_loop(kind: str, options: str) -> None:
    assert_gradients_of_a_loop(Sequences(kind, **OPTIONS[options]), normal(ROWS, LENGTH, WIDTH))


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_clipped_sums_equal_those_of_a_loop(kind: str) -> None:
    assert_equal_to_loop(Sequences(kind), normal(ROWS, LENGTH, WIDTH), 0.1)


def test_sums_from_ghost_norms_equal_those_of_a_loop() -> None:
    module, x = Sequences("LSTM", size=12), normal(ROWS, 2, WIDTH)
    assert uses_ghost_norms(module, x)
    assert_equal_to_loop(module, x, 1e6)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("clip", [0.5, 1e6])
def test_wide_layers_whose_products_are_large(kind: str, clip: float) -> None:
    """By the other of two libraries, and with one set of products for the weights of inputs and states."""
    module, x = Sequences(kind, size=200), normal(ROWS, LENGTH, WIDTH)
    assert ROWS * LENGTH * module.layer.weight_hh_l0.numel() >= (1 << 21 if kind in ("LSTM", "GRU") else 0)
    assert uses_ghost_norms(module, x)
    assert_equal_to_loop(module, x, clip)


@pytest.mark.parametrize("frozen", ["weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"])
def test_of_a_frozen_parameter_nothing_is_noted(frozen: str) -> None:
    module, x = Sequences("LSTM", size=12), normal(ROWS, 2, WIDTH)
    getattr(module.layer, frozen).requires_grad_(False)
    assert_equal_to_loop(module, x, 0.5)


@pytest.mark.parametrize("options", [{}, {"num_layers": 2, "bidirectional": True}], ids=["one", "two, both directions"])
@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
def test_projections_of_an_lstm(options: dict[str, Any]) -> None:
    assert_gradients_of_a_loop(Sequences("LSTM", proj_size=2, **options), normal(ROWS, LENGTH, WIDTH))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("options", [{}, {"num_layers": 2, "bidirectional": True}], ids=["one", "two, both directions"])
@pytest.mark.parametrize(("sort", "lengths"), [(False, [4, 4, 3, 2, 1]), (True, [2, 4, 1, 4, 3])])
def test_packed_sequences_in_the_order_of_the_batch(
    kind: str, options: dict[str, Any], sort: bool, lengths: list[int]
) -> None:
    assert_gradients_of_a_loop(Packed(kind, sort, **options), by_length(lengths))


def test_a_state_that_learns_gets_its_gradient() -> None:
    class Started(Sequences):
        def forward(self, x: Tensor) -> Tensor:
            state = self.into(x[:, 0])[None].repeat(1, 1, 2)[..., :4]
            return self.layer(x, (state, state))[0]

    assert_gradients_of_a_loop(Started("LSTM"), normal(ROWS, LENGTH, WIDTH))


def test_one_frozen_weight_stays_without_a_sum() -> None:
    module = Sequences("GRU")
    module.layer.weight_hh_l0.requires_grad_(False)
    assert_equal_to_loop(module, normal(ROWS, LENGTH, WIDTH), 0.1)


def test_dropout_between_layers_falls_in_the_step_as_it_fell_in_the_try() -> None:
    """The try compares with autograd through torch's own pass, so that other masks would be refused."""
    module = Sequences("LSTM", num_layers=2, dropout=0.5)
    assert all(s.isfinite().all() for s in by_books(module, normal(ROWS, LENGTH, WIDTH), 0.1))


@pytest.mark.parametrize("mode", ["auto", "hooks"])
def test_the_engine_trains_them_as_they_are(mode: str) -> None:
    module, x = nn.Sequential(Sequences("LSTM"), nn.Linear(24, 2)), normal(40, LENGTH, WIDTH)
    assert PrivacyEngine.is_compatible(module=module)
    names = list(module.state_dict())
    engine, model, optimizer, loss, loader = private(
        mode=mode, steps=3, module=module, data=TensorDataset(x, torch.arange(40) % 2)
    )
    assert engine.grad_sample_mode == ("bookkeeping" if mode == "auto" else "hooks")
    assert len(take_steps(model, optimizer, loss, loader)) == 3
    assert list(module.state_dict()) == names
    assert all(w is p for w, p in zip(module[0].layer._flat_weights, module[0].layer.parameters(), strict=True))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("goes_back", [True, False])
def test_nothing_of_a_pass_stays_when_its_outputs_are_gone(kind: str, goes_back: bool) -> None:
    """What a way back holds of its own outputs would hold it in turn: both would stay as long as the process."""
    wrapped, ends = SamplesModule(Sequences(kind, batch_first=False)), []
    wrapped.watch.is_trying, wrapped._is_comparing = True, True
    wrapped.book.batch_size = ROWS

    def look(_: nn.Module, args: Any, output: Any) -> None:
        ends.extend(weakref.ref(t) for t in tensors_in(output))

    wrapped._module.layer.register_forward_hook(look)
    outputs = wrapped(normal(ROWS, LENGTH, WIDTH))
    if goes_back:
        squares(outputs).sum().backward()
        wrapped.book.clear()
    del outputs
    assert ends
    assert all(end() is None for end in ends)


def test_a_compatible_module_keeps_them() -> None:
    module = nn.Sequential(nn.BatchNorm1d(4), nn.LSTM(3, 4))
    fixed = PrivacyEngine.get_compatible_module(module)
    assert [type(m) for m in fixed] == [nn.GroupNorm, nn.LSTM]


def test_one_sequence_is_no_batch() -> None:
    class Alone(Sequences):
        def forward(self, x: Tensor) -> Tensor:
            return self.layer(self.into(x))[0]

    wrapped = SamplesModule(Alone("GRU"))
    wrapped.watch.is_trying, wrapped._is_comparing = True, True
    with pytest.raises(InvalidArgument, match="a batch of sequences"):
        wrapped(normal(ROWS, WIDTH))


def test_layers_that_compute_something_else_have_no_rule() -> None:
    class Scaled(nn.LSTM):
        def forward(self, *args: Any) -> Any:
            return super().forward(2 * args[0], *args[1:])

    patched: Any = nn.GRU(3, 4)
    patched.forward = lambda x: x
    normed = nn.utils.parametrizations.weight_norm(nn.LSTM(3, 4), "weight_hh_l0")
    assert is_recurrent(nn.LSTM(3, 4))
    assert not any(map(is_recurrent, (Scaled(3, 4), patched, normed, nn.Linear(3, 4))))
