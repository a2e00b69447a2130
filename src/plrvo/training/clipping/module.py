"""A module that records, in one backward pass, what the per-example gradients of its parameters consist of."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

import torch
from opacus.grad_sample import AbstractGradSampleModule, GradSampleModule
from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized
from torch.utils._pytree import tree_flatten, tree_unflatten

from plrvo.training.apart import closeness
from plrvo.training.clipping.contributions import Contribution
from plrvo.training.clipping.drawn import Draw, Drawing
from plrvo.training.clipping.layers import Contributions, Rule, rule_of
from plrvo.training.clipping.linears import Lent, weight_of
from plrvo.training.clipping.positions import for_each_example
from plrvo.training.clipping.precision import in_full_precision, wide
from plrvo.training.clipping.recurrent import is_recurrent, take_own_weights, with_own_way_back
from plrvo.training.clipping.rows import Rows
from plrvo.training.clipping.tap import tap
from plrvo.training.sharded import shards_of
from plrvo.training.structure import map_tensors, tensors_in
from plrvo.training.unwrap import unwrapped
from plrvo.training.watch import Watch
from plrvo.validate import InvalidArgument

# What stands in the place of several small batches for one step.
ACCUMULATED = (
    "In the place of accumulation by hand, give the DataLoader the size of all of them as its batch_size; if that does "
    "not fit into memory, opacus.utils.batch_memory_manager.BatchMemoryManager cuts a batch into parts"
)


@dataclass(frozen=True)
class Inputs:
    """What a layer was called with, which output has the gradient, and what its pass began with and drew, if asked for.

    `rows`, `number` and `close` are for an output that is one number: of how many examples, its value, and how far from
    it the same by another way may be.
    """

    args: Any
    kwargs: Any
    generator: Tensor | None = None
    output: int = 0
    buffers: Mapping[str, Tensor] = field(default_factory=dict)
    drawn: Sequence[Draw] = ()
    rows: int = 0
    number: Tensor | None = None
    close: float = 0.0

    @property
    def first(self) -> Tensor:
        if self.args:
            return cast("Tensor", self.args[0])
        return cast("Tensor", self.kwargs["input"] if "input" in self.kwargs else next(iter(self.kwargs.values())))

    @property
    def others(self) -> dict[str, Any]:
        """By name."""
        return {name: value for name, value in self.kwargs.items() if value is not self.first}


ANY_MODULE = 'or grad_sample_mode="functorch", which is slower and asks nothing of layers'

Recorder = Callable[[nn.Module, Inputs, Tensor], Contributions]


def unsupported_layers(module: nn.Module) -> list[str]:
    """The names of layers that own trainable parameters and have no rule; empty where book-keeping works."""
    direct = dict(direct_owners(module))
    unruled = [(name, m) for name, m, rule in _ruled(module) if rule is None and name not in direct]
    return [f"{name or 'module'} ({type(m).__name__})" for name, m in unruled]


def _ruled(module: nn.Module) -> list[tuple[str, nn.Module, Rule | None]]:
    """Owners of trainable parameters, with their rules; not those of which all belong to a layer that has one.

    Recurrent layers are not among them, which have a way back of their own instead.
    """
    recurrent = dict(recurrent_layers(module))
    owners = [
        (name, m, rule_of(m))
        for name, m in module.named_modules()
        if own_parameters(m) and name not in recurrent and not isinstance(m, LISTS)
    ]
    covered = {p for _, m, rule in owners if rule for p in own_parameters(m)}
    covered.update(p for m in recurrent.values() for p in own_parameters(m))
    return [(name, m, rule) for name, m, rule in owners if rule or not covered.issuperset(own_parameters(m))]


def direct_owners(module: nn.Module) -> list[tuple[str, nn.Module]]:
    """Modules of the user's own that hold trainable parameters beside their layers (`direct`)."""
    return [(name, m) for name, m, rule in _ruled(module) if rule is None and _is_users_own(m)]


