"""Vision presets: data, model and test metrics put together for `experiment`."""

from __future__ import annotations

import torch
from torch import nn

from plrvo.tasks.catalog import Request
from plrvo.tasks.evaluation import classification_metrics
from plrvo.tasks.preset import Defaults, InMemory, Preset, Task
from plrvo.tasks.vision.data import ImageData, load_images
from plrvo.tasks.vision.models import build_model
from plrvo.training.unwrap import trained_parameters

DEFAULT_MODEL = "cnn"
# For 1,437 private images. Found by trying a few dozen settings on the digits themselves: they are public, and here to
# show how things work. Whoever tunes on private data pays for it.
DIGITS_MODEL = "cnn-norm"
DIGITS = Defaults(clip=1.0, sample_rate=0.25, steps=100, learning_rate=0.3, schedule="linear")
FEATURE_MODEL = "efficientnet-lite0-head"


def prepare(request: Request, generator: torch.Generator) -> Preset:
    """The task and a freshly initialised model for it."""
    digits = request.name == "digits"
    model = request.model or (DIGITS_MODEL if digits else DEFAULT_MODEL)
    data = request.loaded("images", lambda: load_images(request.name, request.data_dir))
    if model == FEATURE_MODEL:
        from plrvo.tasks.vision.features import feature_data  # the pretrained network comes with it

        images = data
        data = request.loaded("features", lambda: feature_data(images))
    channels, height, width = data.train_x.shape[1:]
    module = build_model(model, (channels, height, width), data.classes, generator)
    test = InMemory(data.test_x, data.test_y)
    task = Task(
        data=InMemory(data.train_x, data.train_y),
        size=len(data.train_y),
        evaluate=lambda trained: classification_metrics(trained, test),
        description=_description(data, model, module),
        loss=nn.CrossEntropyLoss(),
        public=data.test_x,
    )
    return Preset(task, module, model, DIGITS if digits else Defaults())


def _description(data: ImageData, model: str, module: nn.Module) -> dict[str, object]:
    return {
        "name": data.name,
        "model": model,
        "trainable_parameters": trained_parameters(module),
        "examples": len(data.train_y),
        "data_sha256": data.fingerprint,
        "data_source": data.source,
        "treated_as_public": ["examples", "data_sha256"],
    }
