"""Private training written out: one model, one example at a time, gradients by autograd."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import nn

from plrvo.audit.ensemble import Recipe
from plrvo.audit.models import EnsembleModel
from plrvo.noise import Noise


def network(features: int, classes: int, hidden: int | None, dtype: torch.dtype = torch.float64) -> nn.Sequential:
    if hidden is None:
        return nn.Sequential(nn.Linear(features, classes)).to(dtype)
    return nn.Sequential(nn.Linear(features, hidden), nn.ReLU(), nn.Linear(hidden, classes)).to(dtype)


def from_flat(net: nn.Sequential, flat: torch.Tensor, transposed: bool) -> None:
    """The ensemble's row into the network: layers as (inputs + 1, outputs), or rows of (inputs + 1) if transposed."""
    place = 0
    with torch.no_grad():
        for layer in (layer for layer in net if isinstance(layer, nn.Linear)):
            size = (layer.in_features + 1) * layer.out_features
            block = flat[place : place + size]
            if transposed:
                block = block.view(layer.out_features, layer.in_features + 1).t()
            block = block.reshape(layer.in_features + 1, layer.out_features)
            layer.weight.copy_(block[:-1].t())
            layer.bias.copy_(block[-1])
            place += size


def to_flat(net: nn.Sequential, transposed: bool) -> torch.Tensor:
    parts = []
    for layer in (layer for layer in net if isinstance(layer, nn.Linear)):
        block = torch.cat([layer.weight.detach().t(), layer.bias.detach()[None, :]], dim=0)
        parts.append((block.t() if transposed else block).reshape(-1))
    return torch.cat(parts)


def train_plain(
    model: EnsembleModel,
    net: nn.Sequential,
    x: np.ndarray,
    y: np.ndarray,
    recipe: Recipe,
    noise: Noise | None,
    generator: np.random.Generator,
    transposed: bool,
) -> torch.Tensor:
    """The final parameters, as the ensemble lays them out."""
    dtype = next(net.parameters()).dtype
    from_flat(net, model.initial(1, dtype)[0], transposed)
    features, labels = torch.from_numpy(x).to(dtype), torch.from_numpy(y)
    for _ in range(recipe.steps):
        batch = np.flatnonzero(generator.random(len(x)) < recipe.sample_rate)
        total = [torch.zeros_like(p) for p in net.parameters()]
        for i in batch:
            net.zero_grad()
            nn.functional.cross_entropy(net(features[i : i + 1]), labels[i : i + 1]).backward()
            gradient = [p.grad for p in net.parameters()]
            norm = math.sqrt(sum(float(g.square().sum()) for g in gradient))
            factor = 1.0 if recipe.clip is None else min(1.0, recipe.clip / max(norm, 1e-30))
            for t, g in zip(total, gradient, strict=True):
                t += factor * g
        with torch.no_grad():
            for p, t in zip(net.parameters(), total, strict=True):
                if noise is not None:
                    t += torch.from_numpy(noise.sample(tuple(p.shape), generator)).to(dtype)
                p -= recipe.learning_rate / recipe.divisor * t
    return to_flat(net, transposed)
