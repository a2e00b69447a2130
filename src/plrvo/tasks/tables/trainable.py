"""What is trained of a causal language model; its number of parameters is the dimension that the accountant sees.

| choice | parameters |
|---|---|
| `all` | every one |
| `lora` | low-rank additions to the attention of every layer (peft), and nothing else |
| `bias` | every bias, and nothing else; Llama models have none |
| `head` | the output layer, which in most small models is the embedding as well |

A new output layer, which a classifier needs, there is none: a language model brings its own.
"""

from __future__ import annotations

from typing import Any

import torch

from plrvo.validate import InvalidArgument

CHOICES = ("all", "lora", "bias", "head")
LORA_RANK, LORA_ALPHA = 8, 16


def choose(model: Any, trainable: str, generator: torch.Generator) -> int:
    """Set what is trained of `model`; returns the number of its parameters."""
    if trainable not in CHOICES:
        raise InvalidArgument("trainable", trainable, "one of " + ", ".join(CHOICES))
    if trainable == "lora":
        _add_lora(model, generator)
    head = {id(p) for p in model.get_output_embeddings().parameters()}
    for name, parameter in model.named_parameters():
        parts = {"all": True, "lora": "lora_" in name, "bias": name.endswith("bias"), "head": id(parameter) in head}
        parameter.requires_grad_(parts[trainable])
    count = sum(p.numel() for p in model.parameters() if p.requires_grad)
    if not count:
        raise InvalidArgument(
            "trainable", trainable, f"all, lora or head: {type(model).__name__} has no such parameters"
        )
    return count


def _add_lora(model: Any, generator: torch.Generator) -> None:
    try:
        from peft import LoraConfig, inject_adapter_in_model
    except ImportError:
        raise InvalidArgument("trainable", "lora", "peft to be installed: pip install 'plrvo[text]'") from None
    transposed = any(type(layer).__name__ == "Conv1D" for layer in model.modules())  # as in GPT-2
    config = LoraConfig(r=LORA_RANK, lora_alpha=LORA_ALPHA, fan_in_fan_out=transposed)
    seed = int(torch.randint(2**62, (1,), generator=generator).item())
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        try:
            inject_adapter_in_model(config, model)
        except ValueError as error:
            reason = " ".join(str(error).split())[:120]
            raise InvalidArgument(
                "trainable", "lora", f"all or head: peft has no layers to add to ({reason})"
            ) from None
