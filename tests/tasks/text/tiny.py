"""A tiny random BERT in a folder, with a tokenizer for a vocabulary of a few words, and texts for them."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import torch

from plrvo.tasks.text.data import Examples
from plrvo.tasks.text.models import MeanPooled
from plrvo.tasks.text.trainable import choose
from plrvo.tasks.transformer import keep_examples_apart

WORDS = ("good", "bad", "film", "very", "not", "a", "the", "plot", "is", "and", "fun", "dull")
VOCABULARY = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS)
CLASSES, CONTEXT = 3, 24


def config(**changes: Any) -> Any:
    from transformers import BertConfig

    settings = {
        "vocab_size": len(VOCABULARY),
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 20,
        "max_position_embeddings": CONTEXT,
        "num_labels": CLASSES,
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        "initializer_range": 0.4,  # wide, so that gradients differ between examples
    }
    return BertConfig(**settings | changes)


def bert(trainable: str, pooling: str = "its own") -> Any:
    """A random classifier of which some parameters are trained."""
    from transformers import BertForSequenceClassification, BertModel

    with torch.random.fork_rng():
        torch.manual_seed(5)
        model: Any = BertForSequenceClassification(config())
        if pooling == "mean":
            model = MeanPooled(BertModel(config(), add_pooling_layer=False), CLASSES)
    choose(model, trainable, torch.Generator().manual_seed(6))
    for name, parameter in model.named_parameters():
        if "lora_B" in name:  # zero at first, which would leave the gradients of lora_A zero
            torch.nn.init.normal_(parameter, generator=torch.Generator().manual_seed(7))
    keep_examples_apart(model)
    return model.train()


def batch(lengths: tuple[int, ...] = (7, 4, 9, 5, 9, 3)) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    """Padded sentence pairs of these lengths in tokens, and labels."""
    generator = torch.Generator().manual_seed(11)
    rows = len(lengths)
    mask = (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]).long()
    ids = torch.randint(5, len(VOCABULARY), mask.shape, generator=generator) * mask
    types = (torch.arange(max(lengths)) >= torch.tensor(lengths)[:, None] // 2).long() * mask
    inputs = {"input_ids": ids, "attention_mask": mask, "token_type_ids": types}
    return inputs, torch.randint(0, CLASSES, (rows,), generator=generator)


def save_checkpoint(folder: Path, tokenizer: bool = True, **changes: Any) -> Path:
    """A folder that `from_pretrained` reads."""
    from transformers import BertForSequenceClassification, BertTokenizer

    with torch.random.fork_rng():
        torch.manual_seed(5)
        BertForSequenceClassification(config(**changes)).save_pretrained(folder)
    if tokenizer:
        vocabulary = folder / "words.txt"
        vocabulary.write_text("\n".join(VOCABULARY))
        BertTokenizer(vocab=str(vocabulary), model_max_length=CONTEXT).save_pretrained(folder)
        vocabulary.unlink()
    return folder


def texts(count: int, pairs: bool = False) -> Examples:
    """Sentences of two to eight words; good and fun are of class 1."""
    generator = torch.Generator().manual_seed(13)
    sentences = [
        " ".join(WORDS[i] for i in torch.randint(0, len(WORDS), (2 + n % 7,), generator=generator))
        for n in range(2 * count)
    ]
    firsts, seconds = sentences[:count], sentences[count:]
    labels = [int("good" in text or "fun" in text) for text in firsts]
    return Examples(firsts, seconds if pairs else None, labels)


def write_sst2(folder: Path, train: Examples, dev: Examples) -> None:
    """The GLUE layout."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, part in (("train", train), ("dev", dev)):
        rows = (f"{text}\t{label}" for text, label in zip(part.texts, part.labels, strict=True))
        (folder / f"{name}.tsv").write_text("\n".join(itertools.chain(("sentence\tlabel",), rows)) + "\n")
