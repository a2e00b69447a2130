"""The precision that bounds on rounding take for granted: single numbers at least, whatever the caller computes in."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import wraps
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

from plrvo.validate import InvalidArgument

Function = TypeVar("Function", bound=Callable[..., Any])


def in_full_precision(function: Function) -> Function:
    """Whatever the caller's autocast says: bounds on rounding are those of the numbers' own types."""

    @wraps(function)
    def carried_out(*args: Any, **kwargs: Any) -> Any:
        check_matmul_precision()
        with ExitStack() as off:
            if torch.cuda.is_available():
                off.enter_context(torch.backends.cudnn.flags(enabled=torch.backends.cudnn.enabled, allow_tf32=False))
            for device in ("cpu", "cuda"):
                if torch.is_autocast_enabled(device):
                    off.enter_context(torch.autocast(device, enabled=False))
            return function(*args, **kwargs)

    return cast(Function, carried_out)


def check_matmul_precision() -> None:
    """Clipping in fewer bits moves the sum by more than the clip."""
    if torch.get_float32_matmul_precision() != "highest":
        raise InvalidArgument(
            "float32_matmul_precision",
            torch.get_float32_matmul_precision(),
            "torch.set_float32_matmul_precision('highest'): clipped sums have singles at least",
        )


def wide(values: Tensor) -> Tensor:
    """Floating point in singles at least; token numbers stay as they are."""
    if not values.is_floating_point():
        return values
    return values if values.dtype in (torch.float32, torch.float64) else values.float()
