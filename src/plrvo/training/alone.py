"""Examples that never meet: each is collated, computed and differentiated alone, and met by others in the sum only.

Everywhere else a module and a loss get a whole batch, and the engine tries whether they keep its examples apart. A try
can miss something. In this mode there is nothing to try: the gradient of an example e is

    g(w, e) = d loss(module, collate([e])) / d w

a function of the released weights and of e, whatever module, loss and collate function do with what they are given:
padding, sorting, normalising over the batch and statistics of it have one example to look at. So the sum of clipped
gradients moves by at most one clip when an example comes or goes. What makes it one:

- one pass for each example, never several at once (`torch.func.vmap` numbers its draws by place, and a failure of it
  that one example brings about would change the way that all others are computed);
- a copy of the module for each pass, and a copy of the example, so that none finds traces of another;
- random numbers from a secret seed of each pass's own, so that no example shifts the draws of another;
- the module itself must be the same after all passes, and after calls of it in the loop. Closures, classes and objects
  that refuse to be copied may carry something from copy to copy; what leaves a trace is refused before the step.

What is left to the caller: a loss, a collate function or a data set that keeps something of one example for the next,
outside of the module, and the list of examples, which is the loader's and not to be mixed.

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
import hashlib
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from opacus.grad_sample import AbstractGradSampleModule
from torch import Tensor, nn
from torch.utils.data import Dataset

from plrvo.training.bound import Bound
from plrvo.training.clipping.contributions import PerExample
from plrvo.training.clipping.module import ACCUMULATED, Book
from plrvo.training.kept import Contents, Digest
from plrvo.training.state import generators_aside, seed_all, sums
from plrvo.training.unwrap import unwrapped
from plrvo.validate import InvalidArgument

ALONE = "alone"
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


class FetchAlone(Dataset[Any]):
    """A data set that is asked for one example at a time, also where it could give a whole batch.

    Unless the run is `seeded`, each is drawn from a secret seed of its own: that one takes more random numbers than
    others would else shift theirs, for whoever knows a seed.
    """

    def __init__(self, dataset: Any, seeded: bool = False) -> None:
        self.dataset, self._draws = dataset, nullcontext if seeded else _secret_draws

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, i: int) -> Any:
        several = getattr(self.dataset, "__getitems__", None)
        with self._draws():
            return self.dataset[i] if several is None else several([i])[0]

    def __getattr__(self, name: str) -> Any:
        """Whatever else the data set has, for loops and workers that ask for it."""
        if name.startswith("__") or name in ("dataset", "_draws"):
            raise AttributeError(name)
        return getattr(self.dataset, name)


class CollateAlone:
    """A batch as a list of examples, each collated by itself, with draws of its own."""

    def __init__(self, collate: Callable[[list[Any]], Any], seeded: bool = False) -> None:
        self.collate, self._draws = collate, nullcontext if seeded else _secret_draws

    def __call__(self, examples: list[Any]) -> list[Any]:
        found = []
        for example in examples:
            with self._draws():
                found.append(self.collate([example]))
        return found


@contextmanager
def _secret_draws() -> Iterator[None]:
    with generators_aside(torch.device("cpu")):
        seed_all(secrets.randbits(32))
        yield


class AloneBook(Book):
    """Gradients of single losses, which no mean has divided."""

    divided_by = 1


class _Kept:
    """All that a module keeps: parameters, and whatever its attributes lead to."""

    def __init__(self, module: nn.Module, *, to_put_back: bool = False) -> None:
        self._digest = Digest(module, identity=True, strict=True)
        self._weights = sums(dict(module.named_parameters()))
        self._contents = Contents(module) if to_put_back else None
        self._parameters = [(p, p.detach().clone()) for p in module.parameters()] if to_put_back else []

    def put_back(self) -> None:
        """As it was."""
        with torch.no_grad():
            if self._contents is not None:
                self._contents.put_back()
            for p, before in self._parameters:
                p.copy_(before)

    def differing(self, other: _Kept) -> str | None:
        """The name of something that is not the same."""
        names = self._digest.differing(other._digest)
        names |= {name for name, total in self._weights.items() if other._weights.get(name) != total}
        return min(names, default=None)


class Unwatched(Bound):
    """In the place of a watch: no loss is looked at, and calls of the module in the loop leave nothing behind in it."""

    learned_before = False  # gradients are taken of the module's parameters alone

    def __init__(self, module: nn.Module) -> None:
        super().__init__(module)
        self.seen_loss = False
        self._before: _Kept | None = None
        self._between: dict[str, int] | None = None  # buffers and frozen weights, which no step changes
        self._refused = ""
        self._hooks = [module.register_forward_pre_hook(self.mark), module.register_forward_hook(self.compare)]

    def mark(self, *_: Any) -> None:
        """Tells that the module is an engine's; before a call of it."""
        if self.module is not None:
            self._before = _Kept(self.module, to_put_back=True)

    def compare(self, *_: Any) -> None:
        """After a call of it."""
        if self.module is not None and self._before is not None:
            before, self._before = self._before, None
            name = before.differing(_Kept(self.module))
            if name and not (self.module.training and torch.is_grad_enabled()):
                before.put_back()  # maps to look at, tables that have grown: nothing that a step may find
            elif name:
                what = "nothing that a call in the loop changes, as what it keeps has no noise: call eval() first"
                raise InvalidArgument("module", name, what)

    @contextmanager
    def untouched(self) -> Iterator[None]:
        """Refuse what leaves a trace in the module itself, though copies of it compute; and take the trace away."""
        if self.module is None:
            yield
            return
        if self._refused:  # what it left may be elsewhere too, where a second try would not see it change
            raise InvalidArgument("module", self._refused, "another one: this one was refused before")
        self._check_between(self.module)
        before, name = _Kept(self.module, to_put_back=True), None
        try:
            yield
        finally:
            if name := before.differing(_Kept(self.module)):
                before.put_back()
                self._refused = name
        if name:
            what = (
                "nothing that passes of copies of the module change: by a closure, a class, a hook or an object that "
                "all copies share, an example could reach the next; keep it in attributes of the module"
            )
            raise InvalidArgument("module", name, what)

    def _check_between(self, module: nn.Module) -> None:
        """What no step trains stays as it is: a method that is called in the loop may write to it as well."""
        fixed = sums({n: t for n, t in (*module.named_buffers(), *module.named_parameters()) if not t.requires_grad})
        changed = [name for name, total in fixed.items() if (self._between or fixed).get(name) != total]
        if changed:
            what = "buffers and frozen weights that stay as they are from step to step: what they keep has no noise"
            raise InvalidArgument("module", changed[0], what)
        self._between = fixed

    def __deepcopy__(self, memo: Any) -> Bound:
        return Bound(None)

    def __reduce__(self) -> Any:
        return Bound, (None,)

    def new_step(self, last: bool = True) -> None:
        self.seen_loss = False

    def forget_gradients(self) -> None:
        self.seen_loss = False

    def pause(self) -> None:
        """Nothing is heard."""

    def go_on(self) -> None:
        """Nor from here on."""

    def remove(self) -> None:
        for hook in self._hooks:
            hook.remove()


