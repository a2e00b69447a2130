"""How a text model is trained where the user says nothing, and what is known before its data is loaded."""

from __future__ import annotations

from plrvo.tasks.catalog import Request
from plrvo.tasks.defaults import Defaults, Usual
from plrvo.tasks.text.words import HEAD, MINILM, check_trainable

# Training examples of the files by their checksums; QNLI's are GLUE's, whose file has none.
EXAMPLES = {"sst2": 67_349, "qnli": 104_743, "snli": 99_890, "sick": 4_500}
# For AdamW. The head's was chosen among five on SST-2 with MiniLM; that of all layers is the paper's; the fewer weights
# are trained, the more each has to move.
LEARNING_RATES = {"head": 0.02, "bias": 5e-3, "lora": 5e-3, "all": 5e-4}


def usual(request: Request) -> Usual:
    """What is done by default."""
    asked, examples = request.options, EXAMPLES[request.name]
    trainable, limit = asked.get("trainable", HEAD), asked.get("limit")
    check_trainable(trainable, asked.get("layers"))
    known = request.name != "qnli" and asked.get("data") is None
    count = examples if limit is None else min(examples, limit)
    defaults = defaults_of(trainable, trainable == HEAD, count)
    return Usual(request.model or MINILM, count, known, defaults, {"trainable": trainable})


def defaults_of(trainable: str, cached: bool, examples: int) -> Defaults:
    """About 2,048 examples a step, and delta = 1/(2N)."""
    return Defaults(
        delta=1 / (2 * examples),
        clip=1.0,
        sample_rate=min(1.0, 2048 / examples),
        steps=300 if trainable == HEAD else 100,
        learning_rate=LEARNING_RATES[trainable],
        optimizer="adamw",
        schedule="linear",
        physical_batch=None if cached else 64,
    )
