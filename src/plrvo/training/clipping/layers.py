"""Which contributions each kind of layer makes to the gradients of its parameters.

A rule takes the layer, its input and its output gradient, and gives a contribution for each trainable parameter. Layers
of other libraries that are known by their form (GPT-2's `Conv1D`, Llama's and T5's root-mean-square norms) are
believed only after their rule has been compared with autograd on random numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import torch
from opacus.layers.dp_rnn import RNNLinear
from torch import Tensor, nn
from torch.nn import functional

from plrvo.training.clipping.bags import embedding_bag
from plrvo.training.clipping.contributions import (
    Contribution,
    PerExample,
    Tokens,
    is_direct,
    outer,
    rows_of_positions,
)
from plrvo.training.clipping.convolution import Convolution

Contributions = Iterator[tuple[nn.Parameter, Contribution]]
# Of a layer, its input, its output gradient and further inputs. Layers are typed loosely: their options differ.
Rule = Callable[..., Contributions]

# From so many products an example on, torch's own kernel is faster one example at a time than a product of windows.
_WORK_OF_A_KERNEL = 1 << 22
# From so many products and channels on, those of all examples at once are faster than either.
_WORK_OF_GROUPS, _CHANNELS = 1 << 24, 8
_BAND = 1 << 19  # numbers of gradients that are computed at once
_WINDOWS = 1 << 18  # and of windows


def _trains(parameter: nn.Parameter | None) -> bool:
    return parameter is not None and parameter.requires_grad


def _linear(layer: Any, x: Tensor, g: Tensor) -> Contributions:
    if _trains(layer.weight):
        yield layer.weight, outer(g, x)
    if _trains(layer.bias):
        yield layer.bias, _sum_to(g, g.shape[-1:])


def _transposed_linear(layer: Any, x: Tensor, g: Tensor) -> Contributions:
    """GPT-2's `Conv1D`: y = x W + b."""
    if _trains(layer.weight):
        yield layer.weight, outer(x, g)
    if _trains(layer.bias):
        yield layer.bias, _sum_to(g, g.shape[-1:])


def _embedding(layer: Any, tokens: Tensor, g: Tensor) -> Contributions:
    tokens, g = tokens.reshape(len(tokens), math.prod(tokens.shape[1:])), rows_of_positions(g)
    if layer.padding_idx is not None:  # its row does not learn
        g = g.masked_fill((tokens == layer.padding_idx)[:, :, None], 0)
    yield layer.weight, Tokens(tokens, g, layer.num_embeddings)


def _convolution(layer: Any, x: Tensor, g: Tensor) -> Contributions:
    if _trains(layer.bias):
        yield layer.bias, _per_channel(g)
    if not _trains(layer.weight):
        return
    positions, rows, columns = g[0:1, 0].numel(), layer.out_channels // layer.groups, _columns(layer)
    ghost = Convolution(x, g, lambda *both: _factors(layer, *both), lambda *both: _whole(layer, *both))
    if not is_direct(positions, rows, columns):
        yield layer.weight, ghost
    elif len(x) > 0 and (layer.groups > 1 or _is_for_groups(layer, x, positions)):
        yield layer.weight, PerExample(_by_groups(layer, x, g))
    elif positions * columns * layer.out_channels >= _WORK_OF_A_KERNEL:
        yield layer.weight, PerExample(ghost.per_example())
    else:
        yield layer.weight, PerExample(_by_windows(layer, x, g), channels_last=True)


def _transposed_convolution(layer: Any, x: Tensor, g: Tensor, output_size: Any = None) -> Contributions:
    """The other way round: what goes in stands where a convolution's output gradient does."""
    if _trains(layer.bias):
        yield layer.bias, _per_channel(g)
    if _trains(layer.weight):
        names = ("weight", "kernel_size", "stride", "padding", "dilation", "groups", "padding_mode")
        there = {name: getattr(layer, name) for name in (*names, "_reversed_padding_repeated_twice")}
        back = SimpleNamespace(**there, bias=None, out_channels=layer.in_channels)
        if any(beyond >= s for beyond, s in zip(_beyond(layer, x, g), layer.stride, strict=True)):
            g = _without_rest(back, x, g)
        yield from _convolution(back, g, x)


