"""A layer's pass once more for each example, by `torch.func`: its gradients, whatever the layer does.

All examples at once where torch.func gets through, else one after the other. What the pass has drawn at random is given
to each example again (`drawn`), so that gradients are those of the pass that was, and dropout falls as it fell.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.utils._pytree import tree_flatten, tree_unflatten

from plrvo.training.clipping.contributions import PerExample
from plrvo.training.clipping.drawn import CannotRedraw, Redrawing, for_all, for_any, for_one
from plrvo.training.clipping.layers import Contributions
from plrvo.training.clipping.module import Inputs, Recorder, floating
from plrvo.training.clipping.precision import wide
from plrvo.training.clipping.recurrent import take_own_weights
from plrvo.training.kept import Contents
from plrvo.validate import InvalidArgument

Found = tuple[dict[str, Tensor], Tensor]  # gradients by example, and the numbers that examples give alone
Score = Callable[..., tuple[Tensor, Tensor]]


@dataclass
class Known:
    """What earlier passes have shown of a layer.

    `shared`: which inputs did not follow the number of rows: a module is tried with two such numbers, so that a mask
    which is as large as a batch by chance is not taken for rows. `means`: whether an output that is one number is the
    mean of its examples', or their sum.
    """

    reduction: str = "mean"
    shared: set[int] = field(default_factory=set)
    means: dict[int, bool] = field(default_factory=dict)


class _NotOneRow(Exception):
    """What a layer gives for one example is not that example's output."""


def by_replay(dimension: int, reduction: str = "mean") -> Recorder:
    """Of a layer whose pass is computed once more; it remembers what it has seen."""
    return partial(again, dimension, Known(reduction))


def again(dimension: int, known: Known, layer: nn.Module, inputs: Inputs, g: Tensor) -> Contributions:
    """The layer's pass once more for each example: d <output, g> / d parameters.

    One row for all, which broadcasts, says nothing about later calls. An example that does not get its own output from
    what is remembered gets its own rows of all.
    """
    parameters = {name: p for name, p in layer.named_parameters() if p.requires_grad}
    leaves, _ = tree_flatten((inputs.args, inputs.kwargs))
    rows = g.shape[dimension] if g.ndim else inputs.rows
    sized = {i: t.shape[dimension] for i, t in enumerate(leaves) if isinstance(t, Tensor) and t.ndim > dimension}
    known.shared |= {i for i, size in sized.items() if size not in (1, rows)}
    with_rows = {i for i, size in sized.items() if size == rows}
    kept = Contents(layer)  # counters have counted this pass, and weights that are made in it are there
    # `functional_call` loses those of a layer that has two names.
    attached = [(m, dict(m._parameters)) for m in layer.modules()]
    try:
        try:
            found, numbers = _by_row(layer, parameters, inputs, g, dimension, with_rows - known.shared)
        except _NotOneRow:
            kept.put_back()
            found, numbers = _by_row(layer, parameters, inputs, g, dimension, with_rows)
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
        for m, own in attached:
            m._parameters.update(own)
        kept.put_back()
        take_own_weights(layer)
    share = 1.0 if g.ndim or not bool(g) else _share(layer, known, inputs, numbers)
    for name, gradients in found.items():
        dense = gradients.to_dense() if gradients.is_sparse else gradients
        yield parameters[name], PerExample(dense if share == 1 else dense * share)


def _share(layer: nn.Module, known: Known, inputs: Inputs, numbers: Tensor) -> float:
    """What an example's own number counts for in the number of all: a mean divides it by their number, a sum does not.

    Told by the numbers, once; they must add up ever after. Where they are no numbers, nobody can tell, and it does not
    matter: examples whose gradients are none contribute nothing.
    """
    rows, whole = inputs.rows, inputs.number
    own = numbers.double()
    if whole is None or not bool(own.isfinite().all() & whole.isfinite()):
        return 1 / rows if known.means.get(inputs.output, known.reduction == "mean") else 1.0
    room = inputs.close * float(own.abs().sum()) + 1e-30
    is_sum, is_mean = (abs(float(own.sum()) * share - float(whole)) <= room * share for share in (1.0, 1 / rows))
    if is_sum != is_mean:
        known.means.setdefault(inputs.output, is_mean)
    mean = known.means.get(inputs.output, known.reduction == "mean")
    if not (is_mean if mean else is_sum):
        raise InvalidArgument(
            "module",
            f"{type(layer).__name__}, which gives one number for all examples",
            "a mean or a sum of what it gives for each example alone; return the losses by example, and take their "
            "mean outside of it",
        )
    return 1 / rows if mean else 1.0


