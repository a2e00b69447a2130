"""Texts for tables: beam search, greedy search or sampling, in batches, the same for the same generator."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from plrvo.files import write_bytes
from plrvo.tasks.preset import initialised_from
from plrvo.tasks.tables.formats import Entry
from plrvo.tasks.tables.models import Language
from plrvo.tasks.tables.sequences import left_padded, prompts
from plrvo.tasks.tables.words import BEAMS, check_decoding
from plrvo.validate import InvalidArgument, positive_integer

BATCH = 32
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Decoding:
    """How the next token is chosen: the best of `beams` continuations (1 is greedy), or drawn, with `top_p`.

    `top_p` draws from the smallest set of tokens that has this probability together. A text has at most `longest`
    tokens, and fewer where the model's context ends.
    """

    beams: int = BEAMS
    top_p: float | None = None
    longest: int = 80

    def __post_init__(self) -> None:
        positive_integer(longest=self.longest)
        check_decoding(self.beams, self.top_p)

    @property
    def options(self) -> dict[str, Any]:
        """As `generate` of the transformers library takes them; nothing is left to a model's own configuration."""
        if self.top_p is not None:
            return {"do_sample": True, "num_beams": 1, "top_p": self.top_p, "top_k": 0, "temperature": 1.0}
        return {"do_sample": False, "num_beams": self.beams, "length_penalty": 1.0, "early_stopping": False}


def generate(
    language: Language,
    tables: Sequence[str],
    max_length: int,
    decoding: Decoding,
    generator: torch.Generator,
    batch_size: int = BATCH,
) -> list[str]:
    """One text for each table. Tables of like length go through the model together; each text is its table's alone."""
    from transformers import GenerationConfig

    contexts = prompts(tables, language, max_length)
    order = sorted(range(len(tables)), key=lambda i: len(contexts[i]))
    texts = [""] * len(tables)
    model = language.model
    training, device = model.training, next(model.parameters()).device
    model.eval()
    try:
        with torch.no_grad(), initialised_from(generator):  # sampling draws from torch's own state
            for start in range(0, len(order), batch_size):
                _LOG.debug("%d of %d texts written", start, len(order))
                chosen = order[start : start + batch_size]
                batch = left_padded([contexts[i] for i in chosen], language.end)
                width = batch.ids.shape[1]
                room = decoding.longest if language.context is None else min(decoding.longest, language.context - width)
                config: Any = GenerationConfig(  # type: ignore[no-untyped-call]
                    **decoding.options,
                    max_new_tokens=max(1, room),
                    pad_token_id=language.end,
                    eos_token_id=language.end,
                    bos_token_id=language.begin,
                    use_cache=True,
                )
                written = model.generate(
                    input_ids=batch.ids.to(device), attention_mask=batch.mask.to(device), generation_config=config
                )
                for i, row in zip(chosen, written, strict=True):
                    texts[i] = " ".join(language.tokenizer.decode(row[width:], skip_special_tokens=True).split())
    finally:
        model.train(training)
    return texts


@dataclass(frozen=True)
class Generation:
    """A line of the file of generations."""

    table: str
    references: tuple[str, ...]
    hypothesis: str


def write_generations(path: Path, entries: Sequence[Entry], hypotheses: Sequence[str]) -> None:
    """JSON lines: the table, its references and the hypothesis; whole or not at all."""
    rows = (Generation(e.table, e.references, text) for e, text in zip(entries, hypotheses, strict=True))
    write_bytes(path, "".join(json.dumps(asdict(row), ensure_ascii=False) + "\n" for row in rows).encode())


def read_generations(path: Path) -> list[Generation]:
    """What `write_generations` wrote; other files are refused."""
    try:
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        return [Generation(str(r["table"]), tuple(map(str, r["references"])), str(r["hypothesis"])) for r in rows]
    except OSError as error:
        raise InvalidArgument("generations", str(path), f"a file of generations ({error.strerror})") from None
    except (ValueError, KeyError, TypeError):
        raise InvalidArgument("generations", str(path), "JSON lines with table, references and hypothesis") from None
