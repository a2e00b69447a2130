"""Vision transformers from a transformers checkpoint, by hub name or by folder."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from plrvo.tasks.vision.catalog import Scaling
from plrvo.validate import InvalidArgument, installing

DEFAULT_CHECKPOINT = "google/vit-base-patch16-224"
# The pixel scaling that ViT checkpoints were trained with.
VIT_MEAN, VIT_STD = 0.5, 0.5


class ImageTransformer(nn.Module):
    """Images as the loaders scale them, to logits: rescaled and resized to what the checkpoint was trained on."""

    def __init__(self, transformer: Any, scaling: Scaling) -> None:
        super().__init__()
        self.transformer = transformer
        self.side = transformer.config.image_size
        self.channels = transformer.config.num_channels
        # (x std + mean - VIT_MEAN) / VIT_STD, as one multiplication and one addition.
        mean, std = (torch.tensor(values)[:, None, None] for values in (scaling.mean, scaling.std))
        self.register_buffer("gain", std / VIT_STD, persistent=False)
        self.register_buffer("offset", (mean - VIT_MEAN) / VIT_STD, persistent=False)
        self.gain: Tensor
        self.offset: Tensor

    def forward(self, images: Tensor) -> Tensor:
        pixels = (images * self.gain + self.offset).expand(-1, self.channels, -1, -1)
        pixels = functional.interpolate(pixels, size=self.side, mode="bilinear", align_corners=False)
        logits: Tensor = self.transformer(pixel_values=pixels).logits
        return logits


def vit(checkpoint: str, data_shape: tuple[int, int, int], classes: int, scaling: Scaling) -> nn.Module:
    """The checkpoint with a new head for `classes`; only safetensors weights are read, never a pickle."""
    try:
        from transformers import ViTForImageClassification
    except ImportError:
        raise InvalidArgument("model", "vit", f"transformers: {installing('vision')}") from None
    names = {label: str(label) for label in range(classes)}
    try:
        loaded: Any = ViTForImageClassification.from_pretrained(
            checkpoint,
            id2label=names,
            label2id={name: label for label, name in names.items()},
            ignore_mismatched_sizes=True,
            use_safetensors=True,
            trust_remote_code=False,
            output_loading_info=True,
        )
    except (OSError, ValueError, RuntimeError) as error:
        raise _refusal(checkpoint, str(error).strip().partition("\n")[0]) from None
    transformer, report = loaded
    untrained = {key for key in report["missing_keys"] if not key.startswith("classifier.")}
    untrained |= {key for key, *_ in report["mismatched_keys"] if not key.startswith("classifier.")}
    if untrained:
        raise _refusal(checkpoint, f"it has no weights for {min(untrained)}")
    config = transformer.config
    if data_shape[0] not in (1, config.num_channels):
        raise InvalidArgument("data_shape", data_shape, f"images of 1 or {config.num_channels} channels")
    # transformers hands out models in eval mode, in which Opacus sees no activations.
    return ImageTransformer(transformer, scaling).train()


def _refusal(checkpoint: str, reason: str) -> InvalidArgument:
    expected = "the hub name or the folder of a ViT checkpoint with safetensors weights"
    return InvalidArgument("model", f"vit:{checkpoint}", f"{expected} ({reason})")
