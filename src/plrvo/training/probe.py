"""Tries a module on its first batch: are examples apart, and are their gradients right?

A list of layers that mix examples is never complete, and a rule for a layer's gradient is right only as long as nobody
has overridden what the layer does. Both can be tried, on a few rows of a batch, with every generator in the same state
for every pass, so that dropout falls alike:

- *apart*: the other rows are replaced by copies of one, the first and then the last; that row's outputs must stay as
  they were, in every layer (a head that starts at zero hides what is before it), and buffers must become the same as
  with the true rows (running statistics do not);
- *gradients*: those of each row alone, by plain autograd, must be what the wrapper computes for that row.

Where nothing can be compared, the module is refused: what was not tried is not certified.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from plrvo.training.loss_form import NotASum
from plrvo.validate import InvalidArgument

ROWS = 8  # of the batch
_APART = 1e-5  # relative: passes of one shape give the same bits, so that a trace of other rows is seen
_CLOSE = 1e-3  # relative, for gradients by two ways: rounding is far below, and a wrong rule far above
_CLOSE_HALF = 5e-2  # where activations have eight bits

# From a function that gives the sum of all rows' scores, and the number of rows, to the gradients of each row.
PerExample = Callable[[Callable[[], Tensor], int], dict[nn.Parameter, Tensor]]
Trace = list[tuple[str, list[Tensor]]]


@dataclass(frozen=True)
class Call:
    """A call of the module: its arguments, the number of rows, and the dimension in which the rows lie."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    rows: int
    dimension: int = 0

    def first(self, count: int) -> Call:
        """With the first rows only."""
        return self._mapped(lambda t: t.narrow(self.dimension, 0, count), count)

    def copies(self, row: int) -> Call:
        """With one row in the place of all others."""
        return self._mapped(lambda t: t.narrow(self.dimension, row, 1).expand_as(t).contiguous(), self.rows)

    def single(self, row: int) -> Call:
        """With one row only."""
        return self._mapped(lambda t: t.narrow(self.dimension, row, 1), 1)

    def one_made_up(self) -> Call:
        """Of a call without rows: with one row of ones."""

        def ones(t: Tensor) -> Tensor:
            return t.new_ones([1 if d == self.dimension else n for d, n in enumerate(t.shape)])

        return self._mapped(ones, 1)

    def tensors(self) -> list[Tensor]:
        return tensors_in((self.args, dict(self.kwargs)))

    def _mapped(self, change: Callable[[Tensor], Tensor], rows: int) -> Call:
        def change_rows(t: Tensor) -> Tensor:
            return change(t) if t.ndim > self.dimension and t.shape[self.dimension] == self.rows else t

        args, kwargs = map_tensors((self.args, dict(self.kwargs)), change_rows)
        return Call(args, kwargs, rows, self.dimension)


def probe(module: nn.Module, call: Call, per_example: PerExample, reduction: str) -> None:
    """Raise unless the module keeps examples apart and `per_example` gives their gradients."""
    few = call.first(min(ROWS, call.rows))
    # A NaN equals nothing, itself included: such rows tell nothing about the module.
    if not all(bool(torch.isfinite(t).all()) for t in few.tensors() if t.is_floating_point()):
        few = _finite(few)
    state = _State(module)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the first step will say what there is to say
            try:
                first = _trace(module, few, state)
            except Exception:  # a module that takes no few rows: all of them, and its own error if those fail too
                few = call
                first = _trace(module, few, state)
            _check_apart(module, few, state, first)
            _compare_gradients(module, few, per_example, state)
            _check_own_loss(module, few, reduction, state)
    finally:
        state.restore()


class _State:
    """Buffers, modes and generators, to start every pass from."""

    def __init__(self, module: nn.Module) -> None:
        self._module = module
        self._buffers = {name: b.detach().clone() for name, b in module.named_buffers()}
        self._modes = [(m, m.training) for m in module.modules()]
        self._device = next((p.device for p in module.parameters()), torch.device("cpu"))

    @contextmanager
    def fresh(self) -> Iterator[None]:
        """As at the beginning, with generators in the same state each time, and as they were afterwards."""
        self.restore()
        devices = [self._device] if self._device.type == "cuda" else []
        # Python's and NumPy's global generators too: a module that draws from them is nobody's business but its own.
        python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002
        try:
            with torch.random.fork_rng(devices=devices):
                torch.manual_seed(0)
                random.seed(0)
                np.random.seed(0)  # noqa: NPY002
                yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)  # noqa: NPY002

    def buffers_now(self) -> dict[str, Tensor]:
        return {name: b.detach().clone() for name, b in self._module.named_buffers()}

    def restore(self) -> None:
        with torch.no_grad():
            for name, b in self._module.named_buffers():
                kept = self._buffers.get(name)
                if kept is not None and kept.shape == b.shape:
                    b.copy_(kept)
        for m, training in self._modes:
            m.training = training


