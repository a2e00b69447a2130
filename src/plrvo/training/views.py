"""Several views of an example (augmentation multiplicity, De et al. 2022): their gradients are averaged, then clipped.

An example of K views has one row, of shape (K, ...), and one loss, the mean over its views. Its gradient is therefore
the mean of the gradients of its views, which is clipped once: whatever the views are, an example moves the sum by at
most the clip. The sensitivity, the account and the noise are those of one view. Clipping each view for itself and
adding up K of them would move the sum by K clips.
"""

from __future__ import annotations

from torch import Tensor, nn


class EachView(nn.Module):
    """A module on each view of each example: (B, K, ...) to (B, K, ...); inputs of `dimensions` have no views.

    Layers see B K rows, so that gradients by example come from `grad_sample_mode="functorch"`. A module that takes any
    number of leading dimensions, such as a linear layer, needs no wrapper.
    """

    def __init__(self, module: nn.Module, dimensions: int) -> None:
        super().__init__()
        self.module, self.dimensions = module, dimensions

    def forward(self, inputs: Tensor) -> Tensor:
        if inputs.ndim == self.dimensions:
            outputs: Tensor = self.module(inputs)
            return outputs
        found: Tensor = self.module(inputs.flatten(0, 1))
        return found.reshape(*inputs.shape[:2], *found.shape[1:])


class MeanOverViews(nn.Module):
    """Cross entropy of logits (B, K, classes) with targets (B,): mean over views, then `reduction` over examples."""

    def __init__(self, reduction: str = "mean") -> None:
        super().__init__()
        self.reduction = reduction

    def forward(self, logits: Tensor, targets: Tensor) -> Tensor:
        if logits.ndim == 2:
            return nn.functional.cross_entropy(logits, targets, reduction=self.reduction)
        same = targets[:, None].expand(-1, logits.shape[1])
        losses = nn.functional.cross_entropy(logits.transpose(1, 2), same, reduction="none").mean(dim=1)
        if self.reduction == "none":
            return losses
        return losses.mean() if self.reduction == "mean" else losses.sum()
