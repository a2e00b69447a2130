"""Every supported layer, on random shapes: the clipped sum equals that of a loop over examples, to 1e-5 of its norm."""

import copy
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.misuse.setting import CLASSES, CLIP, Private
from tests.training.clipping.helpers import assert_equal_to_loop, by_books
from torch import nn
from transformers.models.llama.modeling_llama import LlamaRMSNorm
from transformers.models.t5.modeling_t5 import T5LayerNorm
from transformers.pytorch_utils import Conv1D

from plrvo.training.clipping import layers
from plrvo.training.clipping.layers import rule_of
from plrvo.validate import InvalidArgument

quick = settings(max_examples=25, deadline=None)
clips = st.sampled_from([1e-3, 1.0, 1e4])  # all clipped, some, none
examples = st.integers(0, 5)


def randomised(module: nn.Module, seed: int = 0) -> nn.Module:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in module.parameters():
            p.copy_(torch.randn(p.shape, generator=generator) * 0.5)
    return module


def normal(*shape: int, seed: int = 1) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@quick
@given(examples, st.lists(st.integers(1, 7), max_size=2), st.integers(1, 9), st.integers(1, 9), st.booleans(), clips)
def test_linear(count: int, positions: list[int], inputs: int, outputs: int, bias: bool, clip: float) -> None:
    assert_equal_to_loop(randomised(nn.Linear(inputs, outputs, bias=bias)), normal(count, *positions, inputs), clip)


@quick
@given(st.data(), examples, st.sampled_from([1, 2, 3]), st.integers(1, 3), st.booleans(), clips)
def test_convolution(data: st.DataObject, count: int, dimensions: int, groups: int, bias: bool, clip: float) -> None:
    """Strides, dilations, groups and every kind of padding, in one to three dimensions."""
    kind: Any = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[dimensions - 1]
    sizes = st.tuples(*[st.integers(1, 3)] * dimensions)
    kernel, stride, dilation = data.draw(sizes), data.draw(sizes), data.draw(sizes)
    padding: Any = data.draw(
        st.one_of(st.tuples(*[st.integers(0, 2)] * dimensions), st.sampled_from(["same", "valid"]))
    )
    if padding == "same":
        stride = (1,) * dimensions
    mode = data.draw(st.sampled_from(["zeros", "reflect", "replicate", "circular"]))
    module = kind(
        groups * data.draw(st.integers(1, 3)), groups * data.draw(st.integers(1, 3)), kernel,
        stride=stride, dilation=dilation, padding=padding, padding_mode=mode, groups=groups, bias=bias,
    )  # fmt: skip
    size = [data.draw(st.integers(7, 9)) for _ in range(dimensions)]
    if count == 0 and mode != "zeros":
        count = 1  # torch itself refuses to pad an empty batch so
    assert_equal_to_loop(randomised(module), normal(count, module.in_channels, *size), clip)


@pytest.mark.parametrize("clip", [1e-3, 1.0, 1e4])
@pytest.mark.parametrize(
    ("channels", "size", "count"),
    [((3, 64), 20, 3), ((64, 64), 12, 2), ((96, 128), 3, 3), ((32, 16), 40, 2)],
    ids=["windows", "ghost-or-windows", "ghost", "kernel"],
)
def test_convolutions_of_every_form(channels: tuple[int, int], size: int, count: int, clip: float) -> None:
    assert_equal_to_loop(randomised(nn.Conv2d(*channels, 3, padding=1)), normal(count, channels[0], size, size), clip)


