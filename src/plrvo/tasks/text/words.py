"""What is asked for by name of text tasks: what is trained, and data of the hub. Nothing here needs torch."""

from __future__ import annotations

from plrvo.tasks.catalog import Request
from plrvo.validate import InvalidArgument

MINILM, HEAD = "minilm", "head"  # the default model, and what is trained of it
TRAINABLE = ("all", "lora", "bias", HEAD)
SHORTEST = 4  # tokens


def check(request: Request) -> None:
    """Refuse what no text task has; which models there are, the hub knows."""
    options = request.options
    check_trainable(options.get("trainable", HEAD), options.get("layers"))
    check_bf16(options.get("bf16", False), options.get("layers"))
    if options.get("data") is not None:
        check_source(options["data"])
    length = options.get("max_length")
    if length is not None and length < SHORTEST:
        raise InvalidArgument("max_length", length, f"at least {SHORTEST} tokens")


def check_trainable(name: str, layers: int | None = None) -> None:
    """Refuse a part of a model that has no name, and layers of a head."""
    if name not in TRAINABLE:
        raise InvalidArgument("trainable", name, "one of " + ", ".join(TRAINABLE))
    if layers is not None and name == HEAD:
        raise InvalidArgument("layers", layers, "`trainable` all, lora or bias beside it: a head stands on all layers")


def check_bf16(bf16: bool, layers: int | None) -> None:
    """Refuse halves where examples stand beside each other: each would be rounded as the others ask for."""
    if bf16 and layers is None:
        raise InvalidArgument(
            "bf16", True, "`layers` beside it: it is for what lies beneath the layers that are trained"
        )


def check_source(source: str) -> None:
    """Refuse what cannot be data of the hub."""
    kind, _, rest = source.partition(":")
    if kind != "hf" or not rest:
        raise InvalidArgument("data", source, "hf:NAME, hf:NAME:CONFIGURATION or hf:FOLDER")
