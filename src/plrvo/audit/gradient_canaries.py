"""White-box canaries for one run: examples whose gradient is known, and a reader of what each step releases.

A layer of its own is put beside the model, with `coordinates` parameters for each canary. A real example's loss does
not depend on it. Canary i's loss is linear in its parameters and depends on nothing else, so that its gradient is the
same in every step: far beyond the clip, which therefore cuts it to norm C, in equal parts over its coordinates.
Batches, per-example gradients, clipping, noise and division are the engine's own, in every mode that it has.

The attacker sees the released sum y of every step. On the coordinates of one canary it is noise alone, or noise and
C/sqrt(d) in each of d coordinates where the canary was drawn: the best score is the log likelihood ratio with the
sampling coin, as in `mechanism`. The layer is no part of what is released as the model. It counts in the dimension.
"""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from plrvo import validate
from plrvo.accounting import Clipping, Plan
from plrvo.audit.mechanism import with_coin
from plrvo.validate import InvalidArgument

_BEYOND_THE_CLIP = 100.0  # an engine that forgets to clip shows at once
_MOST = 1e6  # of one step's loss: outputs that the claimed noise cannot explain at all must not give infinities


def logits_of(outputs: Any) -> Tensor:
    """The logits among a model's outputs, or all of them."""
    logits: Tensor = getattr(outputs, "logits", outputs)
    return logits


class CanaryModel(nn.Module):
    """A classifier with the canaries' parameters beside it: logits, and after them one output per canary."""

    def __init__(self, model: nn.Module, canaries: int, coordinates: int = 1) -> None:
        super().__init__()
        validate.positive_integer(canaries=canaries, coordinates=coordinates)
        self.model = model
        self.layer = nn.Linear(1, canaries * coordinates, bias=False)
        nn.init.zeros_(self.layer.weight)
        self.canaries = canaries

    def forward(self, *inputs: Any, **named_inputs: Any) -> Tensor:
        logits = logits_of(self.model(*inputs, **named_inputs))
        own: Tensor = self.layer(logits.new_ones(len(logits), 1))
        shares = own.view(len(own), self.canaries, own.shape[1] // self.canaries)
        return torch.cat([logits, shares.sum(dim=2) / math.sqrt(shares.shape[2])], dim=1)


class CanaryLoss(nn.Module):
    """The task's loss on logits, and canary i's own output for the target `classes + i`."""

    def __init__(self, loss: nn.Module, classes: int, clip: float) -> None:
        super().__init__()
        self.loss = copy.deepcopy(loss)
        self.reduction = self.loss.reduction
        self.loss.reduction = "none"  # type: ignore[assignment]
        self.classes, self.strength = classes, _BEYOND_THE_CLIP * clip

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        logits, own = outputs[:, : self.classes], outputs[:, self.classes :]
        planted = targets >= self.classes
        real: Tensor = self.loss(logits, targets.masked_fill(planted, 0))
        canary = self.strength * own.gather(1, (targets - self.classes).clamp_min(0)[:, None])[:, 0]
        losses = torch.where(planted, canary, real)
        return losses if self.reduction == "none" else losses.mean() if self.reduction == "mean" else losses.sum()


class GradientScores:
    """Adds up the canaries' log likelihood ratios over the steps of a run."""

    def __init__(self, model: CanaryModel, plan: Plan) -> None:
        self._weight, self._plan = model.layer.weight, plan
        self._coordinates = len(self._weight) // model.canaries
        self.values: NDArray[np.float64] = np.zeros(model.canaries)

    def step(self, optimizer: Any) -> None:
        """One step's release: the gradient after noise and division, before anything is made of it."""
        gradient = self._weight.grad
        if gradient is None:
            raise InvalidArgument("optimizer", type(optimizer).__name__, "one that has released a step")
        scale = float(optimizer.expected_batch_size) if optimizer.loss_reduction == "mean" else 1.0
        released = gradient.detach().double().cpu().numpy().reshape(len(self.values), -1) * scale
        noise = self._plan.noise
        # The gradient of the loss is positive: it moves the sum up, whatever the optimizer then does with it.
        shift = self._shift(optimizer)
        loss = (noise.log_density(released - shift) - noise.log_density(released)).sum(axis=1)
        self.values += with_coin(np.clip(loss, -_MOST, _MOST), self._plan.workload.sample_rate)

    def _shift(self, optimizer: Any) -> float:
        """By how much a canary moves each of its coordinates: as far as its layer's clip lets it."""
        clip = float(optimizer.clips.get(self._weight, self._plan.workload.clip))
        l1 = self._plan.clipping is Clipping.l1
        return clip / (self._coordinates if l1 else math.sqrt(self._coordinates))
