"""Tiny random models of the transformers library, and batches for them: padded, with labels as heads take them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
import transformers as hf

WORDS, ROWS, LENGTH, CLASSES = 40, 5, 7, 3

_SIZES: dict[str, Any] = {
    "vocab_size": WORDS,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 16,
    "initializer_range": 0.3,
}
_NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
_FEW = {"vocab_size": WORDS, "d_model": 16}
_IMAGES = {"num_channels": 3, "num_labels": CLASSES}


def _bert(kind: Any, **changes: Any) -> Callable[[], Any]:
    return lambda: kind(hf.BertConfig(**_SIZES, **_NO_DROPOUT, **changes))


def _gpt2() -> Any:
    dropout = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    return hf.GPT2LMHeadModel(
        hf.GPT2Config(vocab_size=WORDS, n_positions=16, n_embd=16, n_layer=2, n_head=2, **dropout)
    )


def _t5() -> Any:
    sizes = {"d_kv": 8, "d_ff": 24, "num_layers": 1, "num_heads": 2, "dropout_rate": 0.0, "decoder_start_token_id": 0}
    return hf.T5ForConditionalGeneration(hf.T5Config(**_FEW, **sizes))


def _bart() -> Any:
    sizes = {f"{part}_{what}": n for part in ("encoder", "decoder") for what, n in _PART.items()}
    return hf.BartForConditionalGeneration(
        hf.BartConfig(**_FEW, **sizes, max_position_embeddings=16, dropout=0.0, attention_dropout=0.0)
    )


_PART = {"layers": 1, "attention_heads": 2, "ffn_dim": 24}


def _opt() -> Any:
    sizes = {**_SIZES, "ffn_dim": 24, "word_embed_proj_dim": 16, "dropout": 0.0, "attention_dropout": 0.0}
    del sizes["intermediate_size"], sizes["initializer_range"]
    return hf.OPTForCausalLM(hf.OPTConfig(**sizes))


def _deberta() -> Any:
    relative = {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "pooler_dropout": 0.0}
    return hf.DebertaV2ForSequenceClassification(
        hf.DebertaV2Config(**_SIZES, **_NO_DROPOUT, **relative, num_labels=CLASSES)
    )


def _vit() -> Any:
    sizes = {**_SIZES, "image_size": 8, "patch_size": 4}
    del sizes["vocab_size"], sizes["max_position_embeddings"]
    return hf.ViTForImageClassification(hf.ViTConfig(**sizes, **_NO_DROPOUT, **_IMAGES))


def _swin() -> Any:
    sizes = {"image_size": 8, "patch_size": 1, "embed_dim": 8, "depths": [1, 1], "num_heads": [2, 2], "window_size": 2}
    return hf.SwinForImageClassification(hf.SwinConfig(**sizes, **_NO_DROPOUT, **_IMAGES, drop_path_rate=0.0))


def _convnext() -> Any:
    sizes = {"patch_size": 2, "num_stages": 2, "hidden_sizes": [8, 16], "depths": [1, 1], "image_size": 8}
    return hf.ConvNextForImageClassification(hf.ConvNextConfig(**sizes, **_IMAGES, drop_path_rate=0.0))


MODELS: dict[str, Callable[[], Any]] = {
    "GPT-2": _gpt2,
    "Llama": lambda: hf.LlamaForCausalLM(hf.LlamaConfig(**_SIZES, num_key_value_heads=1)),
    "Gemma": lambda: hf.GemmaForCausalLM(hf.GemmaConfig(**_SIZES, num_key_value_heads=1, head_dim=8)),
    "OPT": _opt,
    "T5": _t5,
    "BART": _bart,
    "BERT, masked words": _bert(hf.BertForMaskedLM),
    "BERT, tokens": _bert(hf.BertForTokenClassification, num_labels=CLASSES),
    "BERT, sentences": _bert(hf.BertForSequenceClassification, num_labels=CLASSES),
    "BERT, several labels": _bert(
        hf.BertForSequenceClassification, num_labels=CLASSES, problem_type="multi_label_classification"
    ),
    "BERT, regression": _bert(hf.BertForSequenceClassification, num_labels=1),
    "DeBERTa-v2": _deberta,
    "ViT": _vit,
    "Swin": _swin,
    "ConvNeXt": _convnext,
}
IMAGES = ("ViT", "Swin", "ConvNeXt")
SEQUENCES = ("T5", "BART")


def model(name: str) -> Any:
    """The same weights every time."""
    with torch.random.fork_rng(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch about the library's own layers
        torch.manual_seed(4)
        return MODELS[name]().train()


def batch(name: str, rows: int = ROWS) -> dict[str, torch.Tensor]:
    """Inputs and labels."""
    generator = torch.Generator().manual_seed(9)

    def numbers(most: int, *shape: int, least: int = 0) -> torch.Tensor:
        return torch.randint(least, most, shape, generator=generator)

    if name in IMAGES:
        pixels = torch.randn(rows, 3, 8, 8, generator=generator)
        return {"pixel_values": pixels, "labels": numbers(CLASSES, rows)}
    lengths = numbers(LENGTH + 1, rows, least=3)
    mask = (torch.arange(LENGTH) < lengths[:, None]).long()
    ids = numbers(WORDS, rows, LENGTH, least=3) * mask + (1 - mask)
    inputs = {"input_ids": ids, "attention_mask": mask}
    counted = torch.where(mask.bool(), ids, -100)
    if name in SEQUENCES:
        return {**inputs, "labels": counted.flip(1)[:, -5:].flip(1).contiguous()}
    if name == "BERT, tokens":
        return {**inputs, "labels": torch.where(mask.bool(), ids % CLASSES, -100)}
    if name == "BERT, masked words":
        return {**inputs, "labels": torch.where(torch.arange(LENGTH) % 2 == 0, counted, -100)}
    if name == "BERT, several labels":
        return {**inputs, "labels": numbers(2, rows, CLASSES).float()}
    if name == "BERT, regression":
        return {**inputs, "labels": torch.randn(rows, generator=generator)}
    return {**inputs, "labels": numbers(CLASSES, rows) if "sentences" in name or "DeBERTa" in name else counted}