def _trace(module: nn.Module, call: Call, state: _State) -> Trace:
    """The outputs of every layer in the order of the pass, the module's own last, then the buffers after it."""
    seen: Trace = []

    def note(name: str) -> Any:
        def hook(m: nn.Module, args: Any, output: Any) -> None:
            seen.append((f"{name} ({type(m).__name__})", _by_row(output, call)))

        return hook

    hooks = [m.register_forward_hook(note(name)) for name, m in module.named_modules() if name]
    try:
        with state.fresh(), torch.no_grad():
            output = module(*call.args, **call.kwargs)
            buffers = state.buffers_now()
    finally:
        for hook in hooks:
            hook.remove()
    return [*seen, ("forward itself", _by_row(output, call)), *((f"buffer {n}", [b]) for n, b in buffers.items())]


def _check_apart(module: nn.Module, call: Call, state: _State, first: Trace) -> None:
    name = type(module).__name__
    if not _same(first, _trace(module, call, state), None):
        raise InvalidArgument(
            "module", name, "outputs that are the same in two equal passes; it draws randomness that torch, NumPy and "
            "Python do not know of, and whether it keeps examples apart cannot be tried"
        )  # fmt: skip
    if call.rows < 2:
        return
    compared = False
    for row in (0, call.rows - 1):
        other = _trace(module, call.copies(row), state)
        for (layer, one), (_, two) in zip(first, other, strict=False):
            if layer.startswith("buffer "):
                if not _all_close(one, two):
                    raise InvalidArgument(
                        "module",
                        name,
                        f"buffers that do not depend on examples; {layer.removeprefix('buffer ')} changes with them in "
                        "forward, and would be released without noise (running statistics: "
                        "track_running_stats=False, or eval() for that layer)",
                    )
                continue
            compared = compared or bool(one)
            if not _all_close([o[row] for o in one], [t[row] for t in two]):
                raise InvalidArgument(
                    "module",
                    name,
                    f"outputs of an example that do not change with other examples; {layer} mixes them "
                    "(PrivacyEngine.get_compatible_module(module) replaces batch normalisation)",
                )
    if not compared and not any(t.ndim == 0 for t in _outputs(module, call, state)):
        raise InvalidArgument(
            "module", name, "outputs, or layers, with a row for each example, so that it can be tried whether it keeps "
            "examples apart"
        )  # fmt: skip


def _outputs(module: nn.Module, call: Call, state: _State) -> list[Tensor]:
    with state.fresh(), torch.no_grad():
        return tensors_in(module(*call.args, **call.kwargs))


def _same(one: Trace, other: Trace, row: int | None) -> bool:
    return len(one) == len(other) and all(_all_close(a, b) for (_, a), (_, b) in zip(one, other, strict=True))


def _by_row(output: Any, call: Call) -> list[Tensor]:
    """The floating-point tensors of an output with the rows first; positions of a row may lie in the rows as well."""
    found = []
    for t in tensors_in(output):
        if not t.is_floating_point() or t.ndim == 0:
            continue
        if t.ndim > call.dimension and t.shape[call.dimension] == call.rows:
            found.append(t.detach().movedim(call.dimension, 0).clone())
        elif call.dimension == 0 and t.shape[0] and t.shape[0] % call.rows == 0:
            found.append(t.detach().reshape(call.rows, -1).clone())
    return found


def _compare_gradients(module: nn.Module, call: Call, per_example: PerExample, state: _State) -> None:
    parameters = [p for p in module.parameters() if p.requires_grad]
    generator = torch.Generator().manual_seed(1)

    def scores(tried: Call) -> list[Tensor]:
        """One number for each row: its outputs, weighed at random."""
        generator.manual_seed(1)
        outputs = [o for o in _rows_of(module(*tried.args, **tried.kwargs), tried) if o.requires_grad]
        weights = [torch.randn(o.select(tried.dimension, 0).shape, generator=generator).to(o) for o in outputs]
        return [
            sum(
                ((o.select(tried.dimension, i) * w).sum() for o, w in zip(outputs, weights, strict=True)),
                torch.zeros(()),
            )
            for i in range(tried.rows)
        ]

    with state.fresh(), torch.enable_grad():
        alone = scores(call)
        if not alone or alone[0].grad_fn is None:
            return
        expected: list[Any] = [torch.autograd.grad(s, parameters, retain_graph=True, allow_unused=True) for s in alone]
    with state.fresh(), torch.enable_grad():
        found = per_example(lambda: torch.stack(scores(call)).sum(), call.rows)
    singles = all(p.dtype in (torch.float32, torch.float64) for p in module.parameters())
    halves = not singles or torch.is_autocast_enabled(parameters[0].device.type)
    close = _CLOSE_HALF if halves else _CLOSE
    names = {p: name for name, p in module.named_parameters()}
    for row, gradients in enumerate(expected):
        norms = [0.0 if g is None else float(g.double().norm()) for g in gradients]
        whole = sum(n * n for n in norms) ** 0.5
        for p, g, norm in zip(parameters, gradients, norms, strict=True):
            ours = found.get(p)
            mine = torch.zeros_like(p) if ours is None or len(ours) != call.rows else ours[row]
            difference = float((mine.double() - (0 if g is None else g.double())).norm())
            if difference > close * (norm + 0.1 * whole):
                raise InvalidArgument(
                    "module",
                    type(module).__name__,
                    f"layers whose gradients can be computed by example; that of {names[p]} is off by "
                    f"{difference / max(whole, 1e-30):.1%} of the example's gradient. Its layer may be overridden, "
                    "checkpointed, used outside of its own call, or look up ids once for all examples (give each its "
                    "own: ids.expand(len(x), -1)); freeze it, or try another grad_sample_mode",
                )


