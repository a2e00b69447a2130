"""Examples that never meet: each is collated, computed and differentiated alone, and met by others in the sum only.

Everywhere else a module and a loss get a whole batch, and the engine tries whether they keep its examples apart. A try
can miss something. In this mode there is nothing to try: the gradient of an example e is

    g(w, e) = d loss(module, collate([e])) / d w

a function of the released weights and of e, whatever module, loss and collate function do with what they are given:
padding, sorting, normalising over the batch and statistics of it have one example to look at. So the sum of clipped
gradients moves by at most one clip when an example comes or goes. Every pass is one of a copy of the module, so that no
example finds traces of another, and nothing of an example stays. What is left to the caller: a loss, a collate function
or a data set that keeps something of one example for the next, outside of the module.

Examples of one shape are computed at once by `torch.func.vmap`, under which none can see another, else one by one. All
that they share is weights and plain values (texts, numbers) that are equal. In exact mode they go one by one: how many
are computed at once shows in the last bits of each.

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

import copy
import warnings
from collections.abc import Callable, Hashable, Iterator
from typing import Any, cast

import torch
from opacus.grad_sample import AbstractGradSampleModule
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap
from torch.utils._pytree import tree_flatten, tree_unflatten
from torch.utils.data import Dataset

from plrvo.training.bound import Bound
from plrvo.training.clipping.contributions import PerExample
from plrvo.training.clipping.module import Book
from plrvo.training.unwrap import trained_parameters, unwrapped
from plrvo.validate import InvalidArgument

ALONE = "alone"
_NUMBERS = 1 << 26  # of gradients that are held at once
_PLAIN = (str, bytes, int, float, bool, type(None))  # of these, equal texts are equal values
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


def refuse_alone(mode: str) -> None:
    """Where there is no loop of the caller's."""
    if mode == ALONE:
        raise InvalidArgument(
            "grad_sample_mode", ALONE, "another mode: this one asks a loop of your own for the loss of one example"
        )


class FetchAlone(Dataset[Any]):
    """A data set that is asked for one example at a time, also where it could give a whole batch."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, i: int) -> Any:
        several = getattr(self.dataset, "__getitems__", None)
        return self.dataset[i] if several is None else several([i])[0]


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

    def __init__(
        self, m: nn.Module, *, criterion: Criterion, loss_reduction: str = "mean", exact: bool = False
    ) -> None:
        super().__init__(m, batch_first=True, loss_reduction=loss_reduction)
        own = unwrapped(m)
        self.watch, self.book = Unwatched(own), AloneBook()
        self._trained = {name: p for name, p in own.named_parameters() if p.requires_grad}
        self._criterion = criterion
        # Torch gets through recurrent layers all at once, by a way that is slower than one by one.
        self._at_once = not exact and not any(isinstance(m, nn.RNNBase) for m in own.modules())
        self._is_tried = False
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
        try:
            for part in self._parts(examples):
                if losses:  # the part before this one has others behind it
                    self.book.optimizer.take_part()
                losses.append(self._take(part))
        except BaseException:
            self.book.optimizer.abandon()
            raise
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
        own = unwrapped(self._module)
        if not self._is_tried:
            self._try(own, part[0])
        if self._at_once and any(isinstance(leaf, Tensor) for leaf in tree_flatten(part[0])[0]):
            try:
                return _at_once(own, self._criterion, self._trained, part)
            except (RuntimeError, NotImplementedError) as error:  # such as values that decide what is computed
                self._go_one_by_one(" ".join(str(error).split()).partition(". ")[0])
        return _one_by_one(own, self._criterion, list(self._trained), part)

    def _try(self, own: nn.Module, example: Any) -> None:
        """Once: that the loss is the given module's, and that both ways find all uses of its parameters."""
        (alone, _), names = _one_by_one(own, self._criterion, list(self._trained), [example]), list(self._trained)
        self._is_tried = True
        if not self._at_once or not any(isinstance(leaf, Tensor) for leaf in tree_flatten(example)[0]):
            return
        try:
            found, _ = _at_once(own, self._criterion, self._trained, [example])
        except (RuntimeError, NotImplementedError):
            return  # as the batch will say
        again, _ = _one_by_one(own, self._criterion, names, [example])
        is_random = any(not torch.equal(alone[name], again[name]) for name in names)
        if not is_random and any(not _are_close(alone[name], found[name]) for name in names):
            self._go_one_by_one("torch.func does not find all uses of a parameter")

    def _go_one_by_one(self, reason: str) -> None:
        self._at_once = False
        warnings.warn(f"grad_sample_mode: one example after the other: {reason[:200]}", stacklevel=5)