def _is_users_own(m: nn.Module) -> bool:
    """Layers of torch and of Opacus's, and those that have a function of Opacus's, are not."""
    libraries = (
        type(m).__module__.startswith("torch."),
        *(k.__module__.startswith("opacus.") for k in type(m).__mro__),
    )
    return not any(libraries) and type(m) not in GradSampleModule.GRAD_SAMPLERS and not is_parametrized(m)


def recurrent_layers(module: nn.Module) -> list[tuple[str, nn.Module]]:
    """Those that train."""
    return [(name, m) for name, m in module.named_modules() if own_parameters(m) and is_recurrent(m)]


LISTS = (nn.ParameterList, nn.ParameterDict)  # which are never called: what they hold belongs to whoever has them


def holders(module: nn.Module) -> list[nn.Module]:
    """Whose parameters are the module's own: it, and lists of parameters among its children."""
    return [module, *(m for child in module.children() if isinstance(child, LISTS) for m in holders(child))]


def own_parameters(module: nn.Module) -> list[nn.Parameter]:
    """Those that train, without those of its children."""
    return [p for m in holders(module) for p in m.parameters(recurse=False) if p.requires_grad]


def floating(output: Any) -> list[Tensor]:
    """The tensors of an output that can have a gradient."""
    return [t for t in tensors_in(output) if t.is_floating_point()]


def by_rule(rule: Rule, layer: nn.Module, inputs: Inputs, g: Tensor) -> Contributions:
    """Halves are widened before anything is multiplied: clipping and sums have singles at least."""
    return rule(layer, wide(inputs.first), wide(g), *inputs.args[1:], **inputs.others)


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

    @property
    def divided_by(self) -> int:
        """What a mean loss has divided the gradients by."""
        return self.batch_size


