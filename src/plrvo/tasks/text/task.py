"""Text presets: data, model, what is trained of it, and test metrics, put together for `experiment`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from plrvo.tasks.catalog import Request
from plrvo.tasks.evaluation import classification_metrics
from plrvo.tasks.preset import Preset, Task
from plrvo.tasks.sources import data_folder
from plrvo.tasks.text.data import TextData, load_text
from plrvo.tasks.text.features import HeadFeatures, can_be_cached, head_alone
from plrvo.tasks.text.models import CONTAMINATED, Checkpoint, load_checkpoint, save_companions
from plrvo.tasks.text.recipes import defaults_of
from plrvo.tasks.text.tokens import Tokens
from plrvo.tasks.text.trainable import choose
from plrvo.tasks.text.words import MINILM, SHORTEST, check_trainable
from plrvo.tasks.transformer import LogitsLoss, keep_examples_apart
from plrvo.tasks.upper import LowerStates, lower_part, upper_part
from plrvo.training.loop import Metrics
from plrvo.training.unwrap import trained_parameters
from plrvo.validate import InvalidArgument, positive_integer

DEFAULT_LENGTH = 128
TEST_BATCH = 64


def prepare(request: Request, generator: torch.Generator) -> Preset:
    """The task and a checkpoint with a freshly initialised head for it."""
    options = request.options
    name, trainable = request.model or MINILM, options.get("trainable", "head")
    layers, bf16 = options.get("layers"), options.get("bf16", False)
    check_trainable(trainable, layers)  # before anything is loaded
    which = f"{options.get('data')}, {options.get('limit')}"
    data = request.loaded(
        f"texts {which}", lambda: load_text(request.name, request.data_dir, options.get("data"), options.get("limit"))
    )
    checkpoint = load_checkpoint(name, len(data.classes), generator)
    choose(checkpoint.model, trainable, generator, layers)
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
    elif layers is not None:
        module = UpperLayers(checkpoint.model, layers)
        of_train, of_test = lower_part(checkpoint.model, layers, bf16), lower_part(checkpoint.model, layers)
        parts = request.loaded(
            f"states {seen_by}, {layers}, {bf16}",
            lambda: (
                LowerStates(train, partial(_states, of_train), _tokens),
                LowerStates(test, partial(_states, of_test), _tokens),
            ),
        )
    warnings = _warnings(request.name, name)
    description = {
        **_data_description(data, options.get("limit")),
        "model": name,
        "model_sha256": checkpoint.sha256,
        "pooling": checkpoint.pooling,
        "trainable": trainable,
        **({} if layers is None else {"layers": layers}),
        **({"beneath": "bfloat16"} if bf16 else {}),
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
        finish=_companions(checkpoint, trainable, cached or layers is not None),
        warnings=warnings,
        unsafe={"truncated_examples": train.truncated},
    )
    return Preset(task, module, f"{name} ({trainable})", defaults_of(trainable, cached, len(train)))


class UpperLayers(nn.Module):
    """The last layers of a classifier and its head, on what the layers beneath give (`plrvo.tasks.upper`)."""

    def __init__(self, model: Any, layers: int) -> None:
        super().__init__()
        self.model = upper_part(model, layers)
        keep_examples_apart(self.model)

    def forward(self, states: Tensor, attention_mask: Tensor, **_: Tensor) -> Any:
        return self.model(inputs_embeds=states, attention_mask=attention_mask)


def _states(lower: nn.Module, inputs: dict[str, Tensor]) -> Tensor:
    states: Tensor = lower(**inputs).last_hidden_state
    return states


def _tokens(inputs: dict[str, Tensor], labels: Tensor) -> Tensor:
    return inputs["attention_mask"].bool()


def _companions(checkpoint: Checkpoint, trainable: str, partly: bool) -> Callable[[nn.Module, Path], Metrics] | None:
    """Where the weights of a run are those of a whole checkpoint, its folder becomes one."""
    if partly or trainable == "lora" or checkpoint.pooling == "mean":
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