def _by_row(
    layer: nn.Module,
    parameters: dict[str, nn.Parameter],
    inputs: Inputs,
    g: Tensor,
    dimension: int,
    with_rows: set[int],
) -> Found:
    """The gradients of each example, which is given its row of some inputs and all of the others."""
    leaves, form = tree_flatten((inputs.args, inputs.kwargs))
    where: list[Any] = [dimension if i in with_rows else None for i in range(len(leaves))]

    def score(values: dict[str, Tensor], gradient: Tensor, *one: Any) -> tuple[Tensor, Tensor]:
        called = [t if d is None else t.unsqueeze(d) for t, d in zip(one, where, strict=True)]
        args, kwargs = tree_unflatten(called, form)
        # As the pass has found them, and copies: it may write to them (counters, the vectors of spectral norms).
        buffers = {name: b.clone() for name, b in inputs.buffers.items()}
        output = floating(functional_call(layer, {**values, **buffers}, args, kwargs))[inputs.output]
        own = gradient.unsqueeze(dimension) if g.ndim else gradient
        if output.shape != own.shape:  # they would broadcast, and the rows of others be summed
            raise _NotOneRow
        return (output * own).sum(), output.detach() if output.ndim == 0 else own.new_zeros(())

    values = {name: p.detach() for name, p in parameters.items()}
    given: tuple[Any, ...] = (values, wide(g), *(wide(t) if isinstance(t, Tensor) else t for t in leaves))
    places = (None, dimension if g.ndim else None, *where)
    rows = g.shape[dimension] if g.ndim else inputs.rows
    with torch.random.fork_rng(devices=[]):
        if inputs.generator is not None:
            torch.set_rng_state(inputs.generator)
        failures = []
        for randomness, of in (("different", for_all(rows)), ("same", for_any)):
            at_once = vmap(grad(score, has_aux=True), in_dims=places, randomness=randomness)
            try:
                with _redrawing(inputs, of), warnings.catch_warnings():
                    # Of operations that torch.func takes one by one: they are slower, and right.
                    warnings.filterwarnings("ignore", message="There is a performance drop", category=UserWarning)
                    return cast("Found", at_once(*given))
            except RuntimeError as error:  # such as values that decide what is computed
                failures.append(error)
            if not inputs.drawn:
                break
        return _in_a_loop(score, given, places, rows, inputs, failures[0])


def _in_a_loop(
    score: Score, given: tuple[Any, ...], places: tuple[Any, ...], rows: int, inputs: Inputs, reason: RuntimeError
) -> Found:
    """One example after the other, for what torch.func does not get through all at once."""
    values, *others = given
    found, numbers = [], []
    for row in range(rows):
        one = [t if d is None else t.select(d, row) for t, d in zip(others, places[1:], strict=True)]
        own = {name: value.clone().requires_grad_() for name, value in values.items()}
        try:
            with _redrawing(inputs, for_one(rows, row)), torch.enable_grad():
                loss, number = score(own, *one)
                # Within, as a checkpoint would draw once more.
                found.append(torch.autograd.grad(loss, list(own.values()), allow_unused=True, materialize_grads=True))
        except CannotRedraw as error:
            raise RuntimeError(f"without dropout it can go by single examples ({error}); else: {reason}") from None
        numbers.append(number)
    gradients = zip(values, zip(*found, strict=True), strict=True)
    return {name: torch.stack(of_one) for name, of_one in gradients}, torch.stack(numbers)


@contextmanager
def _redrawing(inputs: Inputs, of: Callable[[Tensor, torch.Size], Tensor]) -> Iterator[None]:
    with Redrawing(inputs.drawn, of) as redrawing:
        yield
    redrawing.end()