class _Gradients:
    """What a try asks of a wrapper."""

    def __init__(self, wrapper: BookkeepingModule) -> None:
        self._wrapper = wrapper

    def __call__(self, score: Callable[[], Tensor], rows: int) -> dict[nn.Parameter, Rows]:
        return self._wrapper._gradients(score, rows)

    def another_way(self, error: Exception) -> AbstractContextManager[bool]:
        return self._wrapper.another_way(error)

    @property
    def is_whole(self) -> bool:
        return self._wrapper.is_whole


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
        self._of_layer: dict[nn.Module, list[Any]] = {}  # hooks, too
        self._attached: dict[nn.Module, list[tuple[nn.Module, dict[str, Any]]]] = {}
        self._replayed: set[nn.Module] = set()  # layers whose pass is computed once more
        # Of these, in their pass: the generator and buffers before it, and what it draws.
        self._starts: dict[nn.Module, tuple[Tensor, dict[str, Tensor], Drawing]] = {}
        self._flat_weights: dict[nn.Module, tuple[list[Tensor], Tensor]] = {}  # of recurrent layers in their pass
        self._looked_up_once: set[nn.Module] = set()  # embeddings of numbers that all examples share
        # Which give each example its own in the pass under way; whether they were looked up with a dimension in front.
        self._spread: dict[nn.Module, bool] = {}
        self._shards = shards_of(unwrapped(m))
        names = {p: name for name, p in m.named_parameters()}
        # Rules are tried out on their layers, so they come before any hook; the watch is to see a pass first.
        with self._shards.whole():
            recorders = self._recorders(m)
        for name, layer, recorder in recorders:
            self._watch(name or type(layer).__name__, layer, recorder)
        self._lent = Lent(unwrapped(m), is_wanted=self._is_frozen_in_a_pass)
        self.watch = Watch(
            unwrapped(m),
            reduction=loss_reduction,
            per_example=_Gradients(self),
            dimension=self._dimension,
            public_weights=public_loss_weights,
            on_rows=self._open_book,
            shards=self._shards,
        )
        self.watch.see_outputs()
        parameters: list[Any] = [p for p in m.parameters() if p.requires_grad]
        for p in parameters:
            self._hooks.append(p.register_post_accumulate_grad_hook(partial(_refuse, names[p])))

    def _new_book(self) -> Book:
        return Book()

    @property
    def is_whole(self) -> bool:
        """Whether the whole module is computed once more for each example, so that there is no mode left to advise."""
        return False

    def another_way(self, error: Exception) -> AbstractContextManager[bool]:
        """To compute gradients, as long as what is within does not fail: whether there is one."""
        return nullcontext(False)

    def _recorders(self, m: nn.Module) -> list[tuple[str, nn.Module, Recorder]]:
        found = _ruled(m)
        for name, layer, rule in found:
            if rule is None:
                raise InvalidArgument("module", f"{name} ({type(layer).__name__})", "a layer that has a rule")
        for name, layer in recurrent_layers(m):
            self._watch_recurrent(name, layer)
        return [(name, layer, partial(by_rule, rule)) for name, layer, rule in found if rule]

    def _open_book(self, rows: int) -> None:
        if not self.book.is_empty:
            raise InvalidArgument(
                "backward",
                "a second pass before optimizer.step() or zero_grad()",
                f"one for each step: gradients of two batches must not mix. {ACCUMULATED}. Of several passes on one "
                "batch the losses are added up, and backward() is called once",
            )
        self.book.batch_size = rows

    def _gradients(self, score: Callable[[], Tensor], rows: int) -> dict[nn.Parameter, Rows]:
        """What the book holds of a few rows: for comparison with autograd."""
        self._is_comparing, batch_size = True, self.book.batch_size
        try:
            self.book.batch_size = rows
            total: Any = score()
            total.backward()
            return {p: Rows(p, self.book.release(p), rows) for p in self.book.kept}
        finally:
            self._is_comparing, self.book.batch_size = False, batch_size
            self.book.clear()

    def zero_grad(self, set_to_none: bool = False) -> None:
        self.book.clear()
        self.watch.forget_gradients()
        super().zero_grad(set_to_none)

    def remove_hooks(self) -> None:
        self.watch.remove()
        self._lent.remove()
        for layer in tuple(self._attached):  # of a pass that was interrupted
            self._attach_again(layer)
        for hook in (*self._hooks, *(hook for hooks in self._of_layer.values() for hook in hooks)):
            hook.remove()
        self._hooks.clear()
        self._of_layer.clear()

    def _watch(self, name: str, layer: nn.Module, recorder: Recorder) -> None:
        shown = partial(self._tap, name, recorder)
        # First, so that hooks which make a weight from parameters make it from detached ones; but within those that
        # gather the layer's parameters and let go of them.
        first = not self._shards.is_unit(layer)
        self._of_layer[layer] = [
            layer.register_forward_pre_hook(self._detach_parameters, with_kwargs=True, prepend=first),
            layer.register_forward_hook(shown, with_kwargs=True, prepend=not first, always_call=True),
        ]

    def _detach_parameters(self, layer: nn.Module, args: Any, kwargs: Any) -> Any:
        if not self._is_recording():
            return None
        refuse_within_itself(layer, self._attached)
        self._attached[layer] = [(m, dict(m._parameters)) for m in layer.modules()]
        for m, attached in self._attached[layer]:
            for name, p in attached.items():
                if p is not None:
                    used: Any = weight_of(m, name, p.detach())
                    m._parameters[name] = used
        if layer in self._replayed:
            buffers = {name: b.detach().clone() for name, b in layer.named_buffers()}
            self._starts[layer] = torch.get_rng_state(), buffers, (drawing := Drawing())
            drawing.resume()
        if isinstance(layer, nn.Embedding) and args:
            return (self._for_each_example(layer, args[0]), *args[1:]), kwargs
        return None

    def _watch_recurrent(self, name: str, layer: nn.Module) -> None:
        self._of_layer[layer] = [
            layer.register_forward_pre_hook(self._detach_flat_weights),
            layer.register_forward_hook(partial(self._go_back_by_gates, name), with_kwargs=True, always_call=True),
        ]

    def _detach_flat_weights(self, layer: Any, _: Any) -> None:
        if self._is_recording():
            self._flat_weights[layer] = layer._flat_weights, torch.get_rng_state()
            layer._flat_weights = [w.detach() for w in layer._flat_weights]

    def _go_back_by_gates(self, name: str, layer: Any, args: Any, kwargs: Any, output: Any) -> Any:
        if layer not in self._flat_weights:
            return None
        layer._flat_weights, generator = self._flat_weights.pop(layer)
        if output is None:
            return None

        def show(rows: int, contributions: Contributions) -> None:
            if self._is_wanted():
                self._note(name, layer, rows, contributions)

        named = dict(zip(("input", "hx"), args, strict=False)) | kwargs
        called = (named["input"], named.get("hx"))
        return with_own_way_back(layer, called, output, self._handle, generator, show)

    def _for_each_example(self, layer: nn.Embedding, ids: Tensor) -> Tensor:
        """Position numbers come once for all examples; each example needs its own gradient of them.

        They come as (1, T), or as (T), which is known from one number an example by not following the number of rows:
        a module is tried with two such numbers before it is trained. A single one, which broadcasts, says nothing about
        later calls.
        """
        rows = self.book.batch_size
        if ids.ndim > self._dimension and ids.ndim > 1 and ids.shape[self._dimension] == 1 < rows:
            if ids.ndim == 2 and self._dimension == 0:
                self._spread[layer] = True
            return ids.expand(*(rows if d == self._dimension else n for d, n in enumerate(ids.shape)))
        if ids.ndim == 1 and self._dimension == 0:
            if len(ids) not in (1, rows):
                self._looked_up_once.add(layer)
            if layer in self._looked_up_once or len(ids) != rows:
                self._spread[layer] = False
                return ids.expand(rows, len(ids))
        return ids

    def _tap(self, name: str, recorder: Recorder, layer: nn.Module, args: Any, kwargs: Any, output: Any) -> Any:
        if layer not in self._attached:
            return None
        self._attach_again(layer)
        is_spread, had_one = layer in self._spread, self._spread.pop(layer, False)
        generator, buffers, drawing = self._starts.pop(layer, (None, {}, None))
        if drawing is not None:
            drawing.pause()
        drawn = drawing.drawn if drawing is not None else []
        if output is None:  # the layer failed; its own error is under way
            return None
        inputs, again = _apart(args, kwargs)
        outputs = floating(output)
        numbers = {i: (t.detach(), closeness(layer)) for i, t in enumerate(outputs) if t.ndim == 0}

        def inputs_of(output: int, kept: tuple[Tensor, ...]) -> Inputs:
            began = (generator, output, buffers, drawn, self.book.batch_size, *numbers.get(output, ()))
            return Inputs(*again(kept), *began)

        show = partial(self._show, name, layer, recorder, inputs_of)
        tapped, is_ours = {}, self._is_seen_by_nobody(layer)
        for i, t in enumerate(outputs):
            # A leaf cannot be written to (an input that was made to require a gradient), nor views of each other, nor
            # what the layer itself goes back from: that of layers with a rule is never their output.
            is_kept = layer in self._replayed or len(outputs) > 1 or (t.is_leaf and t.requires_grad)
            tapped[id(t)] = tap(t.clone() if is_kept else t, self._handle, partial(show, i), is_ours, *inputs)
        if is_spread:
            tapped = {key: for_each_example(t, had_one) for key, t in tapped.items()}
        return map_tensors(output, lambda t: tapped.get(id(t), t))

    def _attach_again(self, layer: nn.Module) -> None:
        for m, attached in self._attached.pop(layer):
            m._parameters.update(attached)
        take_own_weights(layer)

    def _is_seen_by_nobody(self, layer: nn.Module) -> bool:
        """Whether no hook is given the layer's output before ours: it may be kept."""
        own = {handle.id for handle in self._of_layer.get(layer, ())}
        return next(iter(layer._forward_hooks)) in own and not torch.nn.modules.module._global_forward_hooks

    @in_full_precision
    def _show(
        self,
        name: str,
        layer: nn.Module,
        recorder: Recorder,
        inputs_of: Callable[[int, tuple[Tensor, ...]], Inputs],
        output: int,
        kept: tuple[Tensor, ...],
        gradient: Tensor,
    ) -> None:
        """What came back to a layer's output, with what autograd has kept of its inputs."""
        if self._is_wanted():
            self._record(name, layer, recorder, inputs_of(output, kept), gradient)

    def _record(self, name: str, layer: nn.Module, recorder: Recorder, inputs: Inputs, g: Tensor) -> None:
        self._note(name, layer, self._rows_of(layer, g), recorder(layer, inputs, g))

    def _note(self, name: str, layer: nn.Module, rows: int, contributions: Contributions) -> None:
        """Contributions are computed as they are asked for."""
        if rows != self.book.batch_size:
            raise InvalidArgument(
                "module",
                f"{name} ({type(layer).__name__})",
                f"the example as the {'second' if self._dimension else 'first'} dimension of every layer; it has "
                f"{rows} rows in a batch of {self.book.batch_size} examples, which are those of the first tensor that "
                f"the module is given: pass the batch first{'' if self.is_whole else f'; {ANY_MODULE}'}",
            )
        self._is_redoing, trying, self.watch.is_trying = True, self.watch.is_trying, True
        try:
            for parameter, contribution in contributions:
                self.book.add(self._shards.known(layer, parameter), contribution)
        finally:
            self._is_redoing, self.watch.is_trying = False, trying

    def _is_wanted(self) -> bool:
        """Whether a gradient is the step's, and not for something else, such as that of an input.

        No examples, no contributions, whatever the module works on in their place.
        """
        return self.book.batch_size > 0 and (self.watch.in_backward or self._is_comparing)

    def _rows_of(self, layer: nn.Module, g: Tensor) -> int:
        if g.ndim == 0 and layer in self._replayed:  # a number of all examples, which are computed one by one
            return self.book.batch_size
        return g.shape[self._dimension] if g.ndim > self._dimension else 0

    def _is_frozen_in_a_pass(self, layer: nn.Module) -> bool:
        """Whether nobody takes its parameters from it in a training pass, as those that learn are."""
        return self._is_recording() and not any(p.requires_grad for p in layer._parameters.values() if p is not None)

    def _is_recording(self) -> bool:
        """Not while the module is tried out, except for the pass that is compared."""
        trying = self._is_redoing or (self.watch.is_trying and not self._is_comparing)
        return torch.is_grad_enabled() and self.training and not trying


