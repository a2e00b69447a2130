"""Texts of any length, padded to the longest of their batch, by a model that does not mask padding.

In a batch, one long text would change what the model computes for all others, so that the engine refuses it. Here each
text is collated, read and differentiated alone: nothing that model, loss and collate function do can make two meet.
"""

import math
import random

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader

import plrvo

DELTA = 1e-4
WORDS = 50


def data() -> list[tuple[Tensor, Tensor]]:
    """Made-up texts of two kinds: words below or above the middle come more often."""
    source, found = random.Random(0), []
    for i in range(240):
        weights = [3 if (word < WORDS // 2) == (i % 2 == 0) else 1 for word in range(1, WORDS)]
        text = source.choices(range(1, WORDS), weights, k=source.choice((4, 8, 16)))
        found.append((torch.tensor(text), torch.tensor(i % 2)))
    return found


def padded(examples: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    texts, kinds = zip(*examples, strict=True)
    return pad_sequence(list(texts), batch_first=True), torch.stack(kinds)


class Reader(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.out = nn.Embedding(WORDS, 16), nn.Linear(16, 2)

    def forward(self, texts: Tensor) -> Tensor:
        return self.out(self.words(texts).mean(dim=1))


def loss_of(model: nn.Module, example: tuple[Tensor, Tensor]) -> Tensor:
    text, kind = example  # a batch of one, as `padded` makes it
    return nn.functional.cross_entropy(model(text), kind)


def main(epochs: int = 3) -> None:
    model = Reader()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-1)
    engine = plrvo.PrivacyEngine()
    model, optimizer, loader = engine.make_private(
        module=model,
        optimizer=optimizer,
        data_loader=DataLoader(data(), batch_size=48, collate_fn=padded),
        noise_multiplier=1.0,
        max_grad_norm=1.0,
        grad_sample_mode="alone",
        criterion=loss_of,
    )
    for epoch in range(epochs):
        for examples in loader:
            optimizer.zero_grad()
            model.backward(examples)
            optimizer.step()
        print(f"epoch {epoch + 1}: epsilon {math.ceil(100 * engine.get_epsilon(delta=DELTA)) / 100}")


if __name__ == "__main__":
    main()