def _copied(module: nn.Module) -> nn.Module:
    try:
        return copy.deepcopy(module)
    except Exception as error:
        raise InvalidArgument(
            "module", type(module).__name__, f"one that copy.deepcopy can copy ({' '.join(str(error).split())[:200]})"
        ) from None


def _at_once(
    module: nn.Module, criterion: Criterion, trained: dict[str, nn.Parameter], part: list[Any]
) -> tuple[dict[str, Tensor], Tensor]:
    """All by torch.func; what examples share are plain values, which are equal in a part."""
    objective = _Objective(_copied(module), criterion)
    leaves, form = [tree_flatten(example)[0] for example in part], tree_flatten(part[0])[1]
    where = [0 if isinstance(leaf, Tensor) else None for leaf in leaves[0]]
    stacked = [
        torch.stack(found) if d == 0 else found[0] for d, found in zip(where, zip(*leaves, strict=True), strict=True)
    ]
    fixed = {name: p.detach().clone() for name, p in objective.named_parameters() if not p.requires_grad}
    fixed |= {name: b.clone() for name, b in objective.named_buffers()}

    def loss_of(values: dict[str, Tensor], *leaves: Any) -> Tensor:
        example = tree_unflatten(list(leaves), form)
        return cast("Tensor", functional_call(objective, {**values, **fixed}, (example,)))

    values = {f"module.{name}": p.detach() for name, p in trained.items()}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="There is a performance drop", category=UserWarning)
        found, losses = vmap(grad_and_value(loss_of), in_dims=(None, *where), randomness="different")(values, *stacked)
    return {name.removeprefix("module."): gradients for name, gradients in found.items()}, losses


def _one_by_one(
    module: nn.Module, criterion: Criterion, names: list[str], part: list[Any]
) -> tuple[dict[str, Tensor], Tensor]:
    """Each by a copy of the module of its own."""
    rows, losses = [], []
    for example in part:
        own = _copied(module)
        parameters = [own.get_parameter(name) for name in names]
        with torch.enable_grad():
            loss = _Objective(own, criterion)(example)
        found = torch.autograd.grad(loss, parameters, allow_unused=True) if loss.requires_grad else [None] * len(names)
        if all(g is None for g in found):
            raise InvalidArgument(
                "criterion",
                getattr(criterion, "__name__", type(criterion).__name__),
                "a loss of the module that it is given, and of no other that it refers to",
            )
        rows.append([torch.zeros_like(p) if g is None else g for g, p in zip(found, parameters, strict=True)])
        losses.append(loss.detach())
    return {name: torch.stack(g) for name, g in zip(names, zip(*rows, strict=True), strict=True)}, torch.stack(losses)


def _are_close(one: Tensor, other: Tensor) -> bool:
    largest = float(one.abs().max()) if one.numel() else 0.0
    return torch.allclose(one, other, rtol=1e-2, atol=1e-3 * largest, equal_nan=True)


def _form(example: Any) -> Hashable:
    """What examples must share to be computed at once: containers, shapes, and plain values. Others share nothing."""
    if not _is_plain(example):
        return object()
    leaves, form = tree_flatten(example)
    return repr(form), tuple(
        (tuple(leaf.shape), leaf.dtype, leaf.device) if isinstance(leaf, Tensor) else (type(leaf), repr(leaf))
        for leaf in leaves
    )


def _is_plain(value: Any) -> bool:
    """Whether it is made of tensors and of plain values, in containers that show all that they hold."""
    if type(value) is dict:
        return all(type(key) in _PLAIN for key in value) and all(map(_is_plain, value.values()))
    if type(value) in (list, tuple):
        return all(map(_is_plain, value))
    return type(value) in (Tensor, *_PLAIN)
