"""Recurrent layers as torch has them: `nn.RNN`, `nn.LSTM` and `nn.GRU`, by their own kernels.

The way forward is torch's; the way back is `gates`, which gives what the kernels keep to themselves: the gates'
gradients, and with them each example's gradients of the weights. Layers upon each other are gone through one by one.
Packed sequences are padded for the way back, and examples in the order that they were packed from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import _VF, Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional
from torch.nn.utils.rnn import PackedSequence

from plrvo.training.clipping.contributions import Contribution, PerExample, outer, outers
from plrvo.training.clipping.gates import Gradients, Steps, Weights, through_time
from plrvo.training.clipping.matrices import linear
from plrvo.training.clipping.precision import in_full_precision, wide
from plrvo.validate import InvalidArgument

Show = Callable[[int, Iterator[tuple[nn.Parameter, Contribution]]], None]  # of so many examples

_KERNELS = {"LSTM": "lstm", "GRU": "gru", "RNN_TANH": "rnn_tanh", "RNN_RELU": "rnn_relu"}


def is_recurrent(layer: nn.Module) -> bool:
    """Whether it computes what torch's own layers do, from its own parameters."""
    if not isinstance(layer, nn.RNNBase) or layer.mode not in _KERNELS:
        return False
    kind = next((kind for kind in (nn.LSTM, nn.GRU, nn.RNN) if isinstance(layer, kind)), nn.RNNBase)
    names = ("forward", "__call__", "_call_impl")
    if any(name in vars(layer) or getattr(type(layer), name) is not getattr(kind, name) for name in names):
        return False
    own: dict[str, Any] = dict(layer.named_parameters())
    return list(own) == layer._flat_weights_names and all(
        w is p for w, p in zip(layer._flat_weights, own.values(), strict=True)
    )


def take_own_weights(module: nn.Module) -> None:
    """Recurrent layers keep a list of their weights: after others were put in their place, of their own again."""
    for m in module.modules():
        if isinstance(m, nn.RNNBase):
            m._update_flat_weights()


def with_own_way_back(
    layer: Any, args: tuple[Any, Any], output: Any, handle: Tensor, generator: Tensor, show: Show
) -> Any:
    """The layer's output, with a way back of its own that shows contributions.

    `output` is what the layer's kernel gave. Of several layers it gives the last alone, so that they are computed once
    more, from torch's generator as it was: dropout between them falls as it fell.
    """
    x, state = args
    packed = x if isinstance(x, PackedSequence) else None
    if packed is None and x.ndim != 3:
        raise InvalidArgument("module", f"{type(layer).__name__} on one sequence", "a batch of sequences")
    if layer.num_layers > 1 and layer.dropout and layer._flat_weights[0].device.type != "cpu":
        what = "no dropout between its layers, whose draws on other devices than the CPU cannot be repeated; layers of "
        raise InvalidArgument("module", type(layer).__name__, what + "one layer each, with nn.Dropout between them")
    data = packed.data if packed else x.transpose(0, 1) if layer.batch_first else x
    examples = int(packed.batch_sizes[0]) if packed else data.shape[1]
    states = _states(layer, data, state, examples, packed)
    known = _flat(layer, output, packed) if layer.num_layers == 1 else None
    directions, last = 2 if layer.bidirectional else 1, []
    with torch.random.fork_rng(devices=[]):
        torch.set_rng_state(generator)
        for number in range(layer.num_layers):
            one = _Layer(layer, number, packed, show)
            own = [s[number * directions : (number + 1) * directions] for s in states]
            if number and layer.dropout:
                data = functional.dropout(data, layer.dropout, layer.training)
            run: Any = _OneLayer.apply
            data, *ends = run(one, known, handle, data, *own)
            last.append(ends)
    ends = [torch.cat(parts) if len(parts) > 1 else parts[0] for parts in zip(*last, strict=True)]
    if packed is None:
        data = data.transpose(0, 1) if layer.batch_first else data
    else:
        data = PackedSequence(data, packed.batch_sizes, packed.sorted_indices, packed.unsorted_indices)
        ends = [_ordered(end, packed.unsorted_indices, 1) for end in ends]
    return data, tuple(ends) if layer.mode == "LSTM" else ends[0]


def _states(layer: Any, data: Tensor, state: Any, examples: int, packed: PackedSequence | None) -> list[Tensor]:
    """What the layer begins with, examples in the order of the data."""
    if state is None:
        number = layer.num_layers * (2 if layer.bidirectional else 1)
        sizes = [layer.proj_size or layer.hidden_size, layer.hidden_size][: 2 if layer.mode == "LSTM" else 1]
        return [data.new_zeros(number, examples, size) for size in sizes]
    given = state if isinstance(state, tuple) else (state,)
    return [_ordered(s, packed.sorted_indices if packed else None, 1) for s in given]


def _ordered(values: Tensor, order: Tensor | None, dimension: int) -> Tensor:
    return values if order is None else values.index_select(dimension, order)


def _flat(layer: Any, output: Any, packed: PackedSequence | None) -> tuple[Tensor, ...]:
    """Outputs and states of a kernel of one layer, without their graph and in the order of the data."""
    values, ends = output
    ends = ends if isinstance(ends, tuple) else (ends,)
    if packed is not None:
        return values.data.detach(), *(_ordered(e.detach(), packed.sorted_indices, 1) for e in ends)
    values = values.detach()
    return values.transpose(0, 1) if layer.batch_first else values, *(e.detach() for e in ends)


