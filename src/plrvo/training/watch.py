"""What a private module is held to, whoever calls it: hooks on the user's own module, not on a wrapper around it.

Before each training pass: its trainable parameters are those that the plan was made for, and on its first batch (and
whenever a layer changed between train() and eval()) it is tried out (`probe`). Before each backward pass: the loss is
a sum over examples (`loss_form`). A copy of the module is under no engine: it computes, but does not train.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from plrvo.training.loss_form import Factors, NotASum, before_backward, crossing, depends_on
from plrvo.training.probe import Call, PerExample, probe, tensors_in
from plrvo.validate import InvalidArgument

_TRIED_FOR_CROSSING = 3  # batches: a loss does not change its form later without changing its factors


class Watch:
    """Watches one module for one engine."""

    def __init__(
        self,
        module: nn.Module,
        *,
        reduction: str,
        per_example: PerExample,
        dimension: int = 0,
        public_weights: bool = False,
        on_rows: Callable[[int], None] | None = None,
        on_try: Callable[[bool], None] | None = None,
    ) -> None:
        refuse_private(module)
        self.module: nn.Module | None = module
        self._reduction, self._per_example, self._dimension = reduction, per_example, dimension
        self._factors = None if public_weights else Factors(reduction)
        self._on_rows, self._on_try = on_rows, on_try
        self._trainable = {p for p in module.parameters() if p.requires_grad}
        self._tried: set[tuple[bool, ...]] = set()
        self._losses = 0
        self._outputs: list[Tensor] = []
        self.rows = 0
        self.seen_loss = False
        self.is_trying = False
        self._undo = [
            module.register_forward_pre_hook(self._before, with_kwargs=True).remove,
            before_backward(self._check_loss),
        ]

    def __deepcopy__(self, memo: Any) -> Watch:
        return _watch_of_a_copy()

    def __reduce__(self) -> Any:
        return _watch_of_a_copy, ()

    def see_outputs(self) -> None:
        """From now on; after the wrapper's own hooks, which may have the last word on what comes out."""
        if self.module is not None:
            self._undo.append(self.module.register_forward_hook(self._after).remove)

    def remove(self) -> None:
        """Leave the module as it was."""
        while self._undo:
            self._undo.pop()()

    def new_step(self) -> None:
        """The step is settled: what comes next belongs to another one."""
        self.seen_loss, self._outputs = False, []

    def _before(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        if self.is_trying or not (module.training and torch.is_grad_enabled()):
            return
        if module is not self.module:
            raise InvalidArgument(
                "module", type(module).__name__, "the module that make_private returned; a copy of it is not private"
            )
        now = {p for p in module.parameters() if p.requires_grad}
        if now - self._trainable:
            names = {p: name for name, p in module.named_parameters()}
            raise InvalidArgument(
                "module",
                names[next(iter(now - self._trainable))],
                "the parameters that were trainable in make_private; unfreeze before it, with a plan of that dimension",
            )
        self.rows = rows_of(args, kwargs, self._dimension)
        if self._on_rows:
            self._on_rows(self.rows)
        modes = tuple(m.training for m in module.modules())
        if modes not in self._tried and self.rows:
            self._try(module, Call(args, kwargs, self.rows, self._dimension))
            if self.rows > 1:
                self._tried.add(modes)

    def _try(self, module: nn.Module, call: Call) -> None:
        self._set_trying(True)
        try:
            probe(module, call, self._per_example, self._reduction)
        finally:
            self._set_trying(False)

    def _set_trying(self, trying: bool) -> None:
        self.is_trying = trying
        if self._on_try:
            self._on_try(trying)

    def _after(self, module: nn.Module, args: Any, output: Any) -> None:
        if not self.is_trying and module is self.module and module.training and torch.is_grad_enabled():
            self._outputs = [t for t in tensors_in(output) if t.requires_grad]

    def _check_loss(self, loss: Tensor, weight: float) -> None:
        if self.is_trying or not self._outputs or loss.grad_fn is None or not depends_on(loss, self._outputs):
            return
        self.seen_loss = True
        if loss.ndim:
            raise NotASum(
                f"loss: expected one number, a {self._reduction} over examples; it has shape {tuple(loss.shape)}"
            )
        rows = [o for o in self._outputs if o.ndim > self._dimension]
        if self._factors is not None:
            self._factors.check(loss, rows, self.rows, weight)
        if self._losses < _TRIED_FOR_CROSSING:
            self._set_trying(True)  # its passes through the outputs are nobody's gradients
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # the backward pass itself will say what there is to say
                    crosses = crossing(loss, rows, self._dimension)
            finally:
                self._set_trying(False)
            if crosses:
                raise NotASum(
                    "loss: expected a sum over examples; the gradient at one example's output changes with another's "
                    "output, as in contrastive losses and in functions of the batch's loss"
                )
            self._losses += self.rows > 1


def _watch_of_a_copy() -> Watch:
    """What the hooks of a copied or unpickled module belong to: it knows no module."""
    watch = object.__new__(Watch)
    watch.module, watch.is_trying = None, False
    return watch


def refuse_private(module: nn.Module) -> None:
    """One engine, one wrapping."""
    for m in module.modules():
        for hook in m._forward_pre_hooks.values():
            owner = getattr(hook, "__self__", None)
            if isinstance(owner, Watch) and owner.module is m:
                raise InvalidArgument(
                    "module",
                    type(module).__name__,
                    "a module that is not private yet; make_private was called with it before (a budget holds for all "
                    "steps on the same data)",
                )


def rows_of(args: Any, kwargs: Any, dimension: int = 0) -> int:
    """How many examples a call of the module has: the size of the first tensor's dimension of examples."""
    for value in (*args, *kwargs.values()):
        for tensor in tensors_in(value):
            if tensor.ndim > dimension:
                return int(tensor.shape[dimension])
    raise InvalidArgument("module", "inputs", "a tensor among its inputs, whose first dimension is the example")
