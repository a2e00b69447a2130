"""Epsilon in the place where a run's other curves are: TensorBoard, MLflow, Weights & Biases, or any object with `log`.

A `Tracker` takes numbers with a step. `Tracking` gives it the account of an engine, and what the caller adds:

    with Tracking(engine, TensorBoard("runs/one"), delta=1e-5, every=10) as tracking:
        for x, y in loader:
            ...
            optimizer.step()
            tracking.step(test_loss=public_loss)

The same object goes into `plrvo.training.loop.Run(tracking=...)`. A `PrivateTrainer` puts both epsilons into its logs,
from where its `report_to` and its `trackers` have them.

Epsilons depend on counts of steps alone, and may be shown. What the caller adds is shown as it is: a loss or a norm of
private examples has no noise, and no account here covers it; losses of public data have nothing to hide.

The libraries are imported when a tracker is made. Each is an extra: `pip install plrvo[tensorboard]`, `[mlflow]`,
`[wandb]`.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self

from plrvo.validate import InvalidArgument, installing, positive_integer

if TYPE_CHECKING:
    from plrvo.training.engine import PrivacyEngine


class Tracker(Protocol):
    """Where numbers go."""

    def log(self, step: int, values: Mapping[str, float]) -> None: ...
    def close(self) -> None: ...


class TensorBoard:
    """Event files in a folder."""

    def __init__(self, folder: str | Path) -> None:
        _library("tensorboard")
        self._writer = _library("torch.utils.tensorboard", "tensorboard").SummaryWriter(str(folder))

    def log(self, step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        self._writer.close()


class MLflow:
    """A run of its own in a store: a server's address, or by default what MLflow is set to."""

    def __init__(self, uri: str | None = None, *, experiment: str = "plrvo", run_name: str | None = None) -> None:
        self._client = _library("mlflow").MlflowClient(tracking_uri=uri)
        known = self._client.get_experiment_by_name(experiment)
        number = self._client.create_experiment(experiment) if known is None else known.experiment_id
        self.run_id: str = self._client.create_run(number, run_name=run_name).info.run_id

    def log(self, step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._client.log_metric(self.run_id, name, value, step=step)

    def close(self) -> None:
        self._client.set_terminated(self.run_id)


class WeightsAndBiases:
    """A run of its own, which stays in a folder (`wandb sync` sends it) unless `mode` is "online"."""

    def __init__(self, folder: str | Path, *, project: str = "plrvo", mode: str = "offline", **options: Any) -> None:
        wandb = _library("wandb")
        self._run = wandb.init(dir=str(folder), project=project, mode=mode, **options)

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self._run.log(dict(values), step=step)

    def close(self) -> None:
        self._run.finish()


class Tracking:
    """The certified and the lower epsilon of an engine, at every `every`-th step, to any number of trackers.

    `delta` may be left out for an engine with a plan.
    """

    def __init__(self, engine: PrivacyEngine, *trackers: Tracker, delta: float | None = None, every: int = 1) -> None:
        positive_integer(every=every)
        given = delta if delta is not None or engine.plan is None else engine.plan.delta
        if given is None:
            raise InvalidArgument("delta", None, "a delta, for an engine without a plan")
        self._engine, self._trackers = engine, trackers
        self._delta, self._every, self._last = given, every, 0

    def step(self, **metrics: float) -> None:
        """After a step of the optimizer; of the parts of a batch only the last is one.

        Metrics are passed on whenever they are given, epsilons at every `every`-th step.
        """
        taken = len(self._engine.accountant)
        due = taken != self._last and taken % self._every == 0
        self._last = taken
        values = {**(spent(self._engine, self._delta) if due else {}), **metrics}
        if values:
            for tracker in self._trackers:
                tracker.log(taken, values)

    def close(self) -> None:
        """Once nothing more comes."""
        for tracker in self._trackers:
            tracker.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def spent(engine: PrivacyEngine, delta: float) -> dict[str, float]:
    """Both ends of the bracket so far, by the names that all logs have; without one that is infinite."""
    bracket = engine.epsilon(delta)
    both = {"epsilon_certified": bracket.certified, "epsilon_lower": bracket.lower}
    return {name: value for name, value in both.items() if math.isfinite(value)}


def _library(name: str, extra: str | None = None) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        wanted = extra or name
        raise InvalidArgument("tracker", wanted, f"an installed library: {installing(wanted)}") from None
