"""A table of numbers: noise is fitted to a budget, columns are scaled by bounds that are known without the data.

Scikit-learn's breast cancer data stands in for a table of your own: 30 numbers about each of 569 patients. The mean and
deviation of private columns would be private too; what can be measured at most is known before anybody is measured.
"""

import math

import torch
from sklearn.datasets import load_breast_cancer
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

from plrvo import PrivacyEngine

DELTA = 1e-4
LARGEST = (30, 40, 200, 2500, 0.2, 0.4, 0.5, 0.25, 0.4, 0.1)  # of the ten measurements, chosen without the data
FACTORS = (1.0, 0.1, 1.5)  # means, their errors and the worst of each have three columns a measurement


def data() -> tuple[Dataset, Dataset]:
    """Private training data, public test data."""
    columns, labels = load_breast_cancer(return_X_y=True)
    bounds = torch.tensor([factor * largest for factor in FACTORS for largest in LARGEST])
    scaled = (torch.tensor(columns, dtype=torch.float32) / bounds).clamp(0, 1)
    order = torch.randperm(len(scaled), generator=torch.Generator().manual_seed(0))
    scaled, labels = scaled[order], torch.tensor(labels)[order]
    return TensorDataset(scaled[:450], labels[:450]), TensorDataset(scaled[450:], labels[450:])


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(30, 16), nn.Tanh(), nn.Linear(16, 2))


def loss_of(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    rows, labels = batch
    return nn.functional.cross_entropy(model(rows), labels)


def accuracy(model: nn.Module, test: Dataset) -> float:
    rows, labels = test[:]
    return (model(rows).argmax(dim=1) == labels).float().mean().item()


def main(epochs: int = 20) -> None:
    train, test = data()
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    engine = PrivacyEngine()
    model, optimizer, loader = engine.make_private_with_epsilon(
        module=model,
        optimizer=optimizer,
        data_loader=DataLoader(train, batch_size=90, shuffle=True),
        target_epsilon=3.0,
        target_delta=DELTA,
        epochs=epochs,
        max_grad_norm=1.0,
    )
    for epoch in range(epochs):
        for batch in loader:
            optimizer.zero_grad()
            loss_of(model, batch).backward()
            optimizer.step()
        epsilon = math.ceil(100 * engine.get_epsilon(DELTA)) / 100  # never told smaller than it is
        print(f"epoch {epoch + 1}: accuracy {accuracy(model, test):.3f}, epsilon {epsilon}")


if __name__ == "__main__":
    main()
