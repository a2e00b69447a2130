"""A generative adversarial network: the discriminator sees private images and is private, and so is the generator.

The generator learns from the discriminator alone, which is post-processing. Disks stand in for photographs.
"""

import math

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

from plrvo import PrivacyEngine

DELTA = 1e-4
SIDE, CODE = 8, 12


def data() -> Dataset:
    generator = torch.Generator().manual_seed(0)
    radius = 1.5 + 2 * torch.rand(192, 1, 1, generator=generator)
    line = torch.arange(SIDE) - (SIDE - 1) / 2
    inside = line[:, None] ** 2 + line[None, :] ** 2 < radius**2
    return TensorDataset(inside.float()[:, None] * 2 - 1)


def network() -> nn.Module:
    """The discriminator: positive for what it takes for real."""
    return nn.Sequential(
        nn.Conv2d(1, 8, 4, stride=2, padding=1),
        nn.LeakyReLU(0.2),
        nn.Conv2d(8, 16, 4, stride=2, padding=1),
        nn.GroupNorm(4, 16),
        nn.LeakyReLU(0.2),
        nn.Conv2d(16, 1, 2),
        nn.Flatten(),
    )


def generator_network() -> nn.Module:
    return nn.Sequential(
        nn.Linear(CODE, 64), nn.ReLU(), nn.Unflatten(1, (16, 2, 2)), nn.ConvTranspose2d(16, 8, 4, 2, 1), nn.ReLU(),
        nn.ConvTranspose2d(8, 1, 4, 2, 1), nn.Tanh(),
    )  # fmt: skip


def judged(scores: torch.Tensor, as_real: bool) -> torch.Tensor:
    return nn.functional.binary_cross_entropy_with_logits(scores, torch.full_like(scores, float(as_real)))


def loss_of(model: nn.Module, batch: list[torch.Tensor]) -> torch.Tensor:
    """A real image and a made one are one example of the discriminator's."""
    (real,) = batch
    with torch.random.fork_rng():
        torch.manual_seed(0)
        made = torch.randn_like(real)
    return judged(model(real), True) + judged(model(made), False)


def main(epochs: int = 3) -> None:
    generator, discriminator = generator_network(), network()
    of_generator = torch.optim.Adam(generator.parameters(), lr=2e-3, betas=(0.5, 0.999))
    of_discriminator = torch.optim.Adam(discriminator.parameters(), lr=2e-3, betas=(0.5, 0.999))
    engine = PrivacyEngine()
    discriminator, of_discriminator, loader = engine.make_private(
        module=discriminator,
        optimizer=of_discriminator,
        data_loader=DataLoader(data(), batch_size=32),
        noise_multiplier=0.8,
        max_grad_norm=1.0,
    )
    for epoch in range(epochs):
        for (real,) in loader:
            made = generator(torch.randn(len(real), CODE))
            of_discriminator.zero_grad()
            loss = judged(discriminator(real), True) + judged(discriminator(made.detach()), False)
            loss.backward()
            of_discriminator.step()
            of_discriminator.zero_grad()

            of_generator.zero_grad()
            judged(discriminator(generator(torch.randn(32, CODE))), True).backward()
            of_generator.step()
            of_discriminator.zero_grad()  # it does not learn from the generator's step
        print(f"epoch {epoch + 1}: epsilon {math.ceil(100 * engine.get_epsilon(DELTA)) / 100}")


if __name__ == "__main__":
    main()
