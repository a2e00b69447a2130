"""A module that records, in one backward pass, what the per-example gradients of its parameters consist of."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import torch
from opacus.grad_sample import AbstractGradSampleModule
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_unflatten

from plrvo.training.clipping.contributions import Contribution
from plrvo.training.clipping.layers import Contributions, Rule, rule_of
from plrvo.training.clipping.precision import in_full_precision, wide
from plrvo.training.structure import map_tensors, tensors_in
from plrvo.training.unwrap import unwrapped
from plrvo.training.watch import Watch
from plrvo.validate import InvalidArgument


@dataclass(frozen=True)
class Inputs:
    """What a layer was called with, where torch's generator was (if asked for), and which output is looked at."""

    args: Any
    kwargs: Any
    generator: Tensor | None = None
    output: int = 0

    @property
    def first(self) -> Tensor:
        return cast("Tensor", self.args[0] if self.args else next(iter(self.kwargs.values())))


ANY_MODULE = 'or grad_sample_mode="functorch", which is slower and asks nothing of layers'

Recorder = Callable[[nn.Module, Inputs, Tensor], Contributions]


def unsupported_layers(module: nn.Module) -> list[str]:
    """The names of layers that own trainable parameters and have no rule; empty where book-keeping works."""
    return [f"{name or 'module'} ({type(m).__name__})" for name, m, rule in _ruled(module) if rule is None]


def _ruled(module: nn.Module) -> list[tuple[str, nn.Module, Rule | None]]:
    """Owners of trainable parameters, with their rules; not those of which all belong to a layer that has one."""
    owners = [(name, m, rule_of(m)) for name, m in module.named_modules() if own_parameters(m)]
    covered = {p for _, m, rule in owners if rule for p in own_parameters(m)}
    return [(name, m, rule) for name, m, rule in owners if rule or not covered.issuperset(own_parameters(m))]


def own_parameters(module: nn.Module) -> list[nn.Parameter]:
    """Those that train, without those of its children."""
    return [p for p in module.parameters(recurse=False) if p.requires_grad]


def floating(output: Any) -> list[Tensor]:
    """The tensors of an output that can have a gradient."""
    return [t for t in tensors_in(output) if t.is_floating_point()]


def by_rule(rule: Rule, layer: nn.Module, inputs: Inputs, g: Tensor) -> Contributions:
    """Halves are widened before anything is multiplied: clipping and sums have singles at least."""
    return rule(layer, wide(inputs.first), wide(g))


class Book:
    """Contributions by parameter, of the batch whose forward pass came last. Copies and pickles of it are empty."""

    def __init__(self) -> None:
        self.batch_size = 0
        self._contributions: dict[nn.Parameter, list[Contribution]] = defaultdict(list)

    def __reduce__(self) -> Any:
        return type(self), ()

    def add(self, parameter: nn.Parameter, contribution: Contribution) -> None:
        self._contributions[parameter].append(contribution)

    def contributions(self, parameter: nn.Parameter) -> list[Contribution]:
        """Empty for a parameter that the loss does not depend on."""
        return self._contributions.get(parameter, [])

    def release(self, parameter: nn.Parameter) -> list[Contribution]:
        """The contributions, which the book lets go of."""
        return self._contributions.pop(parameter, [])

    def clear(self) -> None:
        self._contributions.clear()

    @property
    def kept(self) -> list[nn.Parameter]:
        """The parameters that have contributions."""
        return list(self._contributions)

    @property
    def is_empty(self) -> bool:
        return not self._contributions


class _Tap(torch.autograd.Function):
    """Hands on a layer's output unchanged; shows its gradient, with the layer's input, on the way back.

    `handle` requires a gradient and gets none: it makes the pass reach the layers whose input requires none. The
    output is marked as written to, which hands on the very tensor, so that it may be changed in place afterwards.
    """

    @staticmethod
    def forward(ctx: Any, output: Tensor, handle: Tensor, show: Any, *inputs: Tensor) -> Tensor:
        ctx.show = show
        ctx.save_for_backward(*inputs)
        ctx.mark_dirty(output)
        return output

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        inputs = ctx.saved_tensors  # once: a checkpoint computes them when they are asked for
        ctx.show(inputs, gradient)
        return gradient if ctx.needs_input_grad[0] else None, *[None] * (2 + len(inputs))