def _beyond(layer: Any, x: Tensor, g: Tensor) -> list[int]:
    """How many of a transposed convolution's outputs, in each dimension, come after all that its input reaches."""
    options = zip(x.shape[2:], layer.kernel_size, layer.stride, layer.padding, layer.dilation, strict=True)
    reached = [(n - 1) * s + d * (k - 1) + 1 - 2 * p for n, k, s, p, d in options]
    return [size - n for size, n in zip(g.shape[2:], reached, strict=True)]


def _without_rest(back: Any, x: Tensor, g: Tensor) -> Tensor:
    """With its border, and without what would be further windows of a convolution."""
    beyond, g = _beyond(back, x, g), _padded(back, g)
    for d, rest in enumerate(beyond, start=2):
        g = g.narrow(d, 0, g.shape[d] - rest)
    back.padding, back._reversed_padding_repeated_twice = (0,) * len(beyond), (0,) * 2 * len(beyond)
    return g


def _prelu(layer: Any, x: Tensor, g: Tensor) -> Contributions:
    """y = x, or w x where x is negative: one w, or one for each channel."""
    parts = g * x.clamp(max=0)
    if layer.num_parameters == 1:
        yield layer.weight, PerExample(parts.flatten(1).sum(dim=1, keepdim=True) if x.ndim > 1 else parts[:, None])
    else:
        yield layer.weight, _per_channel(parts)


