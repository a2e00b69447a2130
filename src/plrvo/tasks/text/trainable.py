"""What is trained of a model; its number of parameters is the dimension that the accountant sees.

| choice | parameters |
|---|---|
| `all` | every one |
| `lora` | low-rank additions to the attention of every layer (peft), and the head |
| `bias` | every bias, and the head |
| `head` | what stands on top of the pretrained encoder |

With `layers`, only parameters of the last so many layers, and the head.
"""

from __future__ import annotations

from typing import Any

import torch

from plrvo.tasks.preset import initialised_from
from plrvo.tasks.text.words import check_trainable
from plrvo.tasks.upper import last_layers, layers_of
from plrvo.validate import InvalidArgument, installing

LORA_RANK, LORA_ALPHA = 8, 16


def choose(model: Any, trainable: str, generator: torch.Generator, layers: int | None = None) -> None:
    """Set what is trained of `model`, whose pretrained part is `model.base_model`."""
    within = prepare(model, trainable, generator, layers)
    pretrained = {id(p) for p in model.base_model.parameters()}
    for name, parameter in model.named_parameters():
        head = id(parameter) not in pretrained
        parts = {"all": True, "lora": "lora_" in name, "bias": name.endswith(".bias"), "head": False}
        parameter.requires_grad_(head or (parts[trainable] and id(parameter) in within))


def prepare(model: Any, trainable: str, generator: torch.Generator, layers: int | None = None) -> set[int]:
    """Refuse what cannot be chosen, and add the parameters that `lora` trains.

    Returns the identities of the parameters among which there is a choice: all, or those of the last layers.
    """
    check_trainable(trainable, layers)
    chosen = None if layers is None else last_layers(model, layers)
    if trainable == "lora":
        with initialised_from(generator):
            add_lora(model, chosen)
    if chosen is None:
        return {id(p) for p in model.parameters()}
    return {id(p) for i in chosen for p in layers_of(model)[i].parameters()}


def add_lora(model: Any, layers: range | None = None) -> None:
    """Low-rank additions to the attention of every layer of `model.base_model`, or of those layers."""
    try:
        from peft import LoraConfig, inject_adapter_in_model
    except ImportError:
        raise InvalidArgument("trainable", "lora", f"peft: {installing('text')}") from None
    try:
        transposed = any(type(layer).__name__ == "Conv1D" for layer in model.modules())  # GPT-2's linear layers
        # By what is left out: peft finds the numbers of layers only behind a name of their own.
        below = None if layers is None else rf"(.*\.)?layers?\.({'|'.join(map(str, range(layers.start)))})\..*"
        config = LoraConfig(r=LORA_RANK, lora_alpha=LORA_ALPHA, fan_in_fan_out=transposed, exclude_modules=below)
        inject_adapter_in_model(config, model.base_model)
    except ValueError as error:
        raise InvalidArgument(
            "trainable",
            "lora",
            f"all, bias or head for this model: peft has no layers to add to ({' '.join(str(error).split())[:120]})",
        ) from None
