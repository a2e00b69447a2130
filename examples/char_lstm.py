"""Which language a surname is from: a recurrent network that reads letters, by Opacus's own DPLSTM.

Made-up names of two kinds stand in for a list of real ones.
"""

import math
import random

import torch
from opacus.layers import DPLSTM
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

from plrvo import PrivacyEngine

DELTA = 1e-4
LONGEST = 8
LETTERS = "abcdefghijklmnopqrstuvwxyz"
ENDINGS = ("ov", "ez", "son")


def data() -> Dataset:
    source = random.Random(0)
    names, languages = torch.zeros(240, LONGEST, dtype=torch.long), torch.zeros(240, dtype=torch.long)
    for i in range(240):
        languages[i] = language = source.randrange(len(ENDINGS))
        name = "".join(source.choices(LETTERS, k=source.randint(2, 5))) + ENDINGS[language]
        names[i, : len(name)] = torch.tensor([1 + LETTERS.index(letter) for letter in name])
    return TensorDataset(names, languages)


class CharLSTM(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.letters = nn.Embedding(len(LETTERS) + 1, 16)
        self.lstm = DPLSTM(16, 32, batch_first=True)
        self.out = nn.Linear(32, len(ENDINGS))

    def forward(self, names: torch.Tensor) -> torch.Tensor:
        read, _ = self.lstm(self.letters(names))
        return self.out(read[:, -1])


def network() -> nn.Module:
    return CharLSTM()


def loss_of(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    names, languages = batch
    return nn.functional.cross_entropy(model(names), languages)


def main(epochs: int = 3) -> None:
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    engine = PrivacyEngine()
    model, optimizer, loader = engine.make_private(
        module=model,
        optimizer=optimizer,
        data_loader=DataLoader(data(), batch_size=48),
        noise_multiplier=1.0,
        max_grad_norm=1.5,
    )
    for epoch in range(epochs):
        for batch in loader:
            optimizer.zero_grad()
            loss_of(model, batch).backward()
            optimizer.step()
        print(f"epoch {epoch + 1}: epsilon {math.ceil(100 * engine.get_epsilon(delta=DELTA)) / 100}")


if __name__ == "__main__":
    main()
