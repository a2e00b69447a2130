"""Small correlated trainings whose every part is known."""

from __future__ import annotations

from typing import Any

import torch
from tests.training.helpers import dimension_of, seeded, small_data, small_model
from torch import nn
from torch.utils.data import DataLoader

import plrvo
from plrvo.accounting.correlated import (
    Banded,
    BufferedToeplitz,
    Correlation,
    Participation,
    SquareRoot,
    Strategy,
    Tree,
    fit_banded,
)
from plrvo.training import PrivacyEngine

FIVE_TWICE = Participation(5, 2)
STRATEGIES: dict[str, Strategy] = {
    "identity": Banded(),
    "tree": Tree(),
    "completed": Tree(True),
    "sqrt": SquareRoot(),
    "banded": fit_banded(3, 10),
    "blt": BufferedToeplitz((0.3, 0.2), (0.9, 0.4)),
}


def correlated(
    strategy: Strategy,
    noise: plrvo.Noise | None = None,
    *,
    participation: Participation = FIVE_TWICE,
    steps: int = 10,
    restart: int | None = None,
    epsilon: float | None = None,
    postprocess: str | None = None,
    mode: str = "hooks",
    clipping: str = "flat",
    momentum: float = 0.0,
    size: int = 60,
    seed: int = 1,
    batch_sampler: Any = None,
    num_workers: int = 0,
) -> tuple[PrivacyEngine, Any, Any, Any, Any]:
    """(engine, module, optimizer, loss, loader)."""
    module = small_model()
    work = plrvo.Workload(sample_rate=1.0, steps=steps, clip=1.0, dimension=dimension_of(module))
    plan = plrvo.Plan.certify(
        noise or plrvo.Laplace(2.0), work, 1e-4, epsilon, Correlation(strategy, participation, restart), clipping
    )
    engine = PrivacyEngine(plan, postprocess=postprocess)
    data = small_data(size)
    loader: Any = (
        DataLoader(data, batch_sampler=batch_sampler) if batch_sampler else DataLoader(data, num_workers=num_workers)
    )
    prepared = engine.make_private(
        module=module,
        optimizer=torch.optim.SGD(module.parameters(), lr=0.1, momentum=momentum),
        data_loader=loader,
        grad_sample_mode=mode,
        noise_generator=seeded(seed),
        sample_generator=seeded(seed + 1000),
        steps_per_epoch=steps,  # one pass is the run
    )
    model, optimizer, *criterion, private_loader = prepared
    return engine, model, optimizer, criterion[0] if criterion else nn.CrossEntropyLoss(), private_loader


def weights_of(model: Any) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def released_sums(model: Any, optimizer: Any, loss: Any, loader: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Clipped sums and what was released for them, a row for each step, at sum scale; weights stay as they are."""
    sums, out = [], []
    for x, y in loader:
        optimizer.zero_grad()
        loss(model(x), y).backward()
        add_noise = type(optimizer).add_noise

        def watched(self=optimizer, add_noise=add_noise):
            sums.append(torch.cat([total.flatten() for total in self.sums]))
            add_noise(self)

        optimizer.add_noise = watched
        assert optimizer.pre_step()
        del optimizer.add_noise
        out.append(torch.cat([(p.grad * optimizer.expected_batch_size).flatten() for p in optimizer.params]))
    return torch.stack(sums), torch.stack(out)
