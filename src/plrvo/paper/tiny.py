"""Checkpoints of a few thousand random weights, for smoke runs: they show that everything works, and learn nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

CONTEXT = 128


def tiny_classifier(folder: Path, seed: int = 0) -> str:
    """A BERT in `folder`, as `from_pretrained` reads it; returns the name by which a task finds it."""
    from transformers import BertConfig, BertForSequenceClassification

    tokenizer = _tokenizer()
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=CONTEXT,
        pad_token_id=tokenizer.pad_token_id,
    )
    return _saved(folder, BertForSequenceClassification, config, tokenizer, seed)


def tiny_language(folder: Path, seed: int = 0) -> str:
    """A GPT-2 in `folder`."""
    from transformers import GPT2Config, GPT2LMHeadModel

    tokenizer = _tokenizer()
    config = GPT2Config(
        vocab_size=len(tokenizer),
        n_positions=CONTEXT,
        n_embd=16,
        n_layer=1,
        n_head=2,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )
    return _saved(folder, GPT2LMHeadModel, config, tokenizer, seed)


def _saved(folder: Path, kind: Any, config: Any, tokenizer: Any, seed: int) -> str:
    from plrvo.tasks.preset import initialised_from
    from plrvo.tasks.transformer import quiet

    with quiet(), initialised_from(torch.Generator().manual_seed(seed)):
        kind(config).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    return str(folder)


def _tokenizer() -> Any:
    """One token for each byte, and three that mark ends and padding."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    special = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}
    tokens = {token: i for i, token in enumerate([*special.values(), *alphabet])}
    bytewise = Tokenizer(models.BPE(vocab=tokens, merges=[]))
    bytewise.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bytewise.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=bytewise, model_max_length=CONTEXT, **special)  # type: ignore[no-untyped-call]
