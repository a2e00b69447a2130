"""Where a layer's output leaves it: what comes back there is what its parameters' gradients are made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


class _Tap(torch.autograd.Function):
    """Hands on a layer's output unchanged; shows its gradient, with the layer's input, on the way back.

    `handle` requires a gradient and gets none: it makes the pass reach the layers whose input requires none. The
    output is marked as written to, which hands on the very tensor, so that it may be changed in place afterwards. One
    that is a view (of linear layers, where there are positions) would bring autograd to copy its gradient three times,
    for whoever else may look at the same memory. Where nobody does (`is_ours`), another tensor on that memory is handed
    on instead; a hook of the user's that has kept the output would go on with one that is not looked at.
    """

    @staticmethod
    def forward(ctx: Any, output: Tensor, handle: Tensor, show: Any, is_ours: bool, *inputs: Tensor) -> Tensor:
        ctx.show, ctx.in_order = show, output.is_contiguous()
        ctx.save_for_backward(*inputs)
        if is_ours and output._is_view():
            return output.detach()
        ctx.mark_dirty(output)
        return output

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        inputs = ctx.saved_tensors  # once: a checkpoint computes them when they are asked for
        if ctx.in_order:
            gradient = gradient.contiguous()  # once, for the record and for the layer's own way back
        ctx.show(inputs, gradient)
        return gradient if ctx.needs_input_grad[0] else None, *[None] * (3 + len(inputs))


def tap(output: Tensor, handle: Tensor, show: Callable[..., None], is_ours: bool, *inputs: Tensor) -> Tensor:
    """The output, whose gradient is shown by `show(inputs, gradient)`."""
    apply: Any = _Tap.apply
    tapped: Tensor = apply(output, handle, show, is_ours, *inputs)
    return tapped
