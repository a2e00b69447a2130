"""Vision presets: data, model and test metrics put together for `experiment`."""

from __future__ import annotations

import torch
from torch import nn

from plrvo.tasks.catalog import Request
from plrvo.tasks.preset import InMemory, Preset, Task
from plrvo.tasks.vision.data import ImageData, load_images
from plrvo.tasks.vision.models import build_model
from plrvo.training.loop import Metrics

DEFAULT_MODEL = "cnn"
FEATURE_MODEL = "efficientnet-lite0-head"
_TEST_BATCH = 1000


def prepare(request: Request, generator: torch.Generator) -> Preset:
    """The task and a freshly initialised model for it."""
    model = request.model or DEFAULT_MODEL
    data = load_images(request.name, request.data_dir)
    if model == FEATURE_MODEL:
        from plrvo.tasks.vision.features import feature_data  # the pretrained network comes with it

        data = feature_data(data)
    channels, height, width = data.train_x.shape[1:]
    module = build_model(model, (channels, height, width), data.classes, generator)
    task = Task(
        data=InMemory(data.train_x, data.train_y),
        size=len(data.train_y),
        evaluate=lambda trained: classification_metrics(trained, data.test_x, data.test_y),
        description=_description(data, model, module),
        loss=nn.CrossEntropyLoss(),
    )
    return Preset(task, module, model)


def classification_metrics(module: nn.Module, inputs: torch.Tensor, targets: torch.Tensor) -> Metrics:
    """Mean loss and accuracy, in evaluation mode."""
    training = module.training
    module.eval()
    loss, right = 0.0, 0
    with torch.no_grad():
        for x, y in zip(torch.split(inputs, _TEST_BATCH), torch.split(targets, _TEST_BATCH), strict=True):
            logits = module(x)
            loss += float(nn.functional.cross_entropy(logits, y, reduction="sum"))
            right += int((logits.argmax(dim=1) == y).sum())
    module.train(training)
    return {"loss": loss / len(targets), "accuracy": right / len(targets)}


def _description(data: ImageData, model: str, module: nn.Module) -> dict[str, object]:
    return {
        "name": data.name,
        "model": model,
        "trainable_parameters": sum(p.numel() for p in module.parameters() if p.requires_grad),
        "examples": len(data.train_y),
        "data_sha256": data.fingerprint,
        "data_source": data.source,
    }
