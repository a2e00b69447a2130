"""What a layer draws at random in its pass, to be given to each example when the pass is computed once more.

Drawn anew, numbers would be others: a table, or a weight, that drops out once for all examples (positions, DropConnect,
mixout, weights with noise) is one draw in the pass, and one for each example in passes of their own. So the pass is
listened to, and each of its draws is handed out again: to an example its own rows of it, where it has as many times
more of them as there are examples, and all of it where it is as large for one example as for a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils import _python_dispatch

from plrvo.training.modes import Listener

_Mode: Any = _python_dispatch.TorchDispatchMode  # which has no types

# Whose result is what was drawn; all others that draw have to be known by how they use it.
_PURE = {
    *("bernoulli", "binomial", "cauchy", "exponential", "geometric", "log_normal", "multinomial", "normal", "poisson"),
    *("rand", "randint", "randn", "random", "randperm", "uniform", "_standard_gamma", "_sample_dirichlet"),
}
_DROPOUT = {"native_dropout", "_fused_dropout"}
_LEAKY = "aten::rrelu_with_noise"
_SAME = {"randn": "normal", "rand": "uniform"} | dict.fromkeys(_DROPOUT, "bernoulli")

Draw = tuple[str, Tensor | None]  # its kind, and its numbers; None for those of an operation that is not known


class CannotRedraw(RuntimeError):
    """A pass for one example that does not draw what the pass of its batch has drawn."""


class Drawing(Listener):
    """Hears a layer's pass, and keeps what it draws."""

    def __init__(self) -> None:
        super().__init__()
        self.drawn: list[Draw] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if self.is_running and _draws(func, args, kwargs or {}):
            self.drawn.append((_kind(func), _numbers(func, args, result)))
        return result


class Redrawing(_Mode):
    """Within it a pass for examples gets what their batch's has drawn.

    `of` makes the numbers of a draw for the examples under way from those of the batch, in a shape that is asked for.
    """

    def __init__(self, drawn: Sequence[Draw], of: Callable[[Tensor, torch.Size], Tensor]) -> None:
        super().__init__()
        self._drawn, self._of, self._next = drawn, of, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if not _draws(func, args, kwargs or {}):
            return result
        kind, numbers = self._drawn[self._next] if self._next < len(self._drawn) else ("", None)
        asked = _numbers(func, args, result)
        if kind != _kind(func) or numbers is None or asked is None:
            raise CannotRedraw(f"an example alone draws by {_name(func)} what its batch has not drawn that way")
        self._next += 1
        return _with_numbers(func, args, result, self._of(numbers, asked.shape))

    def end(self) -> None:
        """Refuse a pass that has left something out."""
        if self._next != len(self._drawn):
            raise CannotRedraw(f"an example alone draws {self._next} times, and its batch {len(self._drawn)} times")


def for_all(rows: int) -> Callable[[Tensor, torch.Size], Tensor]:
    """For all examples at once, which vmap asks for with one dimension more, in front."""

    def of(numbers: Tensor, shape: torch.Size) -> Tensor:
        if shape[:1] != (rows,):
            raise CannotRedraw(f"examples draw numbers of shape {tuple(shape)}")
        return by_example(numbers, shape[1:], rows)

    return of


def for_one(rows: int, row: int) -> Callable[[Tensor, torch.Size], Tensor]:
    """For one example."""
    return lambda numbers, shape: by_example(numbers, shape, rows)[row]


def for_any(numbers: Tensor, shape: torch.Size) -> Tensor:
    """For all examples at once, where all of them share every draw."""
    if numbers.shape != shape:
        raise CannotRedraw(f"examples share numbers of shape {tuple(numbers.shape)}")
    return numbers


def by_example(numbers: Tensor, one: torch.Size, rows: int) -> Tensor:
    """What each example has of a batch's draw, if it asks for so many numbers: (rows, *one)."""
    if numbers.shape == one:
        return numbers.expand(rows, *one)
    if numbers.ndim == len(one):
        grown = [d for d, (whole, own) in enumerate(zip(numbers.shape, one, strict=True)) if whole != own]
        if len(grown) == 1 and numbers.shape[grown[0]] == rows * one[grown[0]]:
            whole = (*one[: grown[0]], rows, *one[grown[0] :])
            return numbers.reshape(whole).movedim(grown[0], 0)
    raise CannotRedraw(
        f"an example alone draws numbers of shape {tuple(one)}, and its batch of {rows} {tuple(numbers.shape)}"
    )


def _name(func: Any) -> str:
    name: str = func._schema.name.partition("::")[2].removesuffix("_").removesuffix("_functional")
    return name.removesuffix("_like")


def _kind(func: Any) -> str:
    return _SAME.get(_name(func), _name(func))


def _draws(func: Any, args: Any, kwargs: Any) -> bool:
    if torch.Tag.nondeterministic_seeded not in func.tags or _name(func) == "_fused_sdp_choice":
        return False
    # Attention has a kernel of this kind without dropout, too.
    return _argument(func, args, kwargs, "dropout_p") != 0 and _argument(func, args, kwargs, "train") is not False


def _argument(func: Any, args: Any, kwargs: Any, name: str) -> Any:
    for place, argument in enumerate(func._schema.arguments):
        if argument.name == name:
            return args[place] if place < len(args) else kwargs.get(name, argument.default_value)
    return None


def _numbers(func: Any, args: Any, result: Any) -> Tensor | None:
    """A copy: many layers go on to write into what they drew. Of dropout only which ones stay, in a byte each."""
    name = _name(func)
    if name in _DROPOUT:
        return result[1].detach().bool()
    if func._schema.name == _LEAKY:
        return args[1].detach().clone()
    if name in _PURE and isinstance(result, Tensor):
        return result.detach().bool() if name == "bernoulli" else result.detach().clone()
    return None


def _with_numbers(func: Any, args: Any, result: Any, numbers: Tensor) -> Any:
    """The operation's result with these numbers; it has been carried out, so that its form is there."""
    name = _name(func)
    if func._schema.name == _LEAKY:
        args[1].copy_(numbers)
        return result.copy_(args[0] * numbers)
    if name not in _DROPOUT:
        return result.copy_(numbers)
    share = 1 - args[1] if name == "native_dropout" else args[1]
    result[1].copy_(numbers)
    result[0].copy_(args[0] * numbers * (1 / share if share else 0.0))
    return result
