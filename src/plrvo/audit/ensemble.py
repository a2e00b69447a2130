"""Many private models trained at once: each with batches, clipping and noise of its own, in one set of tensors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from plrvo import validate
from plrvo.audit.models import EnsembleModel, Examples
from plrvo.noise import Noise


@dataclass(frozen=True)
class Recipe:
    """Plain private gradient descent: theta -= learning_rate (clipped sum + noise)/divisor.

    The divisor is the nominal batch size, a public constant. `clip=None` leaves clipping out, and a noise of None the
    noise: both exist so that an audit can be seen to refute them.
    """

    sample_rate: float
    steps: int
    clip: float | None
    learning_rate: float
    divisor: float

    def __post_init__(self) -> None:
        validate.rate(sample_rate=self.sample_rate)
        validate.positive_integer(steps=self.steps)
        validate.positive(learning_rate=self.learning_rate, divisor=self.divisor)
        if self.clip is not None:
            validate.positive(clip=self.clip)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def train(
    model: EnsembleModel,
    data: Examples,
    recipe: Recipe,
    noise: Noise | None,
    models: int,
    generator: np.random.Generator,
) -> Tensor:
    """The parameters of so many independently trained models, shape (models, dimension)."""
    parameters = model.initial(models, data.x.dtype)
    rate = recipe.learning_rate / recipe.divisor
    with torch.no_grad(), _one_thread():
        for _ in range(recipe.steps):
            sums = model.clipped_sums(parameters, data, recipe.sample_rate, recipe.clip, generator)
            if noise is not None:
                sums += _draw(noise, parameters, generator)
            parameters.sub_(sums, alpha=rate)
    return parameters


def _draw(noise: Noise, like: Tensor, generator: np.random.Generator) -> Tensor:
    dtype = np.float64 if like.dtype == torch.float64 else np.float32
    if noise.shared:  # one scale per model and step, not one for the whole ensemble
        return torch.from_numpy(np.stack([noise.sample(like.shape[1], generator, dtype) for _ in range(len(like))]))
    return torch.from_numpy(noise.sample(tuple(like.shape), generator, dtype))


@contextmanager
def _one_thread() -> Iterator[None]:
    """These tensors are small: threads that wait for each other cost more than they bring. Use blocks for cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