IN_GROUPS = {
    "strides": (nn.Conv2d(4, 3, 3, stride=2, padding=1), (9, 8)),
    "dilations, other padding": (nn.Conv2d(4, 3, (2, 3), dilation=2, padding=2, padding_mode="circular"), (9, 9)),
    "the same size": (nn.Conv2d(2, 5, (5, 3), padding="same"), (7, 7)),
    "one dimension, groups": (nn.Conv1d(4, 6, 3, groups=2), (30,)),
    "three dimensions": (nn.Conv3d(2, 3, 2), (5, 6, 4)),
    "transposed": (nn.ConvTranspose2d(3, 4, 3, stride=2, padding=1, output_padding=1), (6, 6)),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("count", [1, 5])
@pytest.mark.parametrize("name", IN_GROUPS)
def test_convolutions_of_all_examples_in_groups(
    name: str, count: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In bands of two examples, and a rest."""
    layer, size = IN_GROUPS[name]
    for constant, value in (("_WORK_OF_GROUPS", 0), ("_CHANNELS", 1), ("_BAND", 2 * layer.weight.numel())):
        monkeypatch.setattr(layers, constant, value)
    module = randomised(copy.deepcopy(layer)).to(dtype)
    x = normal(count, layer.in_channels, *size).to(dtype)
    assert layers._is_for_groups(layer, x, 1) == (dtype == torch.float32)
    assert_equal_to_loop(module, x, 0.5)
    assert_equal_to_loop(module, x, 1e4)


@pytest.mark.parametrize("count", [1, 2, 5])
@pytest.mark.parametrize("name", ["strides", "dilations, other padding", "the same size", "three dimensions"])
def test_windows_of_some_examples_at_a_time_give_the_gradients_of_all(
    name: str, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In bands of two examples, and a rest; of one, where not even its windows fit."""
    layer, size = IN_GROUPS[name]
    module, x = randomised(copy.deepcopy(layer)), normal(count, layer.in_channels, *size)
    g = normal(*module(x).shape, seed=2)
    expected = layers._by_windows(module, x, g)
    windows = g[0, 0].numel() * layer.weight[0].numel()
    for most in (2 * windows, 1):
        monkeypatch.setattr(layers, "_WINDOWS", most)
        assert torch.allclose(layers._by_windows(module, x, g), expected, rtol=1e-6, atol=1e-6)
    monkeypatch.setattr(layers, "_WORK_OF_A_KERNEL", 1 << 40)
    assert_equal_to_loop(module, x, 0.5)


def test_an_example_with_infinite_numbers_leaves_others_of_its_band_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layers, "_WORK_OF_GROUPS", 0)
    layer, x = randomised(nn.Conv2d(16, 16, 3)), normal(3, 16, 9, 9)
    g = normal(3, 16, 7, 7, seed=2)
    assert layers._is_for_groups(layer, x, 49)
    expected = layers._by_groups(layer, x, g)
    x[1, 0, 0, 0] = torch.inf
    assert torch.equal(layers._by_groups(layer, x, g)[[0, 2]], expected[[0, 2]])


@quick
@given(st.data(), examples, st.sampled_from([1, 2, 3]), st.integers(1, 3), st.booleans(), clips)
def test_transposed_convolution(
    data: st.DataObject, count: int, dimensions: int, groups: int, bias: bool, clip: float
) -> None:
    kind: Any = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)[dimensions - 1]
    sizes = st.tuples(*[st.integers(1, 3)] * dimensions)
    stride, dilation = data.draw(sizes), data.draw(sizes)
    module = kind(
        groups * data.draw(st.integers(1, 3)), groups * data.draw(st.integers(1, 3)), data.draw(sizes),
        stride=stride, dilation=dilation, padding=data.draw(st.tuples(*[st.integers(0, 1)] * dimensions)),
        output_padding=tuple(data.draw(st.integers(0, max(both) - 1)) for both in zip(stride, dilation, strict=True)),
        groups=groups, bias=bias,
    )  # fmt: skip
    size = [data.draw(st.integers(3, 5)) for _ in range(dimensions)]
    assert_equal_to_loop(randomised(module), normal(max(count, 1), module.in_channels, *size), clip)


@quick
@given(examples, st.lists(st.integers(1, 5), max_size=2), st.integers(1, 4), st.booleans(), clips)
def test_prelu(count: int, positions: list[int], channels: int, shared: bool, clip: float) -> None:
    def rising(output: torch.Tensor) -> torch.Tensor:
        """So that no two examples cancel in a parameter of one number: their sum would be told worse than they are."""
        return (output * torch.linspace(1, 2, output[0:1].numel()).view(output.shape[1:])).flatten(1).sum(dim=1)

    module = randomised(nn.PReLU(1 if shared else channels))
    assert_equal_to_loop(module, normal(max(count, 1), channels, *positions), clip, rising)


@quick
@given(examples, st.lists(st.integers(1, 6), max_size=2), st.integers(2, 6), st.integers(1, 8), st.booleans(), clips)
def test_embedding(count: int, positions: list[int], rows: int, columns: int, padding: bool, clip: float) -> None:
    module = randomised(nn.Embedding(rows, columns, padding_idx=1 if padding else None))
    tokens = torch.randint(0, rows, (count, *positions), generator=torch.Generator().manual_seed(2))
    assert_equal_to_loop(module, tokens, clip)


@quick
@given(examples, st.lists(st.integers(1, 5), max_size=2), st.lists(st.integers(1, 5), min_size=1, max_size=2), clips)
def test_layer_norm(count: int, positions: list[int], shape: list[int], clip: float) -> None:
    assert_equal_to_loop(randomised(nn.LayerNorm(shape)), normal(count, *positions, *shape), clip)


@quick
@given(examples, st.integers(1, 5), st.integers(2, 8), clips)
@pytest.mark.parametrize("kind", [nn.RMSNorm, LlamaRMSNorm, T5LayerNorm])
def test_rms_norm(kind: Any, count: int, positions: int, columns: int, clip: float) -> None:
    assert_equal_to_loop(randomised(kind(columns)), normal(count, positions, columns), clip)


