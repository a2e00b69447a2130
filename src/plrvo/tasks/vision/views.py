"""Views of images: shifts by two pixels and, of photographs, their mirror images. A fixed list, so nothing is drawn."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from plrvo.tasks.preset import InMemory
from plrvo.tasks.vision.words import MIRRORED, SHIFTS

MARGIN = 2


def view_of(images: Tensor, number: int, name: str) -> Tensor:
    """View `number` of images (N, C, H, W) of the data set `name`; 0 is the images themselves.

    What a shift uncovers is the edge repeated.
    """
    shift, mirrored = (number // 2, number % 2 == 1) if name in MIRRORED else (number, False)
    down, right = SHIFTS[shift]
    height, width = images.shape[-2:]
    padded = functional.pad(images, (MARGIN,) * 4, mode="replicate")
    moved = padded.narrow(-2, MARGIN - down, height).narrow(-1, MARGIN - right, width)
    return moved.flip(-1) if mirrored else moved


class Views(InMemory):
    """Images with all their views: (B, K, C, H, W)."""

    def __init__(self, images: Tensor, targets: Tensor, views: int, name: str) -> None:
        super().__init__(images, targets)
        self._views, self._name = views, name

    def __getitem__(self, index: int) -> Any:
        images, targets = self.__getitems__([index])
        return images[0], targets[0]

    def __getitems__(self, indices: list[int]) -> Any:
        images, targets = super().__getitems__(indices)
        return torch.stack([view_of(images, k, self._name) for k in range(self._views)], dim=1), targets
