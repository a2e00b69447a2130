"""Vision presets: data, model and test metrics put together for `experiment`."""

from __future__ import annotations

import torch
from torch import nn

from plrvo.tasks.catalog import Request
from plrvo.tasks.evaluation import classification_metrics
from plrvo.tasks.preset import InMemory, Preset, Task
from plrvo.tasks.vision.data import ImageData, load_images
from plrvo.tasks.vision.models import build_model
from plrvo.tasks.vision.recipes import defaults_of, groups_of, usual_model
from plrvo.tasks.vision.views import Views
from plrvo.tasks.vision.words import FEATURE_HEAD, ON_SCATTERING, SCATTERING, check_views
from plrvo.training.unwrap import trained_parameters
from plrvo.training.views import EachView, MeanOverViews


def prepare(request: Request, generator: torch.Generator) -> Preset:
    """The task and a freshly initialised model for it."""
    model = request.model or usual_model(request.name)
    views = request.options.get("views", 1)
    check_views(request.name, views, model)
    images = request.loaded("images", lambda: load_images(request.name, request.data_dir))
    data = images
    if model == FEATURE_HEAD:
        from plrvo.tasks.vision.features import feature_data  # the pretrained network comes with it

        data = request.loaded("features", lambda: feature_data(images))
    elif model in ON_SCATTERING:
        from plrvo.tasks.vision.scattered import scattering_data

        groups = groups_of(request.name)
        data = request.loaded(f"scattering, {views} views", lambda: scattering_data(images, groups, views))
    channels, height, width = data.test_x.shape[1:]
    module = build_model(model, (channels, height, width), data.classes, generator)
    train = InMemory(data.train_x, data.train_y)
    if views > 1 and model != SCATTERING:  # whose linear layer takes views as they are
        module = EachView(module, dimensions=4)
    if views > 1 and model not in ON_SCATTERING:  # whose features have their views already
        train = Views(data.train_x, data.train_y, views, data.name)
    test = InMemory(data.test_x, data.test_y)
    task = Task(
        data=train,
        size=len(data.train_y),
        evaluate=lambda trained: classification_metrics(trained, test),
        description=_description(data, model, module, views),
        loss=MeanOverViews() if views > 1 else nn.CrossEntropyLoss(),
        public=data.test_x,
    )
    return Preset(task, module, model, defaults_of(request.name, model, task.size))


def _description(data: ImageData, model: str, module: nn.Module, views: int) -> dict[str, object]:
    return {
        "name": data.name,
        "model": model,
        "trainable_parameters": trained_parameters(module),
        "examples": len(data.train_y),
        "data_sha256": data.fingerprint,
        "data_source": data.source,
        "treated_as_public": ["examples", "data_sha256"],
        **({"views": views} if views > 1 else {}),
    }