class AloneModule(AbstractGradSampleModule):
    """Wraps a module; `backward` takes the place of a loss and its backward pass. Calls of it compute, and no more."""

    def __init__(
        self, m: nn.Module, *, criterion: Criterion, loss_reduction: str = "mean", seeded: bool = False
    ) -> None:
        super().__init__(m, batch_first=True, loss_reduction=loss_reduction)
        own = unwrapped(m)
        _copied(own, "module")  # refused before any data is seen, if it cannot be
        self.watch, self.book = Unwatched(own), AloneBook()
        self._trained = {name: p for name, p in own.named_parameters() if p.requires_grad}
        self._criterion, self._seeded = criterion, seeded

    def __deepcopy__(self, memo: Any) -> nn.Module:
        """The module without an engine."""
        return copy.deepcopy(self._module, memo)

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
            raise InvalidArgument(
                "backward",
                "a second pass before optimizer.step() or zero_grad()",
                f"one for each step, which has one batch. {ACCUMULATED}",
            )
        own = unwrapped(self._module)
        trainable = {id(p) for p in own.parameters() if p.requires_grad}
        if trainable != {id(p) for p in self._trained.values()}:
            raise InvalidArgument("module", "parameters", "those trainable that were when it was made private")
        if not examples:
            return torch.zeros(())
        found = {name: p.detach().new_zeros((len(examples), *p.shape)) for name, p in self._trained.items()}
        losses, secret = [], self._secret()
        with self.watch.untouched(), generators_aside(next(iter(self._trained.values())).device):
            for place, example in enumerate(examples):
                seed_all(int.from_bytes(hashlib.sha256(secret + place.to_bytes(8, "big")).digest()[:4], "big"))
                loss, gradients = self._of_one(own, example)
                losses.append(loss)
                for name, gradient in gradients.items():
                    found[name][place] = gradient
        for name, rows in found.items():
            self.book.add(self._trained[name], PerExample(rows))
        self.book.batch_size = len(examples)
        self.watch.seen_loss = True
        return torch.stack(losses).mean()

    def _secret(self) -> bytes:
        """From which dropout is drawn; by torch's generator in runs that are to be repeated, and are not private."""
        if self._seeded:
            return int(torch.randint(2**62, ())).to_bytes(8, "big")
        return secrets.token_bytes(32)

    def _of_one(self, own: nn.Module, example: Any) -> tuple[Tensor, dict[str, Tensor]]:
        """Loss and gradients of one example: zero where its loss is a constant (a label that is missing)."""
        alone = _copied(own, "module")
        parameters = dict(alone.named_parameters())
        ours = [parameters[name] for name in self._trained]
        with torch.enable_grad():
            loss: Any = self._criterion(alone, _copied(example, "examples"))
            loss = torch.tensor(float(loss)) if type(loss) in (int, float) else loss  # of a label that is missing
            loss = loss.reshape(()).float() if isinstance(loss, Tensor) and loss.numel() == 1 else loss
        torch.clear_autocast_cache()  # of weights that are gone
        if not isinstance(loss, Tensor) or loss.numel() != 1:
            shape = tuple(loss.shape) if isinstance(loss, Tensor) else type(loss).__name__
            raise InvalidArgument("criterion", shape, "a tensor of one number, the loss of the one example")
        if not loss.requires_grad:
            return loss.detach(), {}
        found: tuple[Tensor | None, ...] = torch.autograd.grad(
            loss, [*ours, *self._trained.values()], allow_unused=True
        )
        here, there = (dict(zip(self._trained, part, strict=True)) for part in (found[: len(ours)], found[len(ours) :]))
        elsewhere = next((name for name, g in there.items() if g is not None), None)
        if elsewhere or all(g is None for g in here.values()):
            what = (
                "a loss of the module that it is given, and of no other: not of the one that was made private either, "
                "by a closure, a hook, or another name for it"
            )
            raise InvalidArgument("criterion", elsewhere or "another module", what)
        return loss.detach(), {n: g.to_dense() if g.is_sparse else g for n, g in here.items() if g is not None}


def _copied(value: Any, argument: str) -> Any:
    try:
        return copy.deepcopy(value)
    except Exception as error:
        reason = " ".join(str(error).split())[:200]
        raise InvalidArgument(
            argument, type(value).__name__, f"what copy.deepcopy can copy, for each example ({reason})"
        ) from None
