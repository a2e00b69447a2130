"""Training without privacy, through the same loop and the same batches: the baseline to compare with."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


class PlainOptimizer:
    """Divides the summed gradients by the same public batch size, and counts steps, as the private optimizers do."""

    def __init__(self, optimizer: torch.optim.Optimizer, expected_batch_size: float) -> None:
        self.original_optimizer = optimizer
        self.expected_batch_size = expected_batch_size
        self.steps_taken = 0

    def zero_grad(self) -> None:
        self.original_optimizer.zero_grad()

    def step(self) -> None:
        for group in self.original_optimizer.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    p.grad /= self.expected_batch_size
        self.original_optimizer.step()
        self.steps_taken += 1

    def state_dict(self) -> Any:
        return self.original_optimizer.state_dict()


def summed_cross_entropy(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """The loss whose gradient is a sum over examples."""
    return nn.functional.cross_entropy(logits, targets, reduction="sum")
