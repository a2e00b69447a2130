"""A prediction of theta by gradient boosting, from (k, epsilon, C, T, q), trained on what the solver found.

A prediction is a guess and carries no guarantee: `start` hands it to the solver, `certified_noise` searches from it
with the accountant. Neither can return a noise that misses its budget because of a bad guess.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from plrvo.accounting import Workload
from plrvo.designer.privacy import Privacy
from plrvo.designer.problem import Accountant, Point, Problem, read_accountant
from plrvo.noise import GammaPLRV
from plrvo.noise.base import Array
from plrvo.validate import InvalidArgument, installing, positive_integer, probability

FEATURES = ("k", "epsilon", "clip", "steps", "sample_rate")


@dataclass(frozen=True)
class Configuration:
    """A setting, and the largest theta that meets its budget."""

    k: float
    epsilon: float
    clip: float
    steps: int
    sample_rate: float
    theta: float

    @property
    def features(self) -> tuple[float, ...]:
        """In logs, over which the settings are spread evenly."""
        return tuple(math.log(value) for value in (self.k, self.epsilon, self.clip, self.steps, self.sample_rate))


@dataclass(frozen=True)
class Ranges:
    """The settings that a predictor is trained for; each is drawn uniformly in its logarithm."""

    k: tuple[float, float] = (10.0, 1e5)
    epsilon: tuple[float, float] = (0.1, 8.0)
    clip: tuple[float, float] = (0.05, 5.0)
    steps: tuple[int, int] = (100, 5000)
    sample_rate: tuple[float, float] = (0.002, 0.05)

    def draw(self, generator: np.random.Generator) -> dict[str, Any]:
        values = {}
        for name in FEATURES:
            low, high = getattr(self, name)
            values[name] = low * (high / low) ** generator.uniform()
        return {**values, "steps": max(1, round(values["steps"]))}


def configurations(
    count: int,
    generator: np.random.Generator,
    dimension: int = 26_010,
    delta: float = 1e-5,
    accountant: str = "certified",
    ranges: Ranges | None = None,
) -> list[Configuration]:
    """Random settings, each with the theta that the solver's search on the boundary of c2 gives it.

    By the estimate that it runs on: a guess is made of it, and thousands of certificates would take hours.
    """
    positive_integer(count=count)
    named, ranges, found, theta_clip = read_accountant(accountant), ranges or Ranges(), list[Configuration](), 1.0
    while len(found) < count:
        setting = ranges.draw(generator)
        work = Workload(setting["sample_rate"], setting["steps"], setting["clip"], dimension)
        privacy = Privacy(Problem(work, work.clip, setting["epsilon"], delta, named))
        hint = theta_clip / (setting["k"] * work.clip)
        theta = privacy.largest_theta(privacy.estimate, setting["k"], hint, 1e-4)
        if theta == 0:  # out of reach of every width
            continue
        theta_clip = setting["k"] * work.clip * theta  # settings differ, but this varies least: a good first guess
        found.append(Configuration(theta=theta, **setting))
    return found


@dataclass(frozen=True)
class HeldOut:
    """How well the predictor does on configurations that it has not seen. Errors are of log theta.

    Attributes:
        error: root mean square error.
        error_of_mean: that of predicting the training mean.
        typical_factor: the median factor by which a prediction is off.
    """

    truth: Array
    predicted: Array
    error: float
    error_of_mean: float

    @property
    def gain(self) -> float:
        """How many times smaller the error is than that of predicting the mean."""
        return self.error_of_mean / self.error

    @property
    def typical_factor(self) -> float:
        return float(np.exp(np.median(np.abs(self.predicted - self.truth))))


@dataclass(frozen=True)
class ThetaPredictor:
    """A trained predictor with its report; made by `ThetaPredictor.fit`."""

    model: Any
    held_out: HeldOut
    importances: dict[str, float]
    dimension: int
    delta: float
    accountant: Accountant

    @staticmethod
    def fit(
        found: Sequence[Configuration],
        generator: np.random.Generator,
        dimension: int = 26_010,
        delta: float = 1e-5,
        accountant: str = "certified",
        held_out_share: float = 0.2,
    ) -> ThetaPredictor:
        """Train on a random part of the configurations, and judge on the rest.

        `dimension`, `delta` and `accountant` are those that the configurations were made with.
        """
        try:
            from sklearn.ensemble import GradientBoostingRegressor
        except ImportError:
            raise InvalidArgument("predictor", "scikit-learn", f"it to be installed: {installing('design')}") from None
        probability(held_out_share=held_out_share)
        if len(found) < 20:
            raise InvalidArgument("found", f"{len(found)} configurations", "at least 20")
        order = generator.permutation(len(found))
        x = np.array([found[i].features for i in order])
        y = np.log([found[i].theta for i in order])
        cut = max(1, round(held_out_share * len(found)))
        model = GradientBoostingRegressor(
            n_estimators=800,
            learning_rate=0.08,
            max_depth=3,
            subsample=0.5,
            min_samples_leaf=3,
            random_state=int(generator.integers(2**31)),
        )
        model.fit(x[cut:], y[cut:])
        predicted = np.asarray(model.predict(x[:cut]))
        held_out = HeldOut(
            y[:cut],
            predicted,
            float(np.sqrt(np.mean((predicted - y[:cut]) ** 2))),
            float(np.sqrt(np.mean((np.mean(y[cut:]) - y[:cut]) ** 2))),
        )
        importances = dict(zip(FEATURES, (float(value) for value in model.feature_importances_), strict=True))
        return ThetaPredictor(model, held_out, importances, dimension, delta, read_accountant(accountant))

    def start(self, work: Workload, epsilon: float, k: float) -> Point:
        """A start for `design`; the theta in it is predicted, and not certified."""
        features = Configuration(k, epsilon, work.clip, work.steps, work.sample_rate, theta=1.0).features
        return Point(k, math.exp(float(self.model.predict([features])[0])), work.clip)

    def certified_noise(self, work: Workload, epsilon: float, k: float, delta: float) -> GammaPLRV:
        """The widest-theta noise of shape k whose *certified* epsilon meets the budget, searched from the guess."""
        privacy = Privacy(Problem(work, work.clip, epsilon, delta))
        return GammaPLRV(k, privacy.largest_theta(privacy.exact, k, self.start(work, epsilon, k).theta, 3e-4))
