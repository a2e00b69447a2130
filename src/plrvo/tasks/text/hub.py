"""Text data sets by their name on the Hugging Face hub, or from a folder in the form that `datasets` reads."""

from __future__ import annotations

from typing import Any

from plrvo.tasks.text.catalog import TextSet
from plrvo.tasks.text.data import Examples
from plrvo.tasks.text.words import check_source
from plrvo.validate import InvalidArgument

# The hub has the test labels of some data sets under other split names.
_SPLITS = {"train": ("train",), "dev": ("validation", "dev"), "test": ("test",)}


def load_from_hub(text_set: TextSet, source: str) -> tuple[Examples, Examples]:
    """The training split and the split that tests, of "hf:NAME", "hf:NAME:CONFIGURATION" or "hf:FOLDER"."""
    check_source(source)
    try:
        import datasets
    except ImportError:
        raise InvalidArgument("data", source, "datasets to be installed: pip install datasets") from None
    name, _, configuration = source.removeprefix("hf:").partition(":")
    try:
        loaded = datasets.load_dataset(name, configuration or None, trust_remote_code=False)
    except Exception as error:  # the library raises whatever its many parts raise; all of it is about the name
        reason = " ".join(str(error).split())[:200]
        raise InvalidArgument(
            "data",
            source,
            f"a data set that can be reached ({reason}). Without a network, `data_dir` names a folder with "
            f"{text_set.name}/, or `data` hf:FOLDER one that `datasets` can read",
        ) from None
    return _examples(text_set, source, loaded, "train"), _examples(text_set, source, loaded, text_set.held_out)


def _examples(text_set: TextSet, source: str, loaded: Any, split: str) -> Examples:
    names = [name for name in _SPLITS[split] if name in loaded]
    if not names:
        raise InvalidArgument("data", source, f"a data set with a split called {' or '.join(_SPLITS[split])}")
    rows = loaded[names[0]]
    like = text_set.splits["train"]
    wanted = [column for column in (like.text, like.second) if column is not None]
    missing = [column for column in (*wanted, "label") if column not in rows.column_names]
    if missing:
        raise InvalidArgument("data", source, f"columns {', '.join(wanted)} and label; {names[0]} lacks {missing[0]}")
    unlabelled = None in text_set.labels.values()
    kept = [i for i, label in enumerate(rows["label"]) if not (unlabelled and label == -1)]
    labels = [rows["label"][i] for i in kept]
    for label in labels:
        if isinstance(label, bool) or not isinstance(label, int) or not 0 <= label < len(text_set.classes):
            raise InvalidArgument("data", source, f"labels from 0 to {len(text_set.classes) - 1}, not {label!r}")
    columns = [[str(rows[column][i]) for i in kept] for column in wanted]
    return Examples(columns[0], columns[1] if like.second else None, labels)
