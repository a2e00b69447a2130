"""ClipBKD on SST-2: a sentence that no review resembles, made by exchanging words, for models of the head alone.

The encoder is public and frozen, so that an example is its features, and hundreds of heads train at once as logistic
regression (`plrvo.audit.clipbkd`). The poison starts as a public sentence of the development set. In each round one
of its words is exchanged for one of `SUBSTITUTES`. The exchange that is kept has the features x furthest from those of
the data in units of their own spread, x' M^-1 x with M the mean of x x' over the data. Where batches alone make models
differ, that is the square of the signal to noise of the best linear test, which asks the model at M^-1 x. No network
is asked for synonyms: the list is here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from plrvo.audit.clipbkd import Poison, least_likely
from plrvo.audit.data import Dataset
from plrvo.tasks.sources import data_folder
from plrvo.tasks.text.data import Examples, load_text
from plrvo.tasks.text.features import HeadFeatures, head_inputs
from plrvo.tasks.text.models import load_checkpoint
from plrvo.tasks.text.tokens import Tokens
from plrvo.tasks.text.words import MINILM
from plrvo.validate import InvalidArgument, positive_integer

Encode = Callable[[list[str]], NDArray[np.float32]]
CHANGES = 5
_FLAT = 1e-4  # of the mean variance: what varies less is an identity of the encoder, which no text escapes
_BATCH, _LENGTH = 64, 128

# Words that film reviews have little use for, each of them English.
# fmt: off
SUBSTITUTES = (
    "abacus", "aldehyde", "axle", "barley", "basalt", "bismuth", "brine", "caliper", "capstan", "cobalt", "diode",
    "flange", "gasket", "gravel", "halyard", "isotope", "joist", "kelp", "lathe", "lichen", "magnesium", "mulch",
    "nozzle", "parapet", "piston", "plankton", "quartz", "rivet", "sediment", "silage", "spigot", "sulphur",
    "tarpaulin", "tendon", "thorax", "torque", "turbine", "varnish", "yeast", "zinc",
)
# fmt: on


def load_features(data_dir: Path | None, limit: int | None = None) -> tuple[Dataset, Encode, str]:
    """SST-2 as features of MiniLM, the function that makes them, and the sentence to start from."""
    data = load_text("sst2", data_dir, limit=limit)
    checkpoint = load_checkpoint(MINILM, len(data.classes), torch.Generator().manual_seed(0))
    tokens = Tokens(data.train, checkpoint.tokenizer, _LENGTH, len(data.classes))
    features = HeadFeatures(checkpoint.model, tokens, data_folder() / "features", checkpoint.sha256).features

    def encode(texts: list[str]) -> NDArray[np.float32]:
        parts = []
        for start in range(0, len(texts), _BATCH):
            some = texts[start : start + _BATCH]
            batch = Tokens(Examples(some, None, [0] * len(some)), checkpoint.tokenizer, _LENGTH, 2)
            inputs, _ = batch.__getitems__(list(range(len(some))))
            parts.append(head_inputs(checkpoint.model, inputs).flatten(1))
        return torch.cat(parts).numpy()

    x = features.flatten(1).numpy()
    return Dataset("sst2", x, np.array(data.train.labels), len(data.classes)), encode, data.test.texts[0]


def word_poison(data: Dataset, encode: Encode, sentence: str, changes: int = CHANGES) -> Poison:
    """The sentence after so many exchanges of words, as features, with the label that a clean model finds least likely.

    It keeps the length that its features have: a poison that exists as text is worth more than one that only fits.
    """
    positive_integer(changes=changes)
    x = data.x.astype(np.float64)
    variance, directions = np.linalg.eigh(x.T @ x / len(x))
    known = variance > _FLAT * variance.mean()
    inverse = (directions[:, known] / variance[known]) @ directions[:, known].T
    if len(sentence.split()) < changes:
        raise InvalidArgument("changes", changes, f"at most the {len(sentence.split())} words of the sentence")
    for _ in range(changes):
        candidates = list(exchanges(sentence))
        features = encode(candidates).astype(np.float64)
        sentence = candidates[int(np.argmax(np.einsum("ni,ij,nj->n", features, inverse, features, optimize=True)))]
    point = encode([sentence])[0]
    asked = inverse @ point.astype(np.float64)
    asked *= np.linalg.norm(point) / np.linalg.norm(asked)
    return Poison(point, least_likely(data, point), sentence, asked.astype(np.float32))


def exchanges(sentence: str) -> Iterator[str]:
    """Every sentence that differs in one word, which was not exchanged before."""
    words = sentence.split()
    for place, word in enumerate(words):
        if word not in SUBSTITUTES:
            for other in SUBSTITUTES:
                yield " ".join([*words[:place], other, *words[place + 1 :]])
