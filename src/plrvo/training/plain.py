"""Training without privacy, through the same loop and the same batches: the baseline to compare with."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn


class PlainOptimizer:
    """Divides the summed gradients by the same public batch size, and counts steps, as the private optimizers do.

    A logical batch may come in parts, announced as Opacus's batch splitter does it: `signal_skip_step`.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, expected_batch_size: float) -> None:
        self.original_optimizer = optimizer
        self.expected_batch_size = expected_batch_size
        self.steps_taken = 0
        self._more_to_come = self._in_parts = False

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        return self.original_optimizer.param_groups

    def signal_skip_step(self, do_skip: bool = True) -> None:
        """Whether the batch that comes next is a part which others follow."""
        self._more_to_come = do_skip

    def zero_grad(self) -> None:
        if not self._in_parts:
            self.original_optimizer.zero_grad()

    def step(self) -> None:
        self._in_parts = self._more_to_come
        if self._more_to_come:
            return
        for group in self.original_optimizer.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    p.grad /= self.expected_batch_size
        self.original_optimizer.step()
        self.steps_taken += 1

    def state_dict(self) -> Any:
        return self.original_optimizer.state_dict()


def summed(loss: nn.Module) -> nn.Module:
    """The loss whose gradient is a sum over examples, from one with a `reduction`."""
    copied = copy.copy(loss)
    copied.reduction = "sum"  # type: ignore[assignment]
    return copied
