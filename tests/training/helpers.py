"""Small private trainings whose every part is known."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import plrvo
from plrvo.training import PrivacyEngine

GAMMA = plrvo.GammaPLRV(k=5.0, theta=0.2)
CLASSES = 4


def small_data(size: int = 200) -> TensorDataset:
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(size, 1, 8, 8, generator=generator)
    return TensorDataset(x, torch.randint(0, CLASSES, (size,), generator=generator))


def small_model() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(5)
        return nn.Sequential(nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(), nn.Flatten(), nn.Linear(144, CLASSES))


def dimension_of(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters() if p.requires_grad)


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def private(
    noise: plrvo.Noise = GAMMA,
    *,
    mode: str = "hooks",
    clipping: str = "flat",
    sample_rate: float = 0.1,
    steps: int = 10,
    clip: float = 1.0,
    epsilon: float | None = None,
    postprocess: str | None = None,
    average: float | None = None,
    loss_reduction: str = "mean",
    learning_rate: float = 0.1,
    data: Any = None,
    module: nn.Module | None = None,
    seed: int = 1,
    **options: Any,
) -> tuple[PrivacyEngine, Any, Any, Any, Any]:
    """(engine, module, optimizer, loss, loader)."""
    module = module or small_model()
    work = plrvo.Workload(sample_rate=sample_rate, steps=steps, clip=clip, dimension=dimension_of(module))
    plan = plrvo.Plan.certify(noise, work, 1e-4, epsilon, clipping=clipping)
    engine = PrivacyEngine(plan, postprocess=postprocess, average=average)
    prepared = engine.make_private(
        module=module,
        optimizer=torch.optim.SGD(module.parameters(), lr=learning_rate),
        data_loader=DataLoader(data or small_data()),
        grad_sample_mode=mode,
        loss_reduction=loss_reduction,
        noise_generator=seeded(seed),
        sample_generator=seeded(seed + 1000),
        steps_per_epoch=steps,  # one pass is the run
        **options,
    )
    model, optimizer, *criterion, loader = prepared
    loss = criterion[0] if criterion else nn.CrossEntropyLoss(reduction=loss_reduction)
    return engine, model, optimizer, loss, loader


def take_steps(model: Any, optimizer: Any, loss: Any, loader: Any) -> list[int]:
    """Run the loader to its end; returns the batch sizes."""
    sizes = []
    for x, y in loader:
        optimizer.zero_grad()
        loss(model(x), y).backward()
        optimizer.step()
        sizes.append(len(x))
    return sizes


def given(optimizer: Any, size: int) -> None:
    """Have a batch of the test's own count as drawn; users have no business with this."""
    optimizer.draws.drawn(range(size))


def released(model: Any, optimizer: Any, loss: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """What one step on a given batch releases, at sum scale, as one vector."""
    optimizer.zero_grad()
    given(optimizer, len(x))
    loss(model(x), y).backward()
    assert optimizer.pre_step()
    scale = 1.0 if optimizer.loss_reduction == "sum" else optimizer.expected_batch_size
    return torch.cat([(p.grad * scale).flatten() for p in optimizer.params])
