"""Table-to-text presets: data, model, what is trained of it, generation and its metrics, put together for `experiment`.

The example is one pair of a table and a text: a table with r texts is r examples, and the certified epsilon is that of
one of them. The receipt also says what it is for a whole table, by group privacy, and `references` caps r.
"""

from __future__ import annotations

import copy
import logging
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from plrvo.records.folder import GENERATIONS
from plrvo.records.unit import PAIRS
from plrvo.tasks.catalog import Request
from plrvo.tasks.preset import Preset, Task
from plrvo.tasks.tables.data import Split, TableData, spread, training_data
from plrvo.tasks.tables.formats import Entry
from plrvo.tasks.tables.generate import Decoding, generate, write_generations
from plrvo.tasks.tables.metrics import METRICS, score_all
from plrvo.tasks.tables.models import Language, load_language
from plrvo.tasks.tables.recipes import MAX_LENGTH, defaults_of
from plrvo.tasks.tables.sequences import SequenceLoss, SequenceModel, Sequences, joined, tokens_of
from plrvo.tasks.tables.trainable import choose
from plrvo.tasks.tables.words import DEFAULT_MODEL, decoding_of, trained_of
from plrvo.tasks.upper import LowerStates, lower_part, upper_part
from plrvo.training.loop import Metrics, moved
from plrvo.validate import InvalidArgument, counted, positive_integer

_LOG = logging.getLogger(__name__)
LOSS_ENTRIES = 200  # of the test split, for the loss that is shown during training


def prepare(request: Request, generator: torch.Generator) -> Preset:
    """The task and a pretrained model for it."""
    options = request.options
    trainable, layers = trained_of(request)
    bf16 = options.get("bf16", False)
    max_length = options.get("max_length", MAX_LENGTH[request.name])
    decoding = Decoding(*decoding_of(request))
    data = training_data(request.name, request.data_dir)
    entries = capped(data.train, options.get("references"))
    pairs = limited(entries.pairs, options.get("limit"))
    test = limited_test(data.test, options.get("test_limit"))
    language = _language(request)
    dimension = choose(language.model, trainable, generator, layers)
    train = Sequences(pairs, language, max_length)
    public = Split(tuple(Entry(e.table, e.references[:1]) for e in spread(test, LOSS_ENTRIES)))
    held_out = Sequences(public.pairs, language, max_length)
    private = Split(tuple(Entry(table, (text,)) for table, text in pairs))
    seen: tuple[Any, Any] = train, held_out
    if layers is not None:
        of_train, of_test = lower_part(language.model, layers, bf16), lower_part(language.model, layers)
        which = f"{private.fingerprint}, {public.fingerprint}, {language.name}, {max_length}, {layers}, {bf16}"
        seen = request.loaded(
            f"states {which}",
            lambda: (
                LowerStates(train, partial(_states, of_train), tokens_of),
                LowerStates(held_out, partial(_states, of_test), tokens_of),
            ),
        )
    drawing = torch.Generator().manual_seed(int(torch.randint(2**62, (1,), generator=generator).item()))
    description = {
        "name": data.name,
        "model": language.name,
        "model_source": language.source,
        "trainable": trainable,
        **({} if layers is None else {"layers": layers}),
        **({"beneath": "bfloat16"} if bf16 else {}),
        "trainable_parameters": dimension,
        "examples": len(pairs),
        "unit": PAIRS.unit,
        "group_size": private.most_references,
        "group": PAIRS.group,
        "max_length": max_length,
        "loss": "cross entropy, mean over the tokens of a text",
        "decoding": {"beams": decoding.beams, "top_p": decoding.top_p, "longest": decoding.longest},
        "tested_on": f"{len(test)} of {counted(len(data.test.entries), 'table')} of the test split",
        "metrics": {metric.name: metric.what for metric in METRICS},
        "data_sha256": private.fingerprint,
        "data_source": data.source,
        "treated_as_public": ["examples", "group_size", "data_sha256"],
    }

    def finish(module: nn.Module, out: Path) -> Metrics:
        texts = generate(language, [entry.table for entry in test], max_length, decoding, drawing)
        write_generations(out / GENERATIONS, test, texts)
        _LOG.debug("scoring %d texts", len(texts))
        return score_all(texts, [entry.references for entry in test])

    task = Task(
        data=seen[0],
        size=len(train),
        evaluate=lambda module: {"loss": mean_loss(module, seen[1])},
        description=description,
        loss=SequenceLoss(),
        metric="loss",
        finish=finish,
        warnings=warnings_of(data, private.most_references),
        unsafe={"truncated_examples": train.truncated},
        base=f"{language.name} ({language.source})" if trainable == "lora" else None,
    )
    model = language.model if layers is None else upper_part(language.model, layers)
    return Preset(
        task, SequenceModel(model), f"{language.name} ({trainable})", defaults_of(language.name, len(train), trainable)
    )


def _language(request: Request) -> Language:
    """The model; where a request keeps things, a copy of the one that is kept, as training changes it."""
    name = request.model or DEFAULT_MODEL
    language = request.loaded(f"language {name}", lambda: load_language(name, request.data_dir))
    return language if request.kept is None else replace(language, model=copy.deepcopy(language.model))


def _states(lower: nn.Module, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    states: torch.Tensor = lower(**joined(**inputs), use_cache=False).last_hidden_state
    return states


def mean_loss(module: nn.Module, data: Any, batch_size: int = 32) -> float:
    """The loss of the first reference of each table, mean over tables."""
    order = data.lengths.argsort(stable=True).tolist()
    device = next(module.parameters()).device
    total = 0.0
    with torch.no_grad():
        for start in range(0, len(order), batch_size):
            inputs, labels = moved(data.__getitems__(order[start : start + batch_size]), device)
            total += float(SequenceLoss("sum")(module(**inputs), labels))
    return total / len(data)


def capped(split: Split, references: int | None) -> Split:
    """With at most the first `references` texts of each table, over all its entries."""
    if references is None:
        return split
    positive_integer(references=references)
    room: dict[str, int] = {}
    kept = []
    for entry in split.entries:
        left = room.setdefault(entry.table, references)
        chosen = entry.references[:left]
        room[entry.table] = left - len(chosen)
        if chosen:
            kept.append(Entry(entry.table, chosen))
    return Split(tuple(kept))


def limited(pairs: list[tuple[str, str]], limit: int | None) -> list[tuple[str, str]]:
    """The first `limit` pairs."""
    if limit is not None:
        positive_integer(limit=limit)
    if not pairs:
        raise InvalidArgument("name", "the task", "a data set with a training split")
    return pairs[:limit]


def limited_test(split: Split, count: int | None) -> list[Entry]:
    """At most `count` entries, spread over the split."""
    if count is not None:
        positive_integer(test_limit=count)
    return spread(split.entries, count)


def warnings_of(data: TableData, most: int) -> tuple[str, ...]:
    """What the user should know before the run."""
    found = []
    if data.source.startswith("training:"):
        found.append(f"{data.name} has no training split here: the model trains on WebNLG ({data.source})")
    if most > 1:
        found.append(
            f"a guarantee covers one pair of a table and a text; a table has up to {most} of them, for which the "
            "receipt has a number of its own (`references` 1 makes pair and table the same)"
        )
    return tuple(found)
