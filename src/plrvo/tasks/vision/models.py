"""The image models by name. Each predicts an example from that example alone: none has BatchNorm.

| name | what |
|---|---|
| `cnn` | the paper's network, 26,010 parameters on 28 x 28 grey images |
| `cnn-tanh` | the same with tanh in place of ReLU |
| `cnn-norm` | one 3 x 3 convolution, normalised, and a linear layer: for small images and few examples |
| `logistic` | one linear layer |
| `resnet18` | ResNet-18 for small images, GroupNorm in place of BatchNorm |
| `vit` | ViT-B/16 with ImageNet weights; `vit:NAME` or `vit:FOLDER` for another checkpoint |
| `efficientnet-lite0-head` | one linear layer on the features of `plrvo.tasks.vision.features` |
| `scattering` | one linear layer on the features of `plrvo.tasks.vision.scattered`, which nothing was trained for |
| `scattering-cnn` | two convolutions and a linear layer on the same features |
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import nn

from plrvo.tasks.preset import initialised_from
from plrvo.tasks.vision.catalog import scaling_of
from plrvo.tasks.vision.efficientnet import FEATURES
from plrvo.tasks.vision.resnet import resnet18
from plrvo.tasks.vision.scattering import PATHS
from plrvo.tasks.vision.vit import DEFAULT_CHECKPOINT, vit
from plrvo.tasks.vision.words import FEATURE_HEAD, SCATTERING, SCATTERING_CNN, check_model
from plrvo.validate import InvalidArgument, positive_integer

Shape = tuple[int, int, int]

# Below this side nothing is left after the two strided convolutions of the paper's network.
SMALLEST_SIDE = 16
WIDTH = 64  # channels of the network on scattering features


def build_model(name: str, data_shape: Shape, classes: int, generator: torch.Generator) -> nn.Module:
    """The model called `name` for images of `data_shape` (C, H, W), one logit per class.

    Its initial weights are a function of the arguments and of one draw from `generator`; torch's global random state is
    neither read nor changed.
    """
    channels, height, width = data_shape
    positive_integer(channels=channels, height=height, width=width, classes=classes)
    check_model(name)
    kind, _, checkpoint = name.partition(":")
    with initialised_from(generator):
        if kind == "logistic":
            return nn.Sequential(nn.Flatten(), nn.Linear(channels * height * width, classes))
        if kind == "cnn-norm":
            return normalised_cnn(data_shape, classes)
        if kind == FEATURE_HEAD:
            return feature_head(data_shape, classes)
        if kind == SCATTERING:
            return scattering_head(data_shape, classes)
        if kind == SCATTERING_CNN:
            return scattering_cnn(data_shape, classes)
        if kind == "resnet18":
            return resnet18(channels, classes)
        if kind == "vit":
            return vit(checkpoint or DEFAULT_CHECKPOINT, data_shape, classes, scaling_of(data_shape))
        return cnn(data_shape, classes, nn.Tanh if kind == "cnn-tanh" else nn.ReLU)


def cnn(data_shape: Shape, classes: int, activation: Callable[[], nn.Module] = nn.ReLU) -> nn.Module:
    """The paper's network; images under 16 pixels get two 3 x 3 convolutions in place of its strided ones.

    >>> sum(p.numel() for p in cnn((1, 28, 28), 10).parameters())
    26010
    """
    channels, height, width = data_shape
    if min(height, width) >= SMALLEST_SIDE:
        convolutions = [
            nn.Conv2d(channels, 16, 8, stride=2, padding=3),
            activation(),
            nn.MaxPool2d(2, 1),
            nn.Conv2d(16, 32, 4, stride=2),
            activation(),
            nn.MaxPool2d(2, 1),
        ]
        sides = [(((side - 2) // 2 + 1 - 1) - 4) // 2 + 1 - 1 for side in (height, width)]
    else:
        convolutions = [
            nn.Conv2d(channels, 16, 3, padding=1),
            activation(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1),
            activation(),
            nn.MaxPool2d(2),
        ]
        sides = [side // 4 for side in (height, width)]
    if min(sides) < 1:
        raise InvalidArgument("data_shape", data_shape, "images of at least 4 x 4 pixels for the CNN")
    return nn.Sequential(
        *convolutions,
        nn.Flatten(),
        nn.Linear(32 * sides[0] * sides[1], 32),
        activation(),
        nn.Linear(32, classes),
    )


def normalised_cnn(data_shape: Shape, classes: int) -> nn.Module:
    """A convolution whose features are normalised for each image before one linear layer: 2,730 parameters on digits.

    The normalisation has no parameters, looks at one image at a time, and makes all gradients of the linear layer about
    equally long, so that clipping distorts them little. Few parameters take up little noise.

    >>> sum(p.numel() for p in normalised_cnn((1, 8, 8), 10).parameters())
    2730
    """
    channels, height, width = data_shape
    if min(height, width) < 2:
        raise InvalidArgument("data_shape", data_shape, "images of at least 2 x 2 pixels for the CNN")
    features = 16 * (height // 2) * (width // 2)
    return nn.Sequential(
        nn.Conv2d(channels, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.LayerNorm(features, elementwise_affine=False),
        nn.Linear(features, classes),
    )


def feature_head(data_shape: Shape, classes: int) -> nn.Module:
    """The layer that is trained in private on features of a public network, as `feature_data` gives them."""
    if data_shape != (FEATURES, 1, 1):
        raise InvalidArgument(
            "data_shape",
            data_shape,
            f"({FEATURES}, 1, 1), the shape of what plrvo.tasks.vision.features.feature_data returns",
        )
    return nn.Sequential(nn.Flatten(), nn.Linear(FEATURES, classes))


def scattering_head(data_shape: Shape, classes: int) -> nn.Module:
    """A linear layer on scattering features, as `scattering_data` gives them; it begins at zero.

    >>> sum(p.numel() for p in scattering_head((81, 7, 7), 10).parameters())
    39700
    """
    _check_scattered(data_shape)
    linear = nn.Linear(math.prod(data_shape), classes)
    nn.init.zeros_(linear.weight)
    nn.init.zeros_(linear.bias)
    return nn.Sequential(nn.Flatten(-3), linear)  # from the end: views may stand before the channels


def scattering_cnn(data_shape: Shape, classes: int) -> nn.Module:
    """The network that Tramèr and Boneh (2021) train on scattering features of CIFAR-10.

    >>> sum(p.numel() for p in scattering_cnn((243, 8, 8), 10).parameters())
    187210
    """
    channels, height, width = data_shape
    _check_scattered(data_shape)
    return nn.Sequential(
        nn.Conv2d(channels, WIDTH, 3, padding=1),
        nn.Tanh(),
        nn.MaxPool2d(2),
        nn.Conv2d(WIDTH, WIDTH, 3, padding=1),
        nn.Tanh(),
        nn.Flatten(),
        nn.Linear(WIDTH * (height // 2) * (width // 2), classes),
    )


def _check_scattered(data_shape: Shape) -> None:
    channels, height, width = data_shape
    if channels % PATHS or min(height, width) < 2:
        raise InvalidArgument(
            "data_shape",
            data_shape,
            f"a multiple of {PATHS} channels of 2 x 2 or more, as plrvo.tasks.vision.scattered.scattering_data "
            "returns them",
        )
