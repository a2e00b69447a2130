"""A small convolutional network on images of digits: noise multiplier and clip are given, epsilon is read off.

Scikit-learn's digits stand in for MNIST, so that nothing is downloaded.
"""

import math

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

from plrvo import PrivacyEngine

DELTA = 1e-4


def data() -> tuple[Dataset, Dataset]:
    """Private training data, public test data."""
    pixels, labels = load_digits(return_X_y=True)
    images = torch.tensor(pixels, dtype=torch.float32).reshape(-1, 1, 8, 8) / 16
    labels = torch.tensor(labels)
    return TensorDataset(images[:1400], labels[:1400]), TensorDataset(images[1400:], labels[1400:])


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(128, 10),
    )


def loss_of(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    images, labels = batch
    return nn.functional.cross_entropy(model(images), labels)


def accuracy(model: nn.Module, test: Dataset) -> float:
    model.eval()
    with torch.no_grad():
        right = sum(int((model(x).argmax(1) == y).sum()) for x, y in DataLoader(test, batch_size=256))
    model.train()
    return right / len(test)


def main(epochs: int = 3) -> None:
    train, test = data()
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0, momentum=0.5)
    engine = PrivacyEngine()
    model, optimizer, loader = engine.make_private(
        module=model,
        optimizer=optimizer,
        data_loader=DataLoader(train, batch_size=128, shuffle=True),
        noise_multiplier=1.0,
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