@quick
@given(examples, st.integers(1, 3), st.integers(1, 3), st.lists(st.integers(2, 4), max_size=3), clips)
def test_group_norm(count: int, groups: int, each: int, size: list[int], clip: float) -> None:
    if each * max(1, sum(size)) < 2:
        each = 2  # one value a group has no spread
    module = randomised(nn.GroupNorm(groups, groups * each))
    assert_equal_to_loop(module, normal(count, groups * each, *size), clip)


@pytest.mark.parametrize(
    ("kind", "size"), [(nn.InstanceNorm1d, [5]), (nn.InstanceNorm2d, [4, 3]), (nn.InstanceNorm3d, [2, 3, 2])]
)
def test_instance_norm(kind: Any, size: list[int]) -> None:
    assert_equal_to_loop(randomised(kind(3, affine=True)), normal(4, 3, *size), 1.0)


@quick
@given(examples, st.integers(1, 5), st.integers(1, 8), st.integers(1, 8), clips)
def test_the_transposed_linear_layer_of_gpt2(
    count: int, positions: int, inputs: int, outputs: int, clip: float
) -> None:
    assert_equal_to_loop(randomised(Conv1D(outputs, inputs)), normal(count, positions, inputs), clip)


@pytest.mark.parametrize("frozen", ["weight", "bias"])
@pytest.mark.parametrize(
    ("module", "shape"),
    [
        (nn.Linear(4, 3), (5, 2, 4)),
        (nn.Conv2d(2, 3, 2), (5, 2, 4, 4)),
        (nn.LayerNorm(4), (5, 2, 4)),
        (nn.GroupNorm(2, 4), (5, 4, 3)),
        (Conv1D(3, 4), (5, 2, 4)),
    ],
    ids=lambda m: type(m).__name__,
)
def test_frozen_parameters_get_nothing(module: nn.Module, shape: tuple[int, ...], frozen: str) -> None:
    for name, p in module.named_parameters():
        p.requires_grad_(name != frozen)
    assert_equal_to_loop(randomised(module), normal(*shape), 1.0)


def test_doubles() -> None:
    module = randomised(nn.Sequential(nn.Conv1d(2, 4, 3), nn.GELU(), nn.Flatten(), nn.Linear(24, 3))).double()
    assert_equal_to_loop(module, normal(4, 2, 8).double(), 1.0, rel=1e-9)


class Mixed(nn.Module):
    """A part in halves beneath one in singles."""

    def __init__(self) -> None:
        super().__init__()
        self.low = nn.Linear(6, 5, dtype=torch.bfloat16)
        self.high = nn.Linear(5, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.high(self.low(x.bfloat16()).float())


@pytest.mark.parametrize("frozen", [False, True])
def test_layers_in_halves_are_refused(frozen: bool) -> None:
    """One example more rounds all others otherwise; of many equal ones, that adds up to more than a clip."""
    module = randomised(Mixed())
    module.low.requires_grad_(not frozen)
    with pytest.raises(InvalidArgument, match=r"low \(Linear\) in halves"):
        by_books(module, normal(4, 6), 1.0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_is_refused(dtype: torch.dtype) -> None:
    module = randomised(nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 2)))
    with torch.autocast("cpu", dtype=dtype), pytest.raises(InvalidArgument, match=r"under torch\.autocast"):
        by_books(module, normal(4, 6), 1.0)


@pytest.mark.parametrize(
    "layer",
    [
        nn.Embedding(4, 3, max_norm=1.0),
        nn.Embedding(4, 3, scale_grad_by_freq=True),
        nn.InstanceNorm1d(3, affine=True, track_running_stats=True),
        nn.Bilinear(2, 2, 2),
        nn.RNNCell(2, 2),
    ],
    ids=lambda m: type(m).__name__,
)
def test_layers_without_a_rule(layer: nn.Module) -> None:
    assert rule_of(layer) is None


def test_a_layer_that_computes_something_else_has_no_rule() -> None:
    class Doubled(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return 2 * super().forward(x)

    class StrangeRMSNorm(nn.RMSNorm):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) + self.weight

    assert rule_of(Doubled(2, 2)) is None
    assert rule_of(StrangeRMSNorm(4)) is None


@pytest.mark.parametrize("mode", ["auto", "hooks", "functorch"])
def test_an_embedding_with_sparse_gradients_is_as_one_without(mode: str) -> None:
    """Sums have noise in every row, so that nothing of it would stay sparse."""
    x, y = torch.arange(24).view(8, 3) % 5, torch.arange(8) % CLASSES
    found = []
    for sparse in (True, False):
        module = nn.Sequential(nn.Embedding(9, 4, sparse=sparse), nn.Flatten(), nn.Linear(12, CLASSES))
        found.append(Private(mode, randomised(module)).released(x, y))
    assert float((found[0] - found[1]).norm()) < 1e-4 * CLIP
