"""Positions that are looked up once for all examples, and given to each of them.

Book-keeping needs a row of them for each example, (B, T, d). A module that looks up (T, d) may put a dimension of one
in front, or repeat them by hand, before they meet its examples: what it has is there already.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from plrvo.validate import InvalidArgument

_NEW_DIMENSION = (torch.Tensor.unsqueeze, torch.unsqueeze)
_OTHER_SHAPE = (torch.Tensor.view, torch.Tensor.reshape, torch.reshape)
_REPEATED = (torch.Tensor.repeat,)
_DROPPED = (functional.dropout, torch.dropout)


class ForEachExample(Tensor):
    """Has a row for each example, and may be asked for a first dimension once, as if it had none."""

    was_asked = False

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        found = next((t for t in args if isinstance(t, cls)), None)
        with torch._C.DisableTorchFunctionSubclass():
            if found is None:
                return func(*args, **kwargs)
            if not found.was_asked and _asks_for_a_dimension(func, found, args[1:], kwargs):
                return _with_rows(found, was_asked=True)
            if func is torch.Tensor.__getitem__ and not found.was_asked:
                asked, slices = _slices(args[1])
                return _with_rows(func(found, (slice(None), *slices)), was_asked=asked)
            if func in _DROPPED and not kwargs.get("inplace"):
                # Once for all, as the module does it: which ones stay is drawn for one example, and given to each.
                stays = func(torch.ones_like(found[0], requires_grad=False), *args[1:], **kwargs)
                return _with_rows(found.as_subclass(Tensor) * stays, was_asked=found.was_asked)
            if func in _REPEATED and _sizes(args[1:]) == (len(found), *[1] * (found.ndim - 1)):
                return found.as_subclass(Tensor)
            try:
                result = func(*args, **kwargs)
            except RuntimeError as error:  # as a product with a table, which has a dimension less outside of here
                raise InvalidArgument(
                    "module",
                    f"a table that is looked up once for all examples, for {getattr(func, '__name__', func)}",
                    'one that is added to each example; or grad_sample_mode="functorch", which is slower and asks '
                    f"nothing of layers ({error})",
                ) from None
            others = [t for t in (*args, *kwargs.values()) if isinstance(t, Tensor) and t is not found]
            alone = isinstance(result, Tensor) and all(t.ndim < found.ndim for t in others)
            if not alone or result.shape[:1] != found.shape[:1] or result.ndim != found.ndim:
                return result.as_subclass(Tensor) if isinstance(result, cls) else result
            return _with_rows(result, was_asked=found.was_asked)  # dropout, a scale: still nobody's


def _with_rows(t: Tensor, was_asked: bool = False) -> Tensor:
    made = t.as_subclass(ForEachExample)
    made.was_asked = was_asked
    return made


def for_each_example(t: Tensor, had_one: bool = False) -> Tensor:
    """A tensor (B, T, d) that was looked up as (T, d), or as (1, T, d)."""
    return _with_rows(t, was_asked=had_one)


def _slices(index: Any) -> tuple[bool, tuple[Any, ...]]:
    """Of positions that were looked up as (T, d): the same of each example's, and whether a dimension is asked for."""
    parts = index if isinstance(index, tuple) else (index,)
    asked = bool(parts) and parts[0] is None
    parts = parts[asked:]
    if not parts or not isinstance(parts[0], slice) or not all(isinstance(p, slice) or p is Ellipsis for p in parts):
        raise InvalidArgument(
            "module",
            f"positions that are looked up once, and then by {index!r}",
            'slices of them, or the lookup of those that are needed; grad_sample_mode="functorch" takes any',
        )
    return asked, parts


def _asks_for_a_dimension(func: Any, t: Tensor, args: Any, kwargs: Any) -> bool:
    if func in _NEW_DIMENSION:
        return bool((args[0] if args else kwargs.get("dim")) in (0, -t.ndim))
    if func is torch.Tensor.__getitem__:
        index = args[0] if isinstance(args[0], tuple) else (args[0],)
        return index[0] is None and all(i is Ellipsis or i == slice(None) for i in index[1:])
    return func in _OTHER_SHAPE and _sizes(args) == (1, *t.shape[1:])


def _sizes(args: Any) -> tuple[Any, ...]:
    return tuple(args[0]) if args and isinstance(args[0], (tuple, list)) else tuple(args)
