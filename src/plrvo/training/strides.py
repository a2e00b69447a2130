"""Gradients that lie in memory as their parameters do, which is what torch's own backward pass promises.

Its fused optimizers rely on it: on processors they walk through the memory of both and look at no stride (seen in torch
2.13), so that a gradient in another order would move other weights than its own. Sums come out in the order in which
they were computed, which for weights in `channels_last` is not theirs.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch


def lay_out(parameters: Iterable[Any]) -> None:
    """Copy what lies otherwise, one gradient at a time."""
    for p in parameters:
        if p.grad.stride() != p.stride() and not (p.grad.is_contiguous() and p.is_contiguous()):
            p.grad = torch.empty_like(p, requires_grad=False).copy_(p.grad)
