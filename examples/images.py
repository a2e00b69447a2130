"""Your own images: scattering features, and a linear model on them within a budget, with its weights averaged.

Scikit-learn's digits stand in for your images: a tensor (N, 1 or 3, H, W) with pixels in [0, 1].
"""

import math

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import plrvo
from plrvo.tasks.vision.recipes import scattering_defaults
from plrvo.tasks.vision.scattered import features_of

EPSILON, DELTA = 3.0, 1e-4
PRIVATE = 1400  # images; the others are public test data


def data() -> tuple[TensorDataset, TensorDataset]:
    """Private features and labels, and public ones."""
    pixels, labels = load_digits(return_X_y=True)
    images = torch.tensor(pixels, dtype=torch.float32).reshape(-1, 1, 8, 8) / 16
    # Thousands of images take minutes, once: name a folder for `cache_dir`, which then is as secret as they are.
    features, labels = features_of(images, progress=False).flatten(1), torch.tensor(labels)
    return TensorDataset(features[:PRIVATE], labels[:PRIVATE]), TensorDataset(features[PRIVATE:], labels[PRIVATE:])


def linear(features: int, classes: int) -> nn.Module:
    """It begins at zero, so that there is nothing for a wrong start to undo."""
    layer = nn.Linear(features, classes)
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer


@torch.no_grad()
def accuracy(model: nn.Module, test: TensorDataset) -> float:
    features, labels = test.tensors
    model.eval()
    right = model(features).argmax(1) == labels
    model.train()
    return right.float().mean().item()


def loss_of(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    features, labels = batch
    return nn.functional.cross_entropy(model(features), labels)


def main(epochs: int = 15) -> None:
    private, public = data()
    # What `plrvo train` begins with: 1 is the number of channels, 3 for colour.
    usual = scattering_defaults(1, len(private)).at(EPSILON)
    model = linear(private.tensors[0].shape[1], 10)
    engine = plrvo.PrivacyEngine(average=usual.average)
    # Rates of the presets are in clips.
    optimizer = torch.optim.SGD(model.parameters(), lr=usual.learning_rate / usual.clip, momentum=0.9)
    model, optimizer, loader = engine.make_private_with_epsilon(
        module=model,
        optimizer=optimizer,
        data_loader=DataLoader(private, batch_size=round(usual.sample_rate * len(private))),
        target_epsilon=EPSILON,
        target_delta=DELTA,
        epochs=epochs,
        max_grad_norm=usual.clip,
    )
    for epoch in range(epochs):
        for batch in loader:
            optimizer.zero_grad()
            loss_of(model, batch).backward()
            optimizer.step()
        epsilon = math.ceil(100 * engine.get_epsilon(DELTA)) / 100
        with engine.averaged():  # the model has the average of its weights meanwhile
            print(f"epoch {epoch + 1}: epsilon {epsilon}, accuracy {accuracy(model, public):.3f}")


if __name__ == "__main__":
    main()
