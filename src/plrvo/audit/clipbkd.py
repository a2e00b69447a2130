"""ClipBKD, the black-box audit (Jagielski, Ullman and Oprea 2020), as the paper uses it.

One poisoning point is made to survive clipping: it lies along the direction in which the data varies least, is as long
as a typical example, and bears the label that a clean model finds least likely there. Models are trained with it and
without it; the attacker sees a trained model's outputs only and scores how much it believes in the label,

    score = m(poison) - m(0),     m = log p(label) - log(1 - p(label)),

the origin being asked too so that the drift of the biases cancels.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from plrvo import validate
from plrvo.accounting import Workload
from plrvo.audit.blocks import Block, Progress, joblib_engine, run_blocks
from plrvo.audit.data import Dataset
from plrvo.audit.ensemble import Recipe, train
from plrvo.audit.mechanism import new_seed
from plrvo.audit.models import EnsembleModel, Examples, ModelKind, make_model
from plrvo.audit.verdict import TwoWorlds, check_claim, judge, per_world
from plrvo.noise import Noise

Array = NDArray[np.float64]
BLOCK = 100  # models that train at once


@dataclass(frozen=True)
class Poison:
    """The point that one world trains on and the other does not.

    `text` is what it is the features of, if any. `asked` is where the attacker asks the model, if not at the point.
    """

    x: NDArray[np.float32]
    label: int
    text: str | None = None
    asked: NDArray[np.float32] | None = None


def make_poison(data: Dataset) -> Poison:
    """Last principal direction, mean norm, least likely label."""
    centred = data.x.astype(np.float64) - data.x.mean(axis=0)
    _, directions = np.linalg.eigh(centred.T @ centred)  # ascending: the first has the least variance
    direction = directions[:, 0]
    direction *= np.sign(direction[np.argmax(np.abs(direction))])
    x = (direction * np.linalg.norm(data.x, axis=1).mean()).astype(np.float32)
    return Poison(x, least_likely(data, x))


def least_likely(data: Dataset, x: NDArray[np.float32]) -> int:
    """The label that a clean model finds least likely at x."""
    return int(np.argmin(_clean_logits(data, x)))


def _clean_logits(data: Dataset, x: NDArray[np.float32], passes: int = 200) -> Array:
    """What softmax regression without privacy says at x, after so many full gradient steps with momentum."""
    inputs = np.append(data.x.astype(np.float64), np.ones((len(data), 1)), axis=1)
    labels = np.eye(data.classes)[data.y]
    weights = np.zeros((inputs.shape[1], data.classes))
    velocity = np.zeros_like(weights)
    rate = 1 / float(np.square(inputs).sum(axis=1).mean())
    for _ in range(passes):
        logits = inputs @ weights
        odds = np.exp(logits - logits.max(axis=1, keepdims=True))
        velocity = 0.9 * velocity + inputs.T @ (odds / odds.sum(axis=1, keepdims=True) - labels) / len(data)
        weights -= rate * velocity
    return np.append(x.astype(np.float64), 1.0) @ weights


@dataclass(frozen=True)
class Attack:
    """Everything that a worker needs to train and score a block of models."""

    data: Dataset
    poison: Poison
    kind: ModelKind
    recipe: Recipe
    noise: Noise | None
    seed: int

    @cached_property
    def model(self) -> EnsembleModel:
        return make_model(self.kind, self.data.x.shape[1], self.data.classes)

    def __call__(self, block: Block) -> Array:
        return self.scores(bool(block.world), block.size, block.generator(self.seed))

    def scores(self, poisoned: bool, models: int, generator: np.random.Generator) -> Array:
        """Scores of freshly trained models of one world."""
        x, y = self.data.x, self.data.y
        if poisoned:
            x, y = np.append(x, self.poison.x[None, :], axis=0), np.append(y, self.poison.label)
        parameters = train(self.model, Examples(x, y), self.recipe, self.noise, models, generator)
        asked = self.poison.x if self.poison.asked is None else self.poison.asked
        at_poison = self.model.logits(parameters, torch.tensor(asked))
        at_zero = self.model.logits(parameters, torch.zeros(x.shape[1]))
        return (_margin(at_poison, self.poison.label) - _margin(at_zero, self.poison.label)).numpy().astype(np.float64)


def _margin(logits: torch.Tensor, label: int) -> torch.Tensor:
    others = torch.cat([logits[:, :label], logits[:, label + 1 :]], dim=1)
    return logits[:, label] - torch.logsumexp(others, dim=1)


def make_recipe(
    data: Dataset,
    clip: float | None = 1.0,
    sample_rate: float | None = None,
    steps: int | None = None,
    learning_rate: float | None = None,
) -> Recipe:
    """The paper's training, except for what is given.

    Batches of about 250 (q = 1/24); 24 epochs at learning rate 0.15 for images, 100 at 2 for binary features. Text has
    batches of about 1024 and 3 epochs; its learning rate is ours, for features in place of a whole network.
    """
    usual_rate, epochs, usual_learning = {
        "fashion-mnist": (1 / 24, 24, 0.15),
        "sst2": (min(1.0, 1024 / len(data)), 3, 4.0),
    }.get(data.name, (1 / 24, 100, 2.0))
    rate = usual_rate if sample_rate is None else sample_rate
    validate.rate(sample_rate=rate)
    return Recipe(
        sample_rate=rate,
        steps=math.ceil(epochs / rate - 1e-9) if steps is None else steps,
        clip=clip,
        learning_rate=usual_learning if learning_rate is None else learning_rate,
        divisor=len(data) * rate,
    )


def workload(data: Dataset, kind: ModelKind, recipe: Recipe) -> Workload:
    """What the claim for this training rests on."""
    if recipe.clip is None:
        raise validate.InvalidArgument("clip", None, "a clip: without one nothing is claimed")
    dimension = make_model(kind, data.x.shape[1], data.classes).dimension
    return Workload(sample_rate=recipe.sample_rate, steps=recipe.steps, clip=recipe.clip, dimension=dimension)


def audit_clipbkd(
    data: Dataset,
    noise: Noise | None,
    delta: float,
    claim: float,
    *,
    kind: ModelKind = "lr",
    recipe: Recipe | None = None,
    poison: Poison | None = None,
    models: int = 2000,
    confidence: float = 0.99,
    seed: int | None = None,
    engine: str = "loky",
    jobs: int = 1,
    state: Path | None = None,
    progress: Progress | None = None,
) -> TwoWorlds:
    """Whether the claim survives ClipBKD. A quarter of the models each: threshold and test, without and with."""
    check_claim(claim)
    runs = per_world(models, "models", confidence, delta)
    recipe = recipe or make_recipe(data)
    seed = new_seed() if seed is None else seed
    validate.non_negative(seed=seed)
    attack = Attack(data, poison or make_poison(data), kind, recipe, noise, seed)
    scores = run_blocks(
        attack,
        runs,
        BLOCK,
        joblib_engine(engine, jobs),
        settings=_settings(attack),
        state=state,
        progress=progress,
    )
    return judge(scores, claim, delta, confidence)


def _settings(attack: Attack) -> dict[str, Any]:
    return {
        "audit": "clipbkd",
        "data": attack.data.name,
        "examples": len(attack.data),
        "model": attack.kind,
        "recipe": attack.recipe.to_dict(),
        "noise": None if attack.noise is None else attack.noise.to_dict(),
        "poison": hashlib.sha256(attack.poison.x.tobytes() + bytes([attack.poison.label])).hexdigest(),
        "seed": attack.seed,
    }
