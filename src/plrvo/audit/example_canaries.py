"""Black-box canaries for one run: made-up inputs with random labels, scored by how much the model came to believe them.

As in ClipBKD, an input lies where data varies least, so that what a model says there it has learned from the canary:
a random combination of the quietest quarter of the principal directions of *public* inputs, as long as those are on
average. The score is the rise in training of

    m = log p(label) - log(1 - p(label)),

less its mean over all canaries of the same label, which is what the model would say of any of them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from plrvo import validate
from plrvo.validate import InvalidArgument

Array = NDArray[np.float64]
_QUIET = 4  # one in so many directions
_LARGEST = 4096  # numbers of an input, whose principal directions take seconds
_BATCH = 1000


@dataclass(frozen=True)
class ExampleCanaries:
    """Inputs, shaped as the data's own, and labels."""

    x: Tensor
    y: Tensor

    def log_odds(self, model: nn.Module) -> Array:
        """m of every canary, in evaluation mode."""
        training = model.training
        model.eval()
        with torch.no_grad():
            logits = torch.cat([model(x) for x in torch.split(self.x, _BATCH)]).double()
        model.train(training)
        own = logits.gather(1, self.y[:, None])
        others = logits.scatter(1, self.y[:, None], -torch.inf)
        return (own[:, 0] - torch.logsumexp(others, dim=1)).numpy()

    def scores(self, before: Array, after: Array) -> Array:
        """The rise of m, apart from what canaries of a label have in common."""
        rise, labels = after - before, self.y.numpy()
        means = np.bincount(labels, rise) / np.maximum(np.bincount(labels), 1)
        return rise - means[labels]


def quiet_examples(public: Tensor | None, classes: int, count: int, generator: np.random.Generator) -> ExampleCanaries:
    """So many canaries for a task with these public inputs."""
    validate.positive_integer(canaries=count, classes=classes)
    if public is None or not public.is_floating_point():
        raise InvalidArgument("canary", "example", "gradient: this task has no public inputs to make examples from")
    flat = public.flatten(1).double().numpy()
    if flat.shape[1] > _LARGEST:
        raise InvalidArgument("canary", "example", f"gradient: these inputs have more than {_LARGEST} numbers each")
    centred = flat - flat.mean(axis=0)
    _, directions = np.linalg.eigh(centred.T @ centred)  # ascending: the quietest first
    quiet = directions[:, : max(1, flat.shape[1] // _QUIET)]
    x = generator.standard_normal((count, quiet.shape[1])) @ quiet.T
    x *= np.linalg.norm(flat, axis=1).mean() / np.linalg.norm(x, axis=1, keepdims=True)
    inputs = torch.from_numpy(x).to(torch.promote_types(public.dtype, torch.float32)).view(count, *public.shape[1:])
    return ExampleCanaries(inputs, torch.from_numpy(generator.integers(classes, size=count)))
