"""Test metrics that several tasks share."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from plrvo.tasks.transformer import logits_of
from plrvo.training.loop import Metrics, forward, moved


def classification_metrics(module: nn.Module, data: Any, batch_size: int = 1000) -> Metrics:
    """Mean loss and accuracy over `data`, which gives whole batches, in evaluation mode."""
    training = module.training
    module.eval()
    device = next(module.parameters()).device
    lengths: torch.Tensor | None = getattr(data, "lengths", None)
    order = list(range(len(data))) if lengths is None else lengths.argsort(stable=True).tolist()
    loss, right = 0.0, 0
    with torch.no_grad():
        for start in range(0, len(order), batch_size):
            inputs, targets = moved(data.__getitems__(order[start : start + batch_size]), device)
            logits = logits_of(forward(module, inputs))
            loss += float(nn.functional.cross_entropy(logits, targets, reduction="sum"))
            right += int((logits.argmax(dim=1) == targets).sum())
    module.train(training)
    return {"loss": loss / len(data), "accuracy": right / len(data)}
