"""How a model of tables is trained where the user says nothing, and what is known before its data is loaded."""

from __future__ import annotations

from plrvo.tasks.catalog import Request
from plrvo.tasks.defaults import Defaults, Usual
from plrvo.tasks.tables.words import BEAMS, DEFAULT_MODEL, SMOLLM2, trained_of
from plrvo.tasks.text.words import check_trainable

# Pairs of the training files; DART has none of its own here, and trains on WebNLG's.
EXAMPLES = {"e2e": 42_061, "dart": 18_102, "webnlg": 18_102}
# The paper's lengths; WebNLG, which it does not have, gets DART's.
MAX_LENGTH = {"e2e": 100, "dart": 120, "webnlg": 120}


def usual(request: Request) -> Usual:
    """What is done by default."""
    examples, limit = EXAMPLES[request.name], request.options.get("limit")
    count = examples if limit is None else min(examples, limit)
    (trainable, layers), model = trained_of(request), request.model or DEFAULT_MODEL
    check_trainable(trainable, layers)
    parts = {"trainable": trainable, "layers": layers, "max_length": MAX_LENGTH[request.name], "beams": BEAMS}
    known = request.options.get("references") is None
    return Usual(model, count, known, defaults_of(model, count, trainable), parts)


def defaults_of(model: str, size: int, trainable: str) -> Defaults:
    """The paper's delta and, for LoRA, its learning rate; as many pairs as a processor can do in an hour or two.

    A large model takes few at a time: what they pass through then stays in a cache.
    """
    batch, steps, at_a_time = (64, 150, 8) if model == SMOLLM2 else (256, 150, 32)
    return Defaults(
        delta=min(1e-5, 1 / (2 * size)),
        clip=0.1,
        sample_rate=min(1.0, batch / size),
        steps=steps,
        learning_rate=3e-4 if trainable in ("all", "head") else 2e-3,
        optimizer="adamw",
        schedule="linear",
        physical_batch=at_a_time,
    )
