"""Per-example gradients in full: for layers without a rule, and for clipping that needs the gradients themselves.

A layer that has a rule for book-keeping is asked for its gradients by it. Others have a function of Opacus's, or are
computed once more for each example (`again`).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from opacus.grad_sample import GradSampleModule
from opacus.layers.dp_rnn import DPRNNBase, RNNLinear
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.parametrize import is_parametrized
from torch.nn.utils.rnn import PackedSequence

from plrvo.training.clipping.again import by_replay
from plrvo.training.clipping.contributions import Contribution, PerExample
from plrvo.training.clipping.layers import Contributions, has_rules_for, rule_of
from plrvo.training.clipping.module import (
    ANY_MODULE,
    Book,
    BookkeepingModule,
    Inputs,
    Recorder,
    by_rule,
    own_parameters,
    recurrent_layers,
)
from plrvo.training.clipping.precision import wide
from plrvo.training.clipping.recurrent import is_recurrent
from plrvo.training.unwrap import unwrapped
from plrvo.validate import InvalidArgument


class Samples(Book):
    """A book that adds up the gradients of a parameter's uses, as a recurrent layer has one in every time step."""

    def add(self, parameter: nn.Parameter, contribution: Contribution) -> None:
        gradients = contribution.per_example()
        for held in self._contributions[parameter]:
            gradients = gradients + held.per_example()
        self._contributions[parameter] = [PerExample(gradients)]


class SamplesModule(BookkeepingModule):
    """Wraps a module; the book holds the per-example gradients of every parameter."""

    def _new_book(self) -> Book:
        return Samples()

    def _recorders(self, m: nn.Module) -> list[tuple[str, nn.Module, Recorder]]:
        for layer in m.modules():
            if isinstance(layer, DPRNNBase):
                self._hooks += [
                    layer.register_forward_pre_hook(_refuse_sorting),
                    layer.register_forward_hook(_forget_size, always_call=True),
                ]
        covered = {p for layer in m.modules() if _is_known(layer) for p in own_parameters(layer)}
        covered.update(p for _, layer in recurrent_layers(m) for p in own_parameters(layer))
        found = {layer: (name, layer, recorder) for name, layer, recorder in self._within("", m, covered)}
        return list(found.values())  # a layer that has two names is one

    def _within(self, name: str, m: nn.Module, covered: set[nn.Parameter]) -> Iterator[tuple[str, nn.Module, Recorder]]:
        if is_parametrized(m) and any(p.requires_grad for p in m.parameters()):
            self._replayed.add(m)
            yield name, m, by_replay(self._dimension, self.loss_reduction)
        elif _is_known(m) and own_parameters(m):
            yield name, m, self._known(m)
        elif is_recurrent(m):
            self._watch_recurrent(name, m)
        elif not covered.issuperset(own_parameters(m)):
            if isinstance(m, nn.EmbeddingBag):
                raise InvalidArgument(
                    "module",
                    f"{name} (EmbeddingBag)",
                    f"mode='sum' or 'mean', without max_norm and scale_grad_by_freq; {ANY_MODULE}",
                )
            self._replayed.add(m)
            yield name, m, by_replay(self._dimension, self.loss_reduction)
        else:
            for child_name, child in m.named_children():
                yield from self._within(f"{name}.{child_name}".lstrip("."), child, covered)

    def _known(self, layer: nn.Module) -> Recorder:
        rule = rule_of(layer)
        recorder = partial(by_rule, rule) if rule else _by_opacus
        is_step = isinstance(layer, RNNLinear)
        return recorder if self._dimension == 0 or is_step else partial(_examples_first, recorder)

    def _rows_of(self, layer: nn.Module, g: Tensor) -> int:
        # The steps of a packed sequence have fewer rows, the first ones.
        return max(len(g), self.book.batch_size) if isinstance(layer, RNNLinear) else super()._rows_of(layer, g)

    def _record(self, name: str, layer: nn.Module, recorder: Recorder, inputs: Inputs, g: Tensor) -> None:
        if isinstance(layer, RNNLinear) and (missing := self.book.batch_size - len(g)) > 0:
            inputs = Inputs((_with_rows(inputs.first, missing),), {})
            g = _with_rows(g, missing)
        super()._record(name, layer, recorder, inputs, g)


class WholeModule(SamplesModule):
    """The same, by computing the whole module once more for each example, whatever its layers make of a batch.

    For layers that work on flattened positions, on parts of an image or on one row for all examples. It takes a second
    pass, and torch.func has to get through the module.
    """

    @property
    def is_whole(self) -> bool:
        return True

    def _recorders(self, m: nn.Module) -> list[tuple[str, nn.Module, Recorder]]:
        root = unwrapped(m)
        self._replayed.add(root)
        return [("", root, by_replay(self._dimension, self.loss_reduction))]


def _is_known(layer: nn.Module) -> bool:
    if is_parametrized(layer):
        return False
    return rule_of(layer) is not None or (
        type(layer) in GradSampleModule.GRAD_SAMPLERS and (isinstance(layer, RNNLinear) or not has_rules_for(layer))
    )


def _by_opacus(layer: nn.Module, inputs: Inputs, g: Tensor) -> Contributions:
    """By the function that Opacus, or the user, has registered for the layer's type."""
    found = GradSampleModule.GRAD_SAMPLERS[type(layer)](layer, [wide(inputs.first)], wide(g))
    for parameter, gradients in found.items():
        yield parameter, PerExample(gradients)


def _examples_first(recorder: Recorder, layer: nn.Module, inputs: Inputs, g: Tensor) -> Contributions:
    return recorder(layer, Inputs((inputs.first.movedim(1, 0),), {}), g.movedim(1, 0))


def _refuse_sorting(layer: nn.Module, args: Any) -> None:
    """Sorted by length, a row of this layer is another example than the same row of others."""
    if layer.training and args and isinstance(args[0], PackedSequence) and args[0].sorted_indices is not None:
        raise InvalidArgument(
            "module",
            f"{type(layer).__name__} on sequences that were packed with enforce_sorted=False",
            "examples in the order of the batch in every layer: give it the padded sequences, and read its outputs "
            "where each example ends, outputs[torch.arange(len(x)), lengths - 1]",
        )


def _forget_size(layer: nn.Module, *_: Any) -> None:
    """Opacus notes the number of rows of packed sequences in their layers, for its own use."""
    for m in layer.modules():
        if isinstance(m, RNNLinear):
            vars(m).pop("max_batch_len", None)


def _with_rows(values: Tensor, missing: int) -> Tensor:
    return functional.pad(values, (0, 0) * (values.ndim - 1) + (0, missing))