class _OneLayer(torch.autograd.Function):
    """`handle` requires a gradient and gets none: it makes the pass reach a layer whose input requires none.

    `known` is what is known already to come out. The context must not hold it: what it holds of its own outputs, but
    for what is saved, holds the context in turn, and nobody ever frees the two.
    """

    @staticmethod
    def forward(
        ctx: Any, one: _Layer, known: tuple[Tensor, ...] | None, handle: Tensor, x: Tensor, *first: Tensor
    ) -> tuple[Tensor, ...]:
        found = known or one.by_kernel(x, first)
        ctx.one = one
        ctx.save_for_backward(x, found[0], *first)
        return found

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, y, *first = ctx.saved_tensors
        return None, None, None, *ctx.one.back(x, y, first, gradients)


@dataclass(frozen=True)
class _Layer:
    """One of the layers upon each other, in both directions if it has them."""

    layer: Any
    number: int
    packed: PackedSequence | None
    show: Show

    def by_kernel(self, x: Tensor, first: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        layer = self.layer
        weights = [getattr(layer, name).detach() for d in range(self._directions) for name in self._names(d).values()]
        state = first if layer.mode == "LSTM" else first[0]
        options = (layer.bias, 1, 0.0, layer.training, layer.bidirectional)
        kernel = getattr(_VF, _KERNELS[layer.mode])
        if self.packed is None:
            found: tuple[Tensor, ...] = kernel(x, state, weights, *options, False)
        else:
            found = kernel(x, self.packed.batch_sizes, state, weights, *options)
        return found

    @in_full_precision
    def back(self, x: Tensor, y: Tensor, first: list[Tensor], gradients: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """The gradients of the input and of the states; contributions are shown."""
        inputs, outputs, (of_outputs, *of_last) = *map(self._padded, (x, y)), map(wide, gradients)
        of_outputs, there = self._padded(of_outputs), self._there()
        of_inputs, of_first = [], [torch.empty_like(wide(f)) for f in first]
        for d in range(self._directions):

            def directed(values: Tensor, d: int = d) -> Tensor:
                return values.flip(0) if d else values

            size = outputs.shape[2] // self._directions
            own = slice(d * size, (d + 1) * size)
            steps = Steps(
                directed(inputs),
                directed(outputs[:, :, own]),
                tuple(wide(f[d]) for f in first),
                None if there is None else directed(there),
            )
            names = self._names(d)
            weights = Weights(**{what: wide(getattr(self.layer, name).detach()) for what, name in names.items()})
            last = tuple(g[d] for g in of_last)
            found = through_time(self.layer.mode, weights, steps, directed(of_outputs[:, :, own]), last)
            self.show(inputs.shape[1], self._contributions(names, steps, found))
            of_inputs.append(directed(linear(found.of_inputs, weights.inputs.t())))
            for whole, part in zip(of_first, found.first, strict=True):
                whole[d] = part
        total = of_inputs[0] if len(of_inputs) == 1 else of_inputs[0].add_(of_inputs[1])
        return self._data(total).to(x.dtype), *(t.to(f.dtype) for t, f in zip(of_first, first, strict=True))

    def _contributions(
        self, names: dict[str, str], steps: Steps, found: Gradients
    ) -> Iterator[tuple[nn.Parameter, Contribution]]:
        def examples_first(values: Tensor) -> Tensor:
            order = self.packed.unsorted_indices if self.packed else None
            return _ordered(values.transpose(0, 1), order, 0).contiguous()

        # The gates of an LSTM have one gradient, for inputs and states alike: it is looked at once.
        own = {"inputs": (of_inputs := examples_first(found.of_inputs)), "states": of_inputs}
        rights = {"inputs": steps.inputs, "states": steps.before}
        if found.of_states is not found.of_inputs:
            own["states"] = examples_first(found.of_states)
        parameters = {what: getattr(self.layer, name) for what, name in names.items()}
        trained = [what for what, p in parameters.items() if p.requires_grad]
        weights = [what for what in rights if what in trained]
        if own["inputs"] is own["states"]:
            made = outers(of_inputs, [examples_first(rights[what]) for what in weights])
        else:
            made = [outer(own[what], examples_first(rights[what])) for what in weights]
        for what, contribution in zip(weights, made, strict=True):
            yield parameters[what], contribution
        if "projection" in trained and found.projected is not None:
            yield parameters["projection"], outer(*map(examples_first, found.projected))
        biases = {"input_bias": "inputs", "state_bias": "states"}
        lefts = {id(own[what]): own[what] for bias, what in biases.items() if bias in trained}
        sums = {key: PerExample(left.sum(dim=1)) for key, left in lefts.items()}
        for bias, what in biases.items():
            if bias in trained:
                yield parameters[bias], sums[id(own[what])]

    def _names(self, direction: int) -> dict[str, str]:
        """The names of the parameters in one direction, in the order of the kernels' arguments."""
        layer, end = self.layer, f"_l{self.number}{'_reverse' if direction else ''}"
        names = {"inputs": f"weight_ih{end}", "states": f"weight_hh{end}"}
        if layer.bias:
            names |= {"input_bias": f"bias_ih{end}", "state_bias": f"bias_hh{end}"}
        return names | ({"projection": f"weight_hr{end}"} if layer.proj_size else {})

    @property
    def _directions(self) -> int:
        return 2 if self.layer.bidirectional else 1

    def _there(self) -> Tensor | None:
        """In which steps an example has something."""
        if self.packed is None:
            return None
        sizes, data = self.packed.batch_sizes, self.packed.data
        return (torch.arange(int(sizes[0])) < sizes[:, None])[:, :, None].to(data.device)

    def _padded(self, values: Tensor) -> Tensor:
        """(steps, examples, values), in singles at least."""
        if self.packed is None:
            return wide(values)
        sizes = self.packed.batch_sizes
        return _VF._pad_packed_sequence(wide(values), sizes, False, 0.0, len(sizes))[0]

    def _data(self, padded: Tensor) -> Tensor:
        there = self._there()
        return padded if there is None else padded[there[:, :, 0]]
