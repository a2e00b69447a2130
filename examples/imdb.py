"""Reviews of films, good or bad: an average of word embeddings, trained up to a budget that is given.

Made-up reviews stand in for IMDB.
"""

import math

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

from plrvo import PrivacyEngine

EPSILON, DELTA = 5.0, 1e-4
WORDS, LENGTH = 200, 20


def data() -> Dataset:
    """Words below 100 are more frequent in good reviews; 0 is padding."""
    generator = torch.Generator().manual_seed(0)
    good = torch.randint(2, (300,), generator=generator)
    words = torch.randint(1, WORDS, (300, LENGTH), generator=generator)
    halved = torch.where(words > 100, words - 99, words)
    likes = torch.rand(300, LENGTH, generator=generator) < 0.4 * good[:, None]
    return TensorDataset(torch.where(likes, halved, words), good)


class Average(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, 16, padding_idx=0)
        self.hidden = nn.Linear(16, 16)
        self.out = nn.Linear(16, 2)

    def forward(self, reviews: torch.Tensor) -> torch.Tensor:
        return self.out(torch.relu(self.hidden(self.words(reviews).mean(dim=1))))


def network() -> nn.Module:
    return Average()


def loss_of(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    reviews, good = batch
    return nn.functional.cross_entropy(model(reviews), good)


def main(epochs: int = 3) -> None:
    model = network()
    engine = PrivacyEngine()
    model, optimizer, loader = engine.make_private_with_epsilon(
        module=model,
        optimizer=torch.optim.Adam(model.parameters(), lr=2e-2),
        data_loader=DataLoader(data(), batch_size=50, shuffle=True),
        target_epsilon=EPSILON,
        target_delta=DELTA,
        epochs=epochs,
        max_grad_norm=1.0,
    )
    print(f"noise multiplier {optimizer.noise_multiplier:.2f}")
    for epoch in range(epochs):
        for batch in loader:
            optimizer.zero_grad()
            loss_of(model, batch).backward()
            optimizer.step()
        print(f"epoch {epoch + 1}: epsilon {math.ceil(100 * engine.get_epsilon(DELTA)) / 100}")


if __name__ == "__main__":
    main()
