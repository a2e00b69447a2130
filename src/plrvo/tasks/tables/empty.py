"""A batch of no examples, which Poisson sampling draws now and then, for models that cannot take one.

Attention layers of the transformers library reshape with a size to be guessed, which is impossible without elements.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


def touch_every_layer(module: nn.Module) -> Tensor:
    """A zero that depends on every layer with trained parameters, each called on no examples.

    Whatever records per-example gradients then finds none of them for every parameter, and a step releases noise alone.
    """
    total = torch.zeros((), device=next(module.parameters()).device)
    for layer in module.modules():
        if any(p.requires_grad for p in layer.parameters(recurse=False)):
            total = total + layer(_no_input(layer)).sum()
    return total


def _no_input(layer: Any) -> Tensor:
    weight = layer.weight
    if isinstance(layer, nn.Embedding):
        return weight.new_zeros((0, 1), dtype=torch.long)
    width = layer.in_features if isinstance(layer, nn.Linear) else weight.shape[0]
    return weight.new_zeros((0, 1, width))