def _check_own_loss(module: nn.Module, call: Call, reduction: str, state: _State) -> None:
    """A loss that the module computes itself must be the mean (or sum) of its examples' losses."""

    def losses(tried: Call) -> list[float]:
        with state.fresh(), torch.no_grad():
            module.eval()  # without dropout, which falls differently in batches of other sizes
            output = module(*tried.args, **tried.kwargs)
        named = output.get("loss") if isinstance(output, Mapping) else None
        numbers = [t for t in tensors_in(output) if t.ndim == 0 and t.is_floating_point()]
        # Among other outputs a number may be a metric; alone it is what is trained on.
        chosen = [named] if isinstance(named, Tensor) else numbers if len(numbers) == len(tensors_in(output)) else []
        return [float(t) for t in chosen if t.ndim == 0]

    together = losses(call)
    if not together or call.rows < 2:
        return
    singles = [losses(call.single(row)) for row in range(call.rows)]
    for i, loss in enumerate(together):
        total = sum(single[i] for single in singles)
        expected = total / call.rows if reduction == "mean" else total
        if abs(loss - expected) > _CLOSE * abs(expected) + 1e-6:
            raise NotASum(
                f"the loss that {type(module).__name__} returns is {loss:.4g}; the {reduction} of its examples' "
                f"losses is {expected:.4g}. Compute a loss for each example from the outputs, then their {reduction}"
            )


def _finite(call: Call) -> Call:
    """The call with zeros in the place of numbers that are none."""
    args, kwargs = map_tensors(
        (call.args, dict(call.kwargs)),
        lambda t: torch.nan_to_num(t, 0.0, 0.0, 0.0) if t.is_floating_point() else t,
    )
    return Call(args, kwargs, call.rows, call.dimension)


def _rows_of(output: Any, call: Call) -> list[Tensor]:
    """The floating-point tensors among a module's outputs that have a row for each example."""
    return [
        t
        for t in tensors_in(output)
        if t.is_floating_point() and t.ndim > call.dimension and t.shape[call.dimension] == call.rows
    ]


def without_rows(output: Any, dimension: int) -> Any:
    """The output of one made-up example without that example."""
    return map_tensors(
        output, lambda t: t.narrow(dimension, 0, 0) if t.ndim > dimension and t.shape[dimension] == 1 else t
    )


def _all_close(one: list[Tensor], other: list[Tensor]) -> bool:
    if len(one) != len(other):
        return False
    for a, b in zip(one, other, strict=True):
        if a.shape != b.shape:
            return False
        a, b = a.double(), b.double()
        size = float(torch.nan_to_num(a.abs(), 0.0, 0.0, 0.0).max()) if a.numel() else 0.0
        if not torch.allclose(a, b, rtol=_APART, atol=_APART * size, equal_nan=True):
            return False
    return True


def tensors_in(value: Any) -> list[Tensor]:
    """All tensors in containers of any depth."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, Mapping):
        return [t for item in value.values() for t in tensors_in(item)]
    if isinstance(value, (list, tuple)):
        return [t for item in value for t in tensors_in(item)]
    return []


def map_tensors(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """The same containers, with every tensor changed."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, Mapping):
        mapped = {key: map_tensors(item, change) for key, item in value.items()}
        try:
            made: Any = type(value)
            return mapped if made is dict else made(mapped)
        except TypeError:
            return mapped if not hasattr(value, "to_tuple") else type(value)(**mapped)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(map_tensors(item, change) for item in value))
    if isinstance(value, (list, tuple)):
        return type(value)(map_tensors(item, change) for item in value)
    return value