def _factors(layer: Any, x: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
    """(l, r) of every position: (examples, groups, positions, output channels or inputs of a group).

    r holds the window of the input that a position sees. With channels last, a row of a window is one stretch of
    memory, which makes the one copy that is needed fast.
    """
    x = _padded(layer, x).movedim(1, -1).contiguous()
    examples, inputs = len(x), x.shape[-1] // layer.groups
    across, *along, _ = x.stride()
    steps = [a * s for a, s in zip(along, layer.stride, strict=True)]
    within = [a * d for a, d in zip(along, layer.dilation, strict=True)]
    windows = x.as_strided(
        (examples, layer.groups, *g.shape[2:], *layer.kernel_size, inputs),
        (across, inputs, *steps, *within, 1),
    )
    channels, positions = layer.out_channels // layer.groups, math.prod(g.shape[2:])
    left = g.reshape(examples, layer.groups, channels, positions).transpose(2, 3)
    return left, windows.reshape(*left.shape[:3], _columns(layer))


def _padded(layer: Any, x: Tensor) -> Tensor:
    """The input with its border; torch keeps the widths, last dimension first, for every kind of padding."""
    widths = layer._reversed_padding_repeated_twice
    if not any(widths):
        return x
    return functional.pad(x, widths, mode="constant" if layer.padding_mode == "zeros" else layer.padding_mode)


def _whole(layer: Any, x: Tensor, g: Tensor) -> Tensor:
    """The weight gradient of all examples together, by torch's own kernel."""
    shape = layer.weight.shape
    return _by_kernel(layer, x, g, x.new_empty(shape), layer.groups) if len(x) else x.new_zeros(shape)


def _is_for_groups(layer: Any, x: Tensor, positions: int) -> bool:
    """Whether a convolution of so many groups is faster than windows: by oneDNN, with channels to fill its vectors.

    For a number of examples that is new to it, oneDNN first makes a kernel, which takes some tenths of a millisecond.
    """
    work = len(x) * positions * layer.out_channels * _columns(layer)
    known = x.device.type == "cpu" and x.dtype == torch.float32 and bool(torch.backends.mkldnn.enabled)
    return known and layer.weight.shape[1] >= _CHANNELS and work >= _WORK_OF_GROUPS


def _by_groups(layer: Any, x: Tensor, g: Tensor) -> Tensor:
    """That of each example: the channels of all examples are those of one, in so many more groups.

    No window is copied. The kernel has an order of its own for what it computes, and needs its memory twice: as many
    examples at a time as fit the cache.
    """
    shape = layer.weight.shape
    most = max(1, _BAND // max(1, math.prod(shape)))
    if most < len(x):
        gradients = x.new_empty(len(x), *shape)
        for start in range(0, len(x), most):
            band = slice(start, start + most)
            gradients[band] = _by_groups(layer, x[band], g[band])
        return gradients
    weights = x.new_empty(len(x) * shape[0], *shape[1:])
    together = _by_kernel(layer, x.flatten(0, 1)[None], g.flatten(0, 1)[None], weights, len(x) * layer.groups)
    return together.view(len(x), *shape)


def _by_windows(layer: Any, x: Tensor, g: Tensor) -> Tensor:
    """That of each example, input channels last: the windows of as many examples at a time as stay in the cache.

    Those of a whole batch are many times as large as it, and would go through memory that is cleared for them first.
    """
    rows, inputs, *kernel = layer.weight.shape
    gradients = x.new_empty(len(x), rows, *kernel, inputs)
    most = max(1, _WINDOWS // max(1, g[:1, 0].numel() * _columns(layer)))
    for start in range(0, len(x), most):
        band = slice(start, start + most)
        left, right = _factors(layer, x[band], g[band])
        torch.matmul(left.transpose(2, 3), right, out=gradients[band].view(len(left), 1, rows, -1))
    return gradients


def _columns(layer: Any) -> int:
    return math.prod(layer.weight.shape[1:])


def _by_kernel(layer: Any, x: Tensor, g: Tensor, like: Tensor, groups: int) -> Tensor:
    """Weights have a shape here, and no value: they may be elsewhere by now (`sharded`)."""
    none = [0] * (x.ndim - 2)
    padding = layer.padding
    if isinstance(padding, str) or layer.padding_mode != "zeros":  # the kernel knows symmetric zeros only
        x, padding = _padded(layer, x), none
    _, weight, _ = torch.ops.aten.convolution_backward(
        g, x, like, None, layer.stride, padding, layer.dilation, False, none, groups, [False, True, False]
    )
    return weight


def _layer_norm(layer: Any, x: Tensor, g: Tensor) -> Contributions:
    shape = tuple(layer.normalized_shape)
    if _trains(layer.weight):
        yield layer.weight, _sum_to(g * functional.layer_norm(x, shape, eps=layer.eps), shape)
    if _trains(layer.bias):
        yield layer.bias, _sum_to(g, shape)


def _rms_norm(layer: Any, x: Tensor, g: Tensor) -> Contributions:
    """y = w x / rms(x), or (1 + w) x / rms(x)."""
    shape = tuple(layer.weight.shape)
    eps = getattr(layer, "variance_epsilon", getattr(layer, "eps", None))
    yield layer.weight, _sum_to(g * functional.rms_norm(x, shape, eps=eps), shape)


def _group_norm(layer: Any, x: Tensor, g: Tensor) -> Contributions:
    yield from _channels(layer, functional.group_norm(x, layer.num_groups, eps=layer.eps), g)


def _instance_norm(layer: Any, x: Tensor, g: Tensor) -> Contributions:
    yield from _channels(layer, functional.instance_norm(x, eps=layer.eps), g)


def _channels(layer: Any, normalised: Tensor, g: Tensor) -> Contributions:
    if _trains(layer.weight):
        yield layer.weight, _per_channel(g * normalised)
    if _trains(layer.bias):
        yield layer.bias, _per_channel(g)


def _per_channel(values: Tensor) -> Contribution:
    """Summed over all dimensions but the example and the channel, which comes second."""
    beyond = tuple(range(2, values.ndim))
    return PerExample(values.sum(dim=beyond) if beyond else values)


def _sum_to(values: Tensor, shape: tuple[int, ...]) -> Contribution:
    """Summed over all positions between the example and the parameter's own shape."""
    between = tuple(range(1, values.ndim - len(shape)))
    return PerExample(values.sum(dim=between) if between else values)


_RULES: dict[type[nn.Module], Rule] = {
    nn.Linear: _linear,
    nn.Embedding: _embedding,
    nn.EmbeddingBag: embedding_bag,
    nn.Conv1d: _convolution,
    nn.Conv2d: _convolution,
    nn.Conv3d: _convolution,
    nn.ConvTranspose1d: _transposed_convolution,
    nn.ConvTranspose2d: _transposed_convolution,
    nn.ConvTranspose3d: _transposed_convolution,
    nn.PReLU: _prelu,
    nn.LayerNorm: _layer_norm,
    nn.RMSNorm: _rms_norm,
    nn.GroupNorm: _group_norm,
    nn.InstanceNorm1d: _instance_norm,
    nn.InstanceNorm2d: _instance_norm,
    nn.InstanceNorm3d: _instance_norm,
}


def rule_of(layer: nn.Module) -> Rule | None:
    """The rule for a layer that owns trainable parameters; None where there is none, or where an option defies it."""
    for kind, rule in _RULES.items():
        if isinstance(layer, kind) and not _overrides(layer, kind):
            return None if _has_unusual_options(layer) or _has_other_parameters(layer) else rule
    name = type(layer).__name__
    if name == "Conv1D" and hasattr(layer, "nf"):
        return _confirmed(layer, _transposed_linear)
    if (name.endswith("RMSNorm") or name == "T5LayerNorm") and [n for n, _ in layer.named_parameters()] == ["weight"]:
        return _confirmed(layer, _rms_norm)
    return None


def _overrides(layer: nn.Module, kind: type[nn.Module]) -> bool:
    """Whether the layer computes something else than its kind: by its class, or patched into the object."""
    return any(
        name in vars(layer) or getattr(type(layer), name, None) is not getattr(kind, name, None)
        for name in ("forward", "_conv_forward", "__call__", "_call_impl")
    )


def has_rules_for(layer: nn.Module) -> bool:
    """Whether layers of this kind have a rule, be it that this one's options defy it."""
    return isinstance(layer, tuple(_RULES))


def _has_other_parameters(layer: nn.Module) -> bool:
    """Those that a weight is made from (`weight_norm`)."""
    return any(p is not None and name not in ("weight", "bias") for name, p in layer._parameters.items())


def _has_unusual_options(layer: nn.Module) -> bool:
    if isinstance(layer, RNNLinear):
        return True  # called once a time step: the pairs of all calls would be many
    if isinstance(layer, nn.Embedding):
        return (
            layer.max_norm is not None or layer.scale_grad_by_freq
        )  # `sparse` is a form, and sums have noise everywhere
    if isinstance(layer, nn.EmbeddingBag):
        return layer.mode == "max" or layer.max_norm is not None or layer.scale_grad_by_freq
    if isinstance(layer, nn.modules.instancenorm._InstanceNorm):
        return layer.track_running_stats
    if isinstance(layer, nn.RMSNorm):
        return layer.weight is None
    return False


def _confirmed(layer: Any, rule: Rule) -> Rule | None:
    """The rule, if it gives autograd's gradients for this layer on random numbers."""
    parameters = [p for p in layer.parameters() if p.requires_grad]
    if not parameters:
        return rule
    generator = torch.Generator().manual_seed(0)
    weight = layer.weight
    x = torch.randn(2, 3, weight.shape[0], generator=generator).to(weight)
    with torch.enable_grad():
        y = layer(x)
        g = torch.randn(y.shape, generator=generator).to(y)
        expected = torch.autograd.grad(y, parameters, g)
    found = {p: c.weighted_sum(torch.ones(2, device=x.device)) for p, c in rule(layer, x, g)}
    right = all(torch.allclose(found[p], e, rtol=1e-3, atol=1e-4) for p, e in zip(parameters, expected, strict=True))
    return rule if right else None
