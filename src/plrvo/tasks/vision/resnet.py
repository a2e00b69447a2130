"""ResNet-18 for small images: a 3 x 3 stem without pooling, and GroupNorm, so that no example's output sees another."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

WIDTHS = (64, 128, 256, 512)
# As many as Opacus puts in the place of a BatchNorm.
GROUPS = 32


def resnet18(channels: int, classes: int) -> nn.Module:
    """11,173,962 parameters for CIFAR-10.

    >>> sum(p.numel() for p in resnet18(3, 10).parameters())
    11173962
    """
    blocks: list[nn.Module] = []
    inputs = WIDTHS[0]
    for width in WIDTHS:
        blocks += [BasicBlock(inputs, width, stride=1 if width == inputs else 2), BasicBlock(width, width, stride=1)]
        inputs = width
    return nn.Sequential(
        _conv(channels, WIDTHS[0], 3, stride=1),
        nn.GroupNorm(GROUPS, WIDTHS[0]),
        nn.ReLU(),
        *blocks,
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(WIDTHS[-1], classes),
    )


class BasicBlock(nn.Module):
    """Two 3 x 3 convolutions around a shortcut, which is a 1 x 1 convolution where the shape changes."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = _conv(inputs, outputs, 3, stride)
        self.norm1 = nn.GroupNorm(GROUPS, outputs)
        self.conv2 = _conv(outputs, outputs, 3, stride=1)
        self.norm2 = nn.GroupNorm(GROUPS, outputs)
        same = stride == 1 and inputs == outputs
        self.shortcut = (
            nn.Identity() if same else nn.Sequential(_conv(inputs, outputs, 1, stride), nn.GroupNorm(GROUPS, outputs))
        )

    def forward(self, x: Tensor) -> Tensor:
        y = functional.relu(self.norm1(self.conv1(x)))
        return functional.relu(self.norm2(self.conv2(y)) + self.shortcut(x))


def _conv(inputs: int, outputs: int, kernel: int, stride: int) -> nn.Conv2d:
    conv = nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False)
    nn.init.kaiming_normal_(conv.weight, mode="fan_out", nonlinearity="relu")
    return conv
