"""Text presets: data, model, what is trained of it, and test metrics, put together for `experiment`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from plrvo.tasks.catalog import Request
from plrvo.tasks.evaluation import classification_metrics
from plrvo.tasks.preset import Defaults, Preset, Task
from plrvo.tasks.sources import data_folder
from plrvo.tasks.text.data import TextData, load_text
from plrvo.tasks.text.features import HeadFeatures, can_be_cached, head_alone
from plrvo.tasks.text.models import CONTAMINATED, MINILM, Checkpoint, load_checkpoint, save_companions
from plrvo.tasks.text.tokens import Tokens
from plrvo.tasks.text.trainable import choose
from plrvo.tasks.text.words import SHORTEST, check_trainable
from plrvo.tasks.transformer import LogitsLoss
from plrvo.training.loop import Metrics
from plrvo.training.unwrap import trained_parameters
from plrvo.validate import InvalidArgument, positive_integer

DEFAULT_LENGTH = 128
TEST_BATCH = 64
# For AdamW. The head's was chosen among five on SST-2 with MiniLM; that of all layers is the paper's; the fewer weights
# are trained, the more each has to move.
LEARNING_RATES = {"head": 0.02, "bias": 5e-3, "lora": 5e-3, "all": 5e-4}


def prepare(request: Request, generator: torch.Generator) -> Preset:
    """The task and a checkpoint with a freshly initialised head for it."""
    options = request.options
    name, trainable = request.model or MINILM, options.get("trainable", "head")
    check_trainable(trainable)  # before anything is loaded
    which = f"{options.get('data')}, {options.get('limit')}"
    data = request.loaded(
        f"texts {which}", lambda: load_text(request.name, request.data_dir, options.get("data"), options.get("limit"))
    )
    checkpoint = load_checkpoint(name, len(data.classes), generator)
    choose(checkpoint.model, trainable, generator)
    length = _max_length(options.get("max_length"), checkpoint.context)
    seen_by = f"{which}, {name}, {checkpoint.sha256}, {length}"
    train, test = request.loaded(
        f"tokens {seen_by}",
        lambda: tuple(
            Tokens(part, checkpoint.tokenizer, length, len(data.classes)) for part in (data.train, data.test)
        ),
    )
    module: nn.Module = checkpoint.model
    parts: tuple[Any, Any] = train, test
    cached = trainable == "head" and can_be_cached(checkpoint.model)
    if cached:
        folder = data_folder() / "features"
        parts = request.loaded(
            f"features {seen_by}",
            lambda: (
                HeadFeatures(checkpoint.model, train, folder, checkpoint.sha256),
                HeadFeatures(checkpoint.model, test, folder, checkpoint.sha256),
            ),
        )
        module = head_alone(checkpoint.model)
    warnings = _warnings(request.name, name)
    description = {
        **_data_description(data, options.get("limit")),
        "model": name,
        "model_sha256": checkpoint.sha256,
        "pooling": checkpoint.pooling,
        "trainable": trainable,
        "trainable_parameters": trained_parameters(module),
        "features": "cached" if cached else None,
        "max_length": length,
        "warnings": list(warnings),
    }
    task = Task(
        data=parts[0],
        size=len(train),
        evaluate=lambda trained: classification_metrics(trained, parts[1], TEST_BATCH),
        description=description,
        loss=LogitsLoss(),
        finish=_companions(checkpoint, trainable, cached),
        warnings=warnings,
        unsafe={"truncated_examples": train.truncated},
    )
    return Preset(task, module, f"{name} ({trainable})", _defaults(trainable, cached, len(train)))


def _companions(checkpoint: Checkpoint, trainable: str, cached: bool) -> Callable[[nn.Module, Path], Metrics] | None:
    """Where the weights of a run are those of a whole checkpoint, its folder becomes one."""
    if cached or trainable == "lora" or checkpoint.pooling == "mean":
        return None

    def finish(module: nn.Module, folder: Path) -> Metrics:
        save_companions(checkpoint, folder)
        return {}

    return finish


def _max_length(asked: int | None, context: int) -> int:
    if asked is None:
        return min(DEFAULT_LENGTH, context)
    positive_integer(max_length=asked)
    if not SHORTEST <= asked <= context:
        raise InvalidArgument("max_length", asked, f"from {SHORTEST} to {context} tokens, the model's context")
    return asked


def _data_description(data: TextData, limit: int | None) -> dict[str, Any]:
    return {
        "name": data.name,
        "examples": len(data.train),
        "limit": limit,
        "tested_on": f"{data.held_out}, {len(data.test)} examples",
        "data_sha256": data.fingerprint,
        "data_source": data.source,
        # These say something of the private examples; the guarantee holds for everything else in a run.
        "treated_as_public": ["examples", "data_sha256"],
    }


def _warnings(task: str, model: str) -> tuple[str, ...]:
    if model != MINILM or task not in CONTAMINATED:
        return ()
    return (
        f"{model} was trained on {CONTAMINATED[task]}: {task} is no private data for it, and its accuracy says nothing",
    )


def _defaults(trainable: str, cached: bool, examples: int) -> Defaults:
    """About 2,048 examples a step, and delta = 1/(2N)."""
    return Defaults(
        delta=1 / (2 * examples),
        clip=1.0,
        sample_rate=min(1.0, 2048 / examples),
        steps=300 if trainable == "head" else 100,
        learning_rate=LEARNING_RATES[trainable],
        optimizer="adamw",
        schedule="linear",
        physical_batch=None if cached else 64,
    )
