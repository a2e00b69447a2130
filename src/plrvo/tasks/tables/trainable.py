"""What is trained of a causal language model; its number of parameters is the dimension that the accountant sees.

| choice | parameters |
|---|---|
| `all` | every one |
| `lora` | low-rank additions to the attention of every layer (peft), and nothing else |
| `bias` | every bias, and nothing else; Llama models have none |
| `head` | the output layer, which in most small models is the embedding as well |

With `layers`, only parameters of the last so many layers.

A new output layer, which a classifier needs, there is none: a language model brings its own.
"""

from __future__ import annotations

from typing import Any

import torch

from plrvo.tasks.text.trainable import prepare
from plrvo.training.unwrap import trained_parameters
from plrvo.validate import InvalidArgument


def choose(model: Any, trainable: str, generator: torch.Generator, layers: int | None = None) -> int:
    """Set what is trained of `model`; returns the number of its parameters."""
    within = prepare(model, trainable, generator, layers)
    head = {id(p) for p in model.get_output_embeddings().parameters()}
    for name, parameter in model.named_parameters():
        parts = {"all": True, "lora": "lora_" in name, "bias": name.endswith("bias"), "head": id(parameter) in head}
        parameter.requires_grad_(parts[trainable] and id(parameter) in within)
    count = trained_parameters(model)
    if not count:
        raise InvalidArgument(
            "trainable", trainable, f"all, lora or head: {type(model).__name__} has no such parameters"
        )
    return count
