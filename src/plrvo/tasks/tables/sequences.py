"""Pairs of a table and a text as token sequences, padded a batch at a time.

A sequence is table, begin, text, end, with the model's own begin and end tokens, as in the prefix-tuning literature,
after whatever the model expects in front of every sequence (`Language.prefix`) and, of a model that answers, with what
it expects in front of an answer before begin (`Language.turn`). The model reads all up to begin (the
*context*) and learns to say text and end (the *target*). In a batch the contexts end and the targets begin in the same
column: contexts are padded on the left, targets on the right, so that the output layer, the largest of a small model,
is asked for the target's columns only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import Dataset

from plrvo.tasks.tables.models import Language
from plrvo.tasks.transformer import keep_examples_apart
from plrvo.validate import InvalidArgument, positive_integer

IGNORED = -100
SHORTEST = 8


def longest_sequence(language: Language, max_length: int) -> int:
    """`max_length` tokens, or fewer where the model takes fewer."""
    positive_integer(max_length=max_length)
    if max_length < SHORTEST:
        raise InvalidArgument("max_length", max_length, f"at least {SHORTEST} tokens")
    return max_length if language.context is None else min(max_length, language.context)


def cut(table: int, text: int, limit: int) -> tuple[int, int]:
    """How many tokens of each fit together with begin and end: the table gives way first, down to half.

    >>> cut(10, 10, 100), cut(80, 30, 100), cut(80, 90, 100), cut(10, 120, 100)
    ((10, 10), (68, 30), (49, 49), (10, 88))
    """
    room = limit - 2
    kept_text = min(text, max(room - table, room // 2))
    return min(table, room - kept_text), kept_text


@dataclass(frozen=True)
class Prompts:
    """Contexts of a batch, padded on the left."""

    ids: Tensor
    mask: Tensor


class Sequences(Dataset[Any]):
    """The examples of training: one pair each. `truncated` counts those that had to be cut."""

    def __init__(self, pairs: Sequence[tuple[str, str]], language: Language, max_length: int) -> None:
        limit = longest_sequence(language, max_length) - len(language.prefix) - len(language.turn)
        tables, texts = (_encoded(language, [pair[side] for pair in pairs]) for side in (0, 1))
        self.pad = language.end
        self.contexts: list[Tensor] = []
        self.targets: list[Tensor] = []
        self.truncated = 0
        for table, text in zip(tables, texts, strict=True):
            of_table, of_text = cut(len(table), len(text), limit)
            self.truncated += of_table < len(table) or of_text < len(text)
            self.contexts.append(_context(language, table[:of_table]))
            # A text that was cut goes on: what follows is its next token, and not its end.
            self.targets.append(torch.tensor([*text, language.end][: of_text + 1]))
        self.lengths = torch.tensor([len(c) + len(t) for c, t in zip(self.contexts, self.targets, strict=True)])

    def __len__(self) -> int:
        return len(self.contexts)

    def __getitem__(self, index: int) -> Any:
        return self.__getitems__([index])

    def __getitems__(self, indices: Sequence[int]) -> tuple[dict[str, Tensor], Tensor]:
        """({context, context_mask, text}, labels): text is the target without its last token, which is only said."""
        if not indices:  # padding wants something to pad
            inputs, labels = self.__getitems__([0])
            return {name: tensor[:0] for name, tensor in inputs.items()}, labels[:0]
        context = left_padded([self.contexts[i] for i in indices], self.pad)
        targets = [self.targets[i] for i in indices]
        labels = pad_sequence(targets, batch_first=True, padding_value=IGNORED)
        text = labels[:, :-1].masked_fill(labels[:, :-1] == IGNORED, self.pad)
        return {"context": context.ids, "context_mask": context.mask, "text": text}, labels


def prompts(tables: Sequence[str], language: Language, max_length: int) -> list[Tensor]:
    """The context of each table, cut as in training where it is too long."""
    room = longest_sequence(language, max_length) - len(language.prefix) - len(language.turn) - 2
    return [_context(language, ids[:room]) for ids in _encoded(language, tables)]


def _context(language: Language, table: list[int]) -> Tensor:
    return torch.tensor([*language.prefix, *table, *language.turn, language.begin])


def left_padded(rows: Sequence[Tensor], pad: int) -> Prompts:
    """All rows ending in the last column."""
    ids = pad_sequence([row.flip(0) for row in rows], batch_first=True, padding_value=pad).flip(1)
    lengths = torch.tensor([len(row) for row in rows])
    mask = torch.arange(ids.shape[1]) >= (ids.shape[1] - lengths)[:, None]
    return Prompts(ids, mask.long())


def _encoded(language: Language, texts: Sequence[str]) -> list[list[int]]:
    """Token numbers; each distinct text is cut into tokens once."""
    distinct = list(dict.fromkeys(texts))
    if not distinct:
        return []
    found = language.tokenizer(distinct, add_special_tokens=False, verbose=False).input_ids
    by_text = dict(zip(distinct, found, strict=True))
    return [by_text[text] for text in texts]


class SequenceModel(nn.Module):
    """A causal language model as a function of context and text: the logits of the target's columns."""

    def __init__(self, language_model: Any) -> None:
        super().__init__()
        keep_examples_apart(language_model)
        self.lm = language_model
        language_model.get_output_embeddings().register_forward_pre_hook(_in_one_row)

    def forward(self, context: Tensor, context_mask: Tensor, text: Tensor, states: Tensor | None = None) -> Tensor:
        """With `states`, those that the lower layers give for context and text, which `language_model` is without."""
        inputs = joined(context, context_mask, text)
        if states is not None:
            inputs = {"inputs_embeds": states, **{name: inputs[name] for name in ("attention_mask", "position_ids")}}
        logits: Tensor = self.lm(**inputs, use_cache=False, logits_to_keep=text.shape[1] + 1).logits
        return logits


def _in_one_row(_: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """The states without gaps: of the last columns alone, PyTorch would multiply example by example."""
    return tuple(states.contiguous() for states in inputs)


def joined(context: Tensor, context_mask: Tensor, text: Tensor) -> dict[str, Tensor]:
    """Context and text as the inputs of a language model."""
    # Padding behind a text is read by nothing that counts.
    mask = torch.cat([context_mask, torch.ones_like(text)], dim=1)
    positions = (mask.cumsum(dim=1) - 1).clamp(min=0)
    return {"input_ids": torch.cat([context, text], dim=1), "attention_mask": mask, "position_ids": positions}


def tokens_of(inputs: dict[str, Tensor], labels: Tensor) -> Tensor:
    """Which positions of context and text are read for the example's loss: as many in every batch.

    A token of the text is read where another one follows it, so that the last one, which is only said, is none of them.
    """
    return torch.cat([inputs["context_mask"].bool(), labels[:, 1:] != IGNORED], dim=1)


class SequenceLoss(nn.Module):
    """Cross entropy of each target, its mean over the target's tokens; then over the examples, by `reduction`.

    An example's loss is its own: the mean is over its tokens and not over those of the batch.
    """

    def __init__(self, reduction: str = "mean") -> None:
        super().__init__()
        self.reduction = reduction

    def forward(self, logits: Tensor, labels: Tensor) -> Tensor:
        # Words last, as the logits lie in memory: over another dimension the softmax takes ten times as long.
        flat = nn.functional.cross_entropy(
            logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED, reduction="none"
        )
        losses = flat.view(labels.shape).sum(dim=1) / (labels != IGNORED).sum(dim=1).clamp(min=1)
        if self.reduction == "none":
            return losses
        return losses.sum() if self.reduction == "sum" else losses.sum() / max(1, len(losses))
