"""The data of the black-box attack and the poison for it: words for sentences, a direction for everything else."""

from __future__ import annotations

from pathlib import Path

from plrvo.audit.clipbkd import Poison, make_poison
from plrvo.audit.data import Dataset
from plrvo.tasks.attacked import load


def load_poisoned(name: str, data_dir: Path | None, examples: int | None = None) -> tuple[Dataset, Poison]:
    """Data and poison. With a number of `examples`, for a quick look, one word of four is exchanged."""
    if name != "sst2":
        data = load(name, data_dir)
        return data, make_poison(data)
    from plrvo.tasks.text.backdoor import CHANGES, load_features, word_poison

    features, encode, sentence = load_features(data_dir, examples)
    if examples is not None:
        sentence = " ".join(sentence.split()[:4])
    return features, word_poison(features, encode, sentence, CHANGES if examples is None else 1)
