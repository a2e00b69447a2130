"""Per-example gradients in full: for layers without a rule, and for clipping that needs the gradients themselves.

A layer that has a rule for book-keeping is asked for its gradients by it. Others have a function of Opacus's, or are
computed once more with `torch.func`, example by example at once, from torch's generator as it was, so that dropout
falls as it fell.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, cast

import torch
from opacus.grad_sample import GradSampleModule
from opacus.layers.dp_rnn import DPRNNBase, RNNLinear
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional
from torch.nn.utils.parametrize import is_parametrized
from torch.nn.utils.rnn import PackedSequence
from torch.utils._pytree import tree_flatten, tree_unflatten

from plrvo.training.clipping.contributions import Contribution, PerExample
from plrvo.training.clipping.layers import Contributions, has_rules_for, rule_of
from plrvo.training.clipping.module import (
    ANY_MODULE,
    Book,
    BookkeepingModule,
    Inputs,
    Recorder,
    by_rule,
    floating,
    own_parameters,
    recurrent_layers,
)
from plrvo.training.clipping.precision import wide
from plrvo.training.clipping.recurrent import is_recurrent, take_own_weights
from plrvo.training.kept import Contents
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
        return list(self._within("", m, covered))

    def _within(self, name: str, m: nn.Module, covered: set[nn.Parameter]) -> Iterator[tuple[str, nn.Module, Recorder]]:
        if is_parametrized(m) and any(p.requires_grad for p in m.parameters()):
            self._replayed.add(m)
            yield name, m, by_replay(self._dimension)
        elif _is_known(m) and own_parameters(m):
            yield name, m, self._known(m)
        elif is_recurrent(m):
            self._watch_recurrent(name, m)
        elif not covered.issuperset(own_parameters(m)):
            if isinstance(m, nn.EmbeddingBag):
                raise InvalidArgument(
                    "module", f"{name} (EmbeddingBag)", f"nn.Embedding, and a mean over its positions; {ANY_MODULE}"
                )
            self._replayed.add(m)
            yield name, m, by_replay(self._dimension)
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
        missing = self.book.batch_size - len(g)
        if isinstance(layer, RNNLinear) and missing > 0:
            inputs = Inputs((_with_rows(inputs.first, missing),), {})
            g = _with_rows(g, missing)
        super()._record(name, layer, recorder, inputs, g)


class WholeModule(SamplesModule):
    """The same, by computing the whole module once more for each example, whatever its layers make of a batch.

    For layers that work on flattened positions, on parts of an image or on one row for all examples. It takes a second
    pass, and torch.func has to get through the module.
    """

    def _recorders(self, m: nn.Module) -> list[tuple[str, nn.Module, Recorder]]:
        root = unwrapped(m)
        self._replayed.add(root)
        return [("", root, by_replay(self._dimension))]


def _is_known(layer: nn.Module) -> bool:
    if is_parametrized(layer):
        return False
    return rule_of(layer) is not None or (
        type(layer) in GradSampleModule.GRAD_SAMPLERS
        and not isinstance(layer, nn.EmbeddingBag)
        and (isinstance(layer, RNNLinear) or not has_rules_for(layer))
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


def by_replay(dimension: int) -> Recorder:
    """Of a layer whose pass is computed once more; it remembers which inputs have no rows."""
    return partial(_again, dimension, set())


class _NotOneRow(Exception):
    """What a layer gives for one example is not that example's output."""


