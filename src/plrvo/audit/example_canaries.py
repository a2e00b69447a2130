"""Black-box canaries for one run: examples of random signs with random labels, scored by the trained model's loss.

Random signs are far from every real example, and from each other, and about as long as standardised inputs are. What a
model knows of such an example's label it has learned from that example. The score is how far its loss fell in training.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from plrvo import validate
from plrvo.validate import InvalidArgument

_BATCH = 1000


def random_examples(like: Tensor, classes: int, count: int, generator: np.random.Generator) -> tuple[Tensor, Tensor]:
    """So many inputs of signs, shaped as one of `like`, and their labels."""
    validate.positive_integer(canaries=count, classes=classes)
    if not like.is_floating_point():
        raise InvalidArgument("canary", "example", "gradient: inputs that are not numbers have no random signs")
    signs = generator.integers(0, 2, (count, *like.shape[1:])) * 2.0 - 1.0
    return torch.from_numpy(signs).to(like.dtype), torch.from_numpy(generator.integers(classes, size=count))


def losses(model: nn.Module, inputs: Tensor, targets: Tensor) -> NDArray[np.float64]:
    """The cross entropy of each example, in evaluation mode."""
    training = model.training
    model.eval()
    with torch.no_grad():
        parts = [
            nn.functional.cross_entropy(model(x), y, reduction="none")
            for x, y in zip(torch.split(inputs, _BATCH), torch.split(targets, _BATCH), strict=True)
        ]
    model.train(training)
    return torch.cat(parts).double().numpy()
