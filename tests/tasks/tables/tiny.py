"""Tiny models and tokenizers: a file of llama2.c, and folders as transformers saves them."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import torch

from plrvo.tasks.tables.formats import Entry
from plrvo.tasks.tables.llama2c import Shape, read_tokenizer
from plrvo.tasks.tables.models import Language

WORDS = (
    "name",
    "eatType",
    "near",
    "pub",
    "café",
    "Blue",
    "Spice",
    "Mill",
    "the",
    "is",
    "a",
    "serves",
    "food",
    ".",
    ":",
)
LETTERS = tuple(dict.fromkeys(" " + "".join(WORDS) + "|"))
PIECES = tuple(
    dict.fromkeys(
        [*(" " + word[:end] for word in WORDS for end in range(1, len(word) + 1)), *LETTERS, " |", " :"],
    )
)
VOCABULARY = 259 + len(PIECES)
ENTRIES = (
    Entry("name : Blue Spice | eatType : pub", ("Blue Spice is a pub .", "the pub is Blue Spice")),
    Entry("name : Blue Mill | eatType : café", ("Blue Mill is a café .",)),
    Entry("name : Mill | near : Blue Spice", ("the Mill is near Blue Spice .", "near Blue Spice is a Mill")),
    Entry("name : Spice", ("Spice serves food .", "the food is Spice .", "Spice")),
)


def llama2c_file(seed: int, tied: bool = True, key_heads: int = 2) -> bytes:
    """A random model with 2 layers of width 16 and 4 heads, and its tokenizer."""
    shape = Shape(16, 24, 2, 4, key_heads, VOCABULARY, 64, tied)
    rng = np.random.default_rng(seed)
    header = struct.pack("<7i", 16, 24, 2, 4, key_heads, VOCABULARY if tied else -VOCABULARY, 64)
    arrays = [rng.normal(size=size).astype("<f4") * 0.4 for size in shape.parts.values()]
    return header + b"".join(array.tobytes() for array in arrays) + tokenizer_bin()


def tokenizer_bin() -> bytes:
    tokens = [b"<unk>", b"\n<s>\n", b"\n</s>\n", *(bytes([i]) for i in range(256)), *(p.encode() for p in PIECES)]
    scores = [0.0] * 259 + [-float(i) for i in range(len(PIECES))]
    records = (struct.pack("<fi", score, len(token)) + token for score, token in zip(scores, tokens, strict=True))
    return struct.pack("<i", max(map(len, tokens))) + b"".join(records)


def tokenizer() -> Any:
    return read_tokenizer(tokenizer_bin(), VOCABULARY)


def tiny_model(kind: str, seed: int = 0) -> Any:
    """ "gpt2" (dropout off) or "llama", with tied embeddings; "llama-untied" without."""
    from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        if kind == "gpt2":
            config = GPT2Config(
                vocab_size=VOCABULARY, n_positions=64, n_embd=16, n_layer=2, n_head=2, bos_token_id=1, eos_token_id=2,
                resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, initializer_range=0.3,
            )  # fmt: skip
            return GPT2LMHeadModel(config)
        tied = kind == "llama"
        config = LlamaConfig(
            vocab_size=VOCABULARY, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, max_position_embeddings=64, tie_word_embeddings=tied, initializer_range=0.3,
            bos_token_id=1, eos_token_id=2,
        )  # fmt: skip
        return LlamaForCausalLM(config)


def tiny_language(kind: str, seed: int = 0) -> Language:
    return Language(tiny_model(kind, seed).train(), tokenizer(), kind, "made by a test", begin=1, end=2)


def save_folder(folder: Path, kind: str = "gpt2", with_tokenizer: bool = True) -> Path:
    tiny_model(kind).save_pretrained(folder)
    if with_tokenizer:
        tokenizer().save_pretrained(folder)
    return folder