class BookkeepingModule(AbstractGradSampleModule):
    """Wraps a module whose layers all have a rule.

    While a layer computes its output its parameters are detached, so that autograd computes no weight gradient. A
    parameter that is used in another way (not by calling its layer) would get an unclipped gradient: the backward
    pass is stopped with an error. All hooks are on the module itself, so that it does not matter whether the wrapper
    or the module is called. What is recorded is in the book alone, and in no copy of the module.
    """

    def __init__(
        self,
        m: nn.Module,
        *,
        batch_first: bool = True,
        loss_reduction: str = "mean",
        public_loss_weights: bool = False,
    ) -> None:
        super().__init__(m, batch_first=batch_first, loss_reduction=loss_reduction)
        self.book = self._new_book()
        self._dimension = 0 if batch_first else 1
        self._is_comparing = self._is_redoing = False
        self._handle = torch.zeros((), requires_grad=True)
        self._hooks: list[Any] = []
        self._attached: dict[nn.Module, list[tuple[nn.Module, dict[str, Any]]]] = {}
        self._replayed: set[nn.Module] = set()  # layers whose pass is computed once more
        self._generators: dict[nn.Module, Tensor] = {}
        self._looked_up_once: set[nn.Module] = set()  # embeddings of numbers that all examples share
        names = {p: name for name, p in m.named_parameters()}
        # Rules are tried out on their layers, so they come before any hook; the watch is to see a pass first.
        for name, layer, recorder in self._recorders(m):
            self._watch(name or type(layer).__name__, layer, recorder)
        self.watch = Watch(
            unwrapped(m),
            reduction=loss_reduction,
            per_example=self._gradients,
            dimension=self._dimension,
            public_weights=public_loss_weights,
            on_rows=self._open_book,
        )
        self.watch.see_outputs()
        parameters: list[Any] = [p for p in m.parameters() if p.requires_grad]
        for p in parameters:
            self._hooks.append(p.register_post_accumulate_grad_hook(partial(_refuse, names[p])))

    def _new_book(self) -> Book:
        return Book()

    def _recorders(self, m: nn.Module) -> list[tuple[str, nn.Module, Recorder]]:
        found = _ruled(m)
        for name, layer, rule in found:
            if rule is None:
                raise InvalidArgument("module", f"{name} ({type(layer).__name__})", "a layer that has a rule")
        return [(name, layer, partial(by_rule, rule)) for name, layer, rule in found if rule]

    def _open_book(self, rows: int) -> None:
        if not self.book.is_empty:
            raise ValueError(
                "a second pass before optimizer.step() or zero_grad(): gradients of two batches must not mix; "
                "use BatchMemoryManager for batches that do not fit into memory"
            )
        self.book.batch_size = rows

    def _gradients(self, score: Callable[[], Tensor], rows: int) -> dict[nn.Parameter, Tensor]:
        """What the book holds of a few rows, in full: for comparison with autograd."""
        self._is_comparing, batch_size = True, self.book.batch_size
        try:
            self.book.batch_size = rows
            total: Any = score()
            total.backward()
            return {p: torch.stack([c.per_example() for c in self.book.release(p)]).sum(dim=0) for p in self.book.kept}
        finally:
            self._is_comparing, self.book.batch_size = False, batch_size
            self.book.clear()

    def zero_grad(self, set_to_none: bool = False) -> None:
        self.book.clear()
        self.watch.forget_gradients()
        super().zero_grad(set_to_none)

    def remove_hooks(self) -> None:
        self.watch.remove()
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()

    def _watch(self, name: str, layer: nn.Module, recorder: Recorder) -> None:
        self._hooks += [
            # First, so that hooks which make a weight from parameters make it from detached ones.
            layer.register_forward_pre_hook(self._detach_parameters, with_kwargs=True, prepend=True),
            layer.register_forward_hook(partial(self._tap, name, recorder), with_kwargs=True, always_call=True),
        ]

    def _detach_parameters(self, layer: nn.Module, args: Any, kwargs: Any) -> Any:
        if not self._is_recording():
            return None
        self._attached[layer] = [(m, dict(m._parameters)) for m in layer.modules()]
        for m, attached in self._attached[layer]:
            for name, p in attached.items():
                if p is not None:
                    m._parameters[name] = p.detach()
        if layer in self._replayed:
            self._generators[layer] = torch.get_rng_state()
        if isinstance(layer, nn.Embedding) and args:
            return (self._for_each_example(layer, args[0]), *args[1:]), kwargs
        return None

    def _for_each_example(self, layer: nn.Embedding, ids: Tensor) -> Tensor:
        """Position numbers come once for all examples; each example needs its own gradient of them.

        They come as (1, T), or as (T), which is known from one number an example by not following the number of rows:
        a module is tried with two such numbers before it is trained.
        """
        rows = self.book.batch_size
        if ids.ndim > self._dimension and ids.ndim > 1 and ids.shape[self._dimension] == 1 < rows:
            return ids.expand(*(rows if d == self._dimension else n for d, n in enumerate(ids.shape)))
        if ids.ndim == 1 and self._dimension == 0:
            if len(ids) != rows:
                self._looked_up_once.add(layer)
            if layer in self._looked_up_once:
                return ids.expand(rows, len(ids))
        return ids

    def _tap(self, name: str, recorder: Recorder, layer: nn.Module, args: Any, kwargs: Any, output: Any) -> Any:
        if layer not in self._attached:
            return None
        for m, attached in self._attached.pop(layer):
            m._parameters.update(attached)
        generator = self._generators.pop(layer, None)
        if output is None:  # the layer failed; its own error is under way
            return None
        leaves, form = tree_flatten((args, kwargs))
        places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
        inputs = [leaves[i] for i in places]
        for i in places:
            leaves[i] = None  # autograd keeps them, as long as it needs them

        @in_full_precision
        def show(output: int, kept: tuple[Tensor, ...], gradient: Tensor) -> None:
            if self.book.batch_size == 0:
                return  # no examples, no contributions, whatever the module works on in their place
            if not (self.watch.in_backward or self._is_comparing):
                return  # a gradient for something else than the step, such as that of an input
            found = dict(zip(places, kept, strict=True))
            given = [found[i].detach() if i in found else leaf for i, leaf in enumerate(leaves)]
            called, named = tree_unflatten(given, form)
            self._record(name, layer, recorder, Inputs(called, named, generator, output), gradient)

        tap: Any = _Tap.apply
        outputs = floating(output)
        tapped = {}
        for i, t in enumerate(outputs):
            # A leaf cannot be written to (an input that was made to require a gradient), nor views of each other.
            own = t.clone() if len(outputs) > 1 or (t.is_leaf and t.requires_grad) else t
            tapped[id(t)] = tap(own, self._handle, partial(show, i), *inputs)
        return map_tensors(output, lambda t: tapped.get(id(t), t))

    def _record(self, name: str, layer: nn.Module, recorder: Recorder, inputs: Inputs, g: Tensor) -> None:
        rows = self._rows_of(layer, g)
        if rows != self.book.batch_size:
            raise InvalidArgument(
                "module",
                f"{name} ({type(layer).__name__})",
                f"the example as the {'second' if self._dimension else 'first'} dimension of every layer; it has "
                f"{rows} rows in a batch of {self.book.batch_size} examples; {ANY_MODULE}",
            )
        self._is_redoing, trying, self.watch.is_trying = True, self.watch.is_trying, True
        try:
            for parameter, contribution in recorder(layer, inputs, g):
                self.book.add(parameter, contribution)
        finally:
            self._is_redoing, self.watch.is_trying = False, trying

    def _rows_of(self, layer: nn.Module, g: Tensor) -> int:
        return g.shape[self._dimension] if g.ndim > self._dimension else 0

    def _is_recording(self) -> bool:
        """Not while the module is tried out, except for the pass that is compared."""
        trying = self._is_redoing or (self.watch.is_trying and not self._is_comparing)
        return torch.is_grad_enabled() and self.training and not trying


def _refuse(name: str, parameter: Tensor) -> None:
    parameter.grad = None
    raise InvalidArgument(
        "module",
        name,
        "parameters that are used by calling their layer, in training mode; it got a gradient that is not clipped "
        f"(call train() before the pass; freeze it, or use it in its own layer's forward; {ANY_MODULE})",
    )
