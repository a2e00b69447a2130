"""How a run is carried out: its settings, its optimizer, its random streams, and the folder that takes it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from plrvo.budget.address import Address
from plrvo.noise import Keystream
from plrvo.records.choices import refuse_alone
from plrvo.records.folder import CHECKPOINT
from plrvo.tasks.choices import SCHEDULES, check_choices, check_folder
from plrvo.tasks.job import LARGEST_RATE
from plrvo.training.checkpoint import read_extra
from plrvo.validate import InvalidArgument

OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]]
OPTIMIZERS = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
WITH_MOMENTUM = ("sgd",)  # the others have moments of their own


@dataclass(frozen=True)
class Settings:
    """How a run is carried out. Nothing here may be chosen by looking at the private data."""

    out: Path
    learning_rate: float
    optimizer: str = "sgd"
    momentum: float = 0.0
    weight_decay: float = 0.0
    schedule: str = "constant"
    average: float | None = None
    grad_sample_mode: str = "auto"
    postprocess: str | None = None
    expected_batch_size: int | None = None
    physical_batch: int | None = None
    evaluate_every: int = 50
    checkpoint_every: int = 50
    resume: bool = False
    seed: int | None = None
    unsafe_diagnostics: bool = False  # write what is known of private examples before the noise
    budget: Address | None = None  # the account that is charged (`plrvo.budget`)
    job: dict[str, Any] | None = None  # what was asked for (`plrvo.tasks.job`), kept in the folder

    def check(self) -> None:
        """Refuse what would fail after work has been done, or would overwrite another run."""
        check_choices(self.optimizer, self.schedule)
        if not 0 < self.learning_rate < LARGEST_RATE:
            raise InvalidArgument("learning_rate", self.learning_rate, "above 0 and below 1e37")
        refuse_alone(self.grad_sample_mode)
        check_folder(self.out, self.resume)

    @property
    def fixed(self) -> dict[str, Any]:
        """What a resumed run must have in common with the one that it continues."""
        names = "learning_rate optimizer momentum weight_decay schedule average postprocess grad_sample_mode "
        names += "expected_batch_size seed unsafe_diagnostics"
        return {name: getattr(self, name) for name in names.split()}

    def rate_at(self, steps: int) -> Callable[[int], float]:
        """The learning rate by the number of steps taken, for a run of `steps`."""
        share = SCHEDULES[self.schedule]
        return lambda step: self.learning_rate * share(step, steps)


def read_job(out: Path) -> Any:
    """What was asked for when the run in this folder was begun; None in one of an older version."""
    extra = read_extra(out / CHECKPOINT)
    return extra.get("job") if isinstance(extra, dict) else None


@dataclass(frozen=True)
class Streams:
    """Independent generators for the weights, the batches and the noise, all from one seed."""

    weights: torch.Generator
    batches: Keystream
    noise: Keystream

    @staticmethod
    def from_seed(seed: int | None) -> Streams:
        """A seed of None asks the operating system. The same seed gives the same three streams, and no privacy."""
        weights = torch.Generator()
        if seed is None:
            weights.seed()
            return Streams(weights, Keystream(), Keystream())
        weights.manual_seed(int(np.random.SeedSequence(seed).generate_state(1, np.uint64)[0] >> np.uint64(1)))
        return Streams(weights, Keystream.from_seed(seed, "batches"), Keystream.from_seed(seed, "noise"))


def build_optimizer(name: str, module: nn.Module, settings: Settings) -> torch.optim.Optimizer:
    """One of OPTIMIZERS, which takes its step in one pass over memory where torch has that for processors ("fused")."""
    own: dict[str, Any] = {"momentum": settings.momentum} if name in WITH_MOMENTUM else {}
    parameters = [p for p in module.parameters() if p.requires_grad]
    # Elsewhere torch chooses by itself; of parts of a larger tensor its kernel writes to the rest.
    if all(p.device.type == "cpu" and p.is_contiguous() for p in parameters):
        own["fused"] = True
    return OPTIMIZERS[name](parameters, lr=settings.learning_rate, weight_decay=settings.weight_decay, **own)