def _again(dimension: int, shared: set[int], layer: nn.Module, inputs: Inputs, g: Tensor) -> Contributions:
    """The layer's pass once more for each example: d <output, g> / d parameters.

    `shared` remembers which inputs did not follow the number of rows: a module is tried with two such numbers, so that
    a mask which is as large as a batch by chance is not taken for rows. One row for all, which broadcasts, says nothing
    about later calls. An example that does not get its own output from what is remembered gets its own rows of all.
    """
    parameters = {name: p for name, p in layer.named_parameters() if p.requires_grad}
    leaves, _ = tree_flatten((inputs.args, inputs.kwargs))
    rows = g.shape[dimension]
    sized = {i: t.shape[dimension] for i, t in enumerate(leaves) if isinstance(t, Tensor) and t.ndim > dimension}
    shared |= {i for i, size in sized.items() if size not in (1, rows)}
    with_rows = {i for i, size in sized.items() if size == rows}
    kept = Contents(layer)  # counters have counted this pass, and weights that are made in it are there
    try:
        try:
            found = _by_row(layer, parameters, inputs, g, dimension, with_rows - shared)
        except _NotOneRow:
            kept.put_back()
            found = _by_row(layer, parameters, inputs, g, dimension, with_rows)
    except _NotOneRow:
        raise InvalidArgument(
            "module",
            type(layer).__name__,
            "a layer that gives an example alone an output of the same size as in its batch, whatever its inputs are",
        ) from None
    except (RuntimeError, TypeError, ValueError, NotImplementedError, AttributeError) as error:
        raise InvalidArgument(
            "module",
            type(layer).__name__,
            f"a layer that torch.func can differentiate by example; freeze it, or register a function for it with "
            f"opacus.grad_sample.register_grad_sampler ({' '.join(str(error).split())[:200]})",
        ) from None
    finally:
        kept.put_back()
        take_own_weights(layer)
    for name, gradients in found.items():
        yield parameters[name], PerExample(gradients)


def _by_row(
    layer: nn.Module,
    parameters: dict[str, nn.Parameter],
    inputs: Inputs,
    g: Tensor,
    dimension: int,
    with_rows: set[int],
) -> dict[str, Tensor]:
    """The gradients of each example, which is given its row of some inputs and all of the others."""
    leaves, form = tree_flatten((inputs.args, inputs.kwargs))
    where: list[Any] = [dimension if i in with_rows else None for i in range(len(leaves))]

    def score(values: dict[str, Tensor], gradient: Tensor, *one: Any) -> Tensor:
        called = [t if d is None else t.unsqueeze(d) for t, d in zip(one, where, strict=True)]
        args, kwargs = tree_unflatten(called, form)
        # As the pass has found them, and copies: it may write to them (counters, the vectors of spectral norms).
        buffers = {name: b.clone() for name, b in inputs.buffers.items()}
        output = floating(functional_call(layer, {**values, **buffers}, args, kwargs))[inputs.output]
        own = gradient.unsqueeze(dimension)
        if output.shape != own.shape:  # they would broadcast, and the rows of others be summed
            raise _NotOneRow
        return (output * own).sum()

    values = {name: p.detach() for name, p in parameters.items()}
    widened = [wide(t) if isinstance(t, Tensor) else t for t in leaves]
    # In the order of the pass: the examples of a batch draw one after the other.
    at_once = vmap(grad(score), in_dims=(None, dimension, *where), randomness="different")
    with torch.random.fork_rng(devices=[]):
        if inputs.generator is not None:
            torch.set_rng_state(inputs.generator)
        try:
            return cast("dict[str, Tensor]", at_once(values, wide(g), *widened))
        except RuntimeError as error:  # such as values that decide what is computed
            return _in_a_loop(score, values, wide(g), widened, where, dimension, error)


def _in_a_loop(
    score: Callable[..., Tensor],
    values: dict[str, Tensor],
    g: Tensor,
    leaves: list[Any],
    where: list[Any],
    dimension: int,
    reason: RuntimeError,
) -> dict[str, Tensor]:
    """One example after the other, for what torch.func does not get through all at once.

    Not where what the layer draws makes a difference (dropout): alone, an example would draw other numbers than in
    its batch. Some draw and leave it at that.
    """
    rows = []
    for row, gradient in enumerate(g.unbind(dimension)):
        one = [t if d is None else t.select(d, row) for t, d in zip(leaves, where, strict=True)]
        own = {name: value.clone().requires_grad_() for name, value in values.items()}
        before = torch.get_rng_state()
        with torch.enable_grad():
            loss = score(own, gradient, *one)
        if not torch.equal(before, torch.get_rng_state()) and not torch.equal(score(values, gradient, *one), loss):
            raise RuntimeError(f"without dropout it can go by single examples; else: {reason}")
        rows.append(torch.autograd.grad(loss, list(own.values()), allow_unused=True, materialize_grads=True))
    return {name: torch.stack(gradients) for name, gradients in zip(values, zip(*rows, strict=True), strict=True)}
