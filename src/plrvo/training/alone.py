"""Examples that never meet: each is collated, computed and differentiated alone, and met by others in the sum only.

Everywhere else a module and a loss get a whole batch, and the engine tries whether they keep its examples apart. A try
can miss something. In this mode there is nothing to try: the gradient of an example e is

    g(w, e) = d loss(module, collate([e])) / d w

a function of the released weights and of e, whatever module, loss and collate function do with what they are given:
padding, sorting, normalising over the batch and statistics of it have one example to look at. So the sum of clipped
gradients moves by at most one clip when an example comes or goes. What the module keeps from a pass (buffers,
attributes) is put back after it, so that no example finds traces of another. What is left to the caller: a loss, a
collate function or a data set that keeps something of one example for the next on purpose.

Examples of one shape are computed at once by `torch.func.vmap`, under which none can see another, else one by one.

    module, optimizer, loader = engine.make_private(
        module=module, optimizer=optimizer, data_loader=loader, grad_sample_mode="alone",
        criterion=lambda module, example: cross_entropy(module(example[0]), example[1]),
    )
    for examples in loader:  # a list: each as the collate function gives it for a batch of one
        optimizer.zero_grad()
        loss = module.backward(examples)
        optimizer.step()
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Iterator
from typing import Any

import torch
from opacus.grad_sample import AbstractGradSampleModule
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap
from torch.utils._pytree import tree_flatten, tree_unflatten

from plrvo.training.bound import Bound
from plrvo.training.clipping.contributions import PerExample
from plrvo.training.clipping.module import Book
from plrvo.training.kept import Contents
from plrvo.training.unwrap import trained_parameters, unwrapped
from plrvo.validate import InvalidArgument

ALONE = "alone"
_NUMBERS = 1 << 26  # of gradients that are held at once
Criterion = Callable[[nn.Module, Any], Tensor]


def check_alone(criterion: Any, distributed: bool, batch_first: bool) -> None:
    """Refuse what this mode does not go with."""
    if not callable(criterion) or isinstance(criterion, nn.Module):
        raise InvalidArgument(
            "criterion",
            None if criterion is None else type(criterion).__name__,
            'with grad_sample_mode="alone" a function (module, example) that gives the loss of one example',
        )
    if distributed or not batch_first:
        raise InvalidArgument("grad_sample_mode", ALONE, "one process, and batch_first=True")


class CollateAlone:
    """A batch as a list of examples, each collated by itself."""

    def __init__(self, collate: Callable[[list[Any]], Any]) -> None:
        self.collate = collate

    def __call__(self, examples: list[Any]) -> list[Any]:
        return [self.collate([example]) for example in examples]


class AloneBook(Book):
    """Gradients of single losses, which no mean has divided."""

    divided_by = 1

    def __init__(self) -> None:
        super().__init__()
        self.optimizer: Any = None  # which takes parts of a batch


class Unwatched(Bound):
    """In the place of a watch, where there is nothing to be seen."""

    learned_before = False  # gradients are taken of the module's parameters alone

    def __init__(self, module: nn.Module) -> None:
        super().__init__(module)
        self.seen_loss = False
        self._hook = module.register_forward_pre_hook(self.mark)

    def mark(self, *_: Any) -> None:
        """Tells that the module is an engine's."""

    def __deepcopy__(self, memo: Any) -> Bound:
        return Bound(None)

    def __reduce__(self) -> Any:
        return Bound, (None,)

    def new_step(self) -> None:
        self.seen_loss = False

    def forget_gradients(self) -> None:
        self.seen_loss = False

    def pause(self) -> None:
        """Nothing is heard."""

    def go_on(self) -> None:
        """Nor from here on."""

    def remove(self) -> None:
        self._hook.remove()


class _Objective(nn.Module):
    """The loss of an example as a module, whose parameters torch.func can put others in the place of."""

    def __init__(self, module: nn.Module, criterion: Criterion) -> None:
        super().__init__()
        self.module, self._criterion = module, criterion

    def forward(self, example: Any) -> Tensor:
        loss: Any = self._criterion(self.module, example)
        if not isinstance(loss, Tensor) or loss.numel() != 1:
            shape = tuple(loss.shape) if isinstance(loss, Tensor) else type(loss).__name__
            raise InvalidArgument("criterion", shape, "a tensor of one number, the loss of the one example")
        return loss.reshape(())