def _apart(args: Any, kwargs: Any) -> tuple[list[Tensor], Callable[[Sequence[Tensor]], tuple[Any, Any]]]:
    """The tensors that a layer is called with, and what puts them back among the rest, without their graph.

    Only the rest is kept here: autograd keeps the tensors, as long as it needs them.
    """
    if not kwargs and len(args) == 1 and isinstance(args[0], Tensor):  # of most layers
        return [args[0]], lambda kept: ((kept[0].detach(),), {})
    leaves, form = tree_flatten((args, kwargs))
    places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
    tensors = [leaves[i] for i in places]
    for i in places:
        leaves[i] = None

    def again(kept: Sequence[Tensor]) -> tuple[Any, Any]:
        found = dict(zip(places, kept, strict=True))
        given = [found[i].detach() if i in found else leaf for i, leaf in enumerate(leaves)]
        called: tuple[Any, Any] = tree_unflatten(given, form)
        return called

    return tensors, again


def refuse_within_itself(layer: nn.Module, under_way: Container[nn.Module]) -> None:
    """Parameters are replaced while their layer computes, and would be lost if it were called from within."""
    if layer in under_way:
        raise InvalidArgument("module", type(layer).__name__, f"layers that do not call themselves; {ANY_MODULE}")


def _refuse(name: str, parameter: Tensor) -> None:
    parameter.grad = None
    raise InvalidArgument(
        "module",
        name,
        "parameters that are used by calling their layer, in training mode; it got a gradient that is not clipped "
        f"(call train() before the pass; freeze it, or use it in its own layer's forward; {ANY_MODULE})",
    )
