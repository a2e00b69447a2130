"""Images in colour, a network with group normalisation, batches that do not fit into memory, and a schedule.

Random patterns stand in for CIFAR-10; torchvision's CIFAR10 goes into `DataLoader` likewise.
"""

import math

import torch
from opacus.utils.batch_memory_manager import BatchMemoryManager
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

from plrvo import PrivacyEngine

DELTA = 1e-4
CLASSES = 4


def data() -> Dataset:
    generator = torch.Generator().manual_seed(0)
    patterns = torch.randn(CLASSES, 3, 16, 16, generator=generator)
    labels = torch.randint(CLASSES, (320,), generator=generator)
    return TensorDataset(patterns[labels] + torch.randn(320, 3, 16, 16, generator=generator), labels)


class Block(nn.Module):
    """A residual block; batch normalisation would mix examples, group normalisation does not."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.normalisation = nn.GroupNorm(4, channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x + self.normalisation(self.convolution(x)))


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, stride=2, padding=1),
        Block(16),
        Block(16),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(64, CLASSES),
    )


def loss_of(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    images, labels = batch
    return nn.CrossEntropyLoss()(model(images), labels)


def main(epochs: int = 3) -> None:
    model = network()
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
    loader = DataLoader(data(), batch_size=64, shuffle=True)
    engine = PrivacyEngine()
    model, optimizer, loader = engine.make_private(
        module=model, optimizer=optimizer, data_loader=loader, noise_multiplier=1.5, max_grad_norm=10.0
    )
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=epochs)
    for epoch in range(epochs):
        # At most 16 images go through the model at once; a step is still one batch of about 64.
        with BatchMemoryManager(data_loader=loader, max_physical_batch_size=16, optimizer=optimizer) as parts:
            for batch in parts:
                optimizer.zero_grad()
                loss_of(model, batch).backward()
                optimizer.step()
        schedule.step()
        print(f"epoch {epoch + 1}: epsilon {math.ceil(100 * engine.get_epsilon(DELTA)) / 100}")


if __name__ == "__main__":
    main()