class AloneModule(AbstractGradSampleModule):
    """Wraps a module; `backward` takes the place of a loss and its backward pass. Calls of it compute, and no more."""

    def __init__(self, m: nn.Module, *, criterion: Criterion, loss_reduction: str = "mean") -> None:
        super().__init__(m, batch_first=True, loss_reduction=loss_reduction)
        own = unwrapped(m)
        self.watch, self.book = Unwatched(own), AloneBook()
        self._trained = {f"module.{name}": p for name, p in own.named_parameters() if p.requires_grad}
        self._objective = [_Objective(own, criterion)]  # in a list: its parameters are the module's
        self._at_once = True
        self.most_at_once = max(1, _NUMBERS // max(1, trained_parameters(own)))  # examples; the caller may take fewer

    def __reduce__(self) -> Any:
        raise TypeError("a module of grad_sample_mode='alone' is not pickled: save module.to_standard_module()")

    def zero_grad(self, set_to_none: bool = False) -> None:
        self.book.clear()
        self.watch.forget_gradients()
        super().zero_grad(set_to_none)

    def remove_hooks(self) -> None:
        self.watch.remove()

    def backward(self, examples: list[Any]) -> Tensor:
        """The gradient of every example's own loss, for the step that follows; returns the mean of these losses."""
        if not isinstance(examples, list):
            raise InvalidArgument("examples", type(examples).__name__, "a batch of the loader: a list of examples")
        if not self.book.is_empty:
            raise ValueError("a second pass before optimizer.step() or zero_grad(): a step has one batch")
        trainable = {id(p) for p in unwrapped(self._module).parameters() if p.requires_grad}
        if trainable != {id(p) for p in self._trained.values()}:
            raise InvalidArgument("module", "parameters", "those trainable that were when it was made private")
        losses: list[Tensor] = []
        for part in self._parts(examples):
            if losses:  # the part before this one has others behind it
                self.book.optimizer.signal_skip_step()
                self.book.optimizer.step()
            losses.append(self._take(part))
        return torch.cat(losses).mean() if losses else torch.zeros(())

    def _parts(self, examples: list[Any]) -> Iterator[list[Any]]:
        """Examples of one form, few enough for memory."""
        alike: dict[Hashable, list[Any]] = {}
        for example in examples:
            alike.setdefault(_form(example), []).append(example)
        for group in alike.values():
            for start in range(0, len(group), self.most_at_once):
                yield group[start : start + self.most_at_once]

    def _take(self, part: list[Any]) -> Tensor:
        gradients, losses = self._gradients(part)
        self.book.batch_size = len(part)
        for name, found in gradients.items():
            self.book.add(self._trained[name], PerExample(found))
        self.watch.seen_loss = True
        return losses.detach()

    def _gradients(self, part: list[Any]) -> tuple[dict[str, Tensor], Tensor]:
        objective, values = self._objective[0], {name: p.detach() for name, p in self._trained.items()}
        if self._at_once:
            leaves = [tree_flatten(example)[0] for example in part]
            where = [0 if isinstance(leaf, Tensor) else None for leaf in leaves[0]]
            stacked = [
                torch.stack(found) if d == 0 else found[0]
                for d, found in zip(where, zip(*leaves, strict=True), strict=True)
            ]
            form = tree_flatten(part[0])[1]

            def loss_of(values: dict[str, Tensor], *leaves: Any) -> Tensor:
                return objective_of(objective, values, tree_unflatten(list(leaves), form))

            kept = Contents(objective)
            try:
                together = vmap(grad_and_value(loss_of), in_dims=(None, *where), randomness="different")
                found, losses = together(values, *stacked)
                return found, losses
            except (RuntimeError, NotImplementedError) as error:  # such as values that decide what is computed
                self._at_once = False
                reason = " ".join(str(error).split())[:200]
                warnings.warn(f"grad_sample_mode: one example after the other, which is slower: {reason}", stacklevel=4)
            finally:
                kept.put_back()
        return _one_by_one(objective, values, part)


def objective_of(objective: nn.Module, values: dict[str, Tensor], example: Any) -> Tensor:
    """The loss with these parameters, and with copies of the buffers, which the pass may write to."""
    buffers = {name: b.clone() for name, b in objective.named_buffers()}
    loss: Tensor = functional_call(objective, {**values, **buffers}, (example,))
    return loss


def _one_by_one(objective: nn.Module, values: dict[str, Tensor], part: list[Any]) -> tuple[dict[str, Tensor], Tensor]:
    rows, losses = [], []
    for example in part:
        own = {name: value.clone().requires_grad_() for name, value in values.items()}
        kept = Contents(objective)
        try:
            with torch.enable_grad():
                loss = objective_of(objective, own, example)
            if not loss.requires_grad:  # it depends on no parameter
                loss = loss + 0.0 * next(iter(own.values())).sum()
            rows.append(torch.autograd.grad(loss, list(own.values()), allow_unused=True, materialize_grads=True))
        finally:
            kept.put_back()
        losses.append(loss.detach())
    return {name: torch.stack(g) for name, g in zip(values, zip(*rows, strict=True), strict=True)}, torch.stack(losses)


def _form(example: Any) -> Hashable:
    """What examples must share to be computed at once: containers, shapes, and everything that is no tensor."""
    leaves, form = tree_flatten(example)
    return str(form), tuple(
        (tuple(leaf.shape), leaf.dtype, leaf.device) if isinstance(leaf, Tensor) else (type(leaf).__name__, repr(leaf))
        for leaf in leaves
    )
