"""A small private training in any mode, and the largest effect that one example has on what it releases."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import torch
from tests.training.helpers import dimension_of
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import plrvo
from plrvo.noise import Keystream
from plrvo.training import PrivacyEngine

CLIP = 0.1
FEATURES, CLASSES = 6, 3


def data(size: int = 60) -> TensorDataset:
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(size, FEATURES, generator=generator)
    return TensorDataset(x, torch.randint(0, CLASSES, (size,), generator=generator))


def mlp() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(5)
        return nn.Sequential(nn.Linear(FEATURES, 8), nn.Tanh(), nn.Linear(8, CLASSES))


class Private:
    """engine, module, optimizer and loader of one run; noise is a ten-thousandth of the clip unless given."""

    def __init__(
        self,
        mode: str,
        module: nn.Module | None = None,
        *,
        noise: plrvo.Noise | None = None,
        steps: int = 10,
        epsilon: float | None = None,
        sample_rate: float = 0.5,
        examples: Any = None,
        clip: float = CLIP,
        clipping: str = "flat",
        workers: int = 0,
        collate: Any = None,
        **options: Any,
    ) -> None:
        self.plain = module or mlp()
        self.examples = examples or data()
        work = plrvo.Workload(sample_rate=sample_rate, steps=steps, clip=clip, dimension=dimension_of(self.plain))
        exact = mode == "exact"
        grid = 2.0**-30 if exact and noise is None else None  # the default for noise so small would be too fine
        noise = noise or plrvo.Laplace(1e-4 * clip)
        plan = plrvo.Plan.certify(noise, work, 1e-4, epsilon, clipping=clipping)
        self.engine = PrivacyEngine(plan, exact=exact, grid=grid)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.module, self.optimizer, self.loader = self.engine.make_private(
                module=self.plain,
                optimizer=torch.optim.SGD(self.plain.parameters(), lr=0.1),
                data_loader=DataLoader(self.examples, num_workers=workers, collate_fn=collate),
                grad_sample_mode="auto" if exact else mode,
                noise_generator=Keystream(bytes(32)),
                sample_generator=Keystream(bytes(range(32))),
                **{"steps_per_epoch": steps, **options},  # one pass is the run
            )

    def train(self, steps: int | None = None, loss: Any = None, forward: Any = None) -> None:
        """The loop that everybody writes."""
        loss, forward = loss or nn.CrossEntropyLoss(), forward or self.module
        for taken, (x, y) in enumerate(self.loader, start=1):
            self.optimizer.zero_grad()
            loss(forward(x), y).backward()
            self.optimizer.step()
            if taken == steps:
                return

    def released(self, x: Tensor, y: Tensor, loss: Any = None, forward: Any = None) -> Tensor:
        """What one step on this batch releases, at sum scale; the batch counts as drawn."""
        loss, forward = loss or nn.CrossEntropyLoss(), forward or self.module
        self.optimizer.zero_grad()
        self.optimizer.draws.drawn(range(len(x)))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            loss(forward(x), y).backward()
            self.optimizer.pre_step()
        return (
            torch.cat([p.grad.flatten().double() for p in self.optimizer.params]) * self.optimizer.expected_batch_size
        )


def effect_of_first(mode: str, x: Tensor, y: Tensor, module: nn.Module | None = None, **how: Any) -> float:
    """How far the release moves, in clips, when the first example leaves the batch."""
    found = []
    for start in (0, 1):
        run = Private(mode, copy.deepcopy(module) if module else None)
        found.append(run.released(x[start:], y[start:], **how))
    return float((found[0] - found[1]).norm()) / CLIP
