"""Text data sets as strings and class numbers, from files or from the Hugging Face hub."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from plrvo.tasks.sources import find
from plrvo.tasks.text.catalog import TEXT_SETS, Split, TextSet
from plrvo.validate import InvalidArgument, positive_integer


@dataclass(frozen=True)
class Examples:
    """Texts, second texts where examples are pairs, and class numbers."""

    texts: list[str]
    seconds: list[str] | None
    labels: list[int]

    def __len__(self) -> int:
        return len(self.labels)

    def first(self, count: int) -> Examples:
        """The first `count` of them."""
        seconds = None if self.seconds is None else self.seconds[:count]
        return Examples(self.texts[:count], seconds, self.labels[:count])


@dataclass(frozen=True)
class TextData:
    """What is trained on, what tests it, and what a receipt says of them; `source` holds no path."""

    name: str
    train: Examples
    test: Examples
    classes: tuple[str, ...]
    held_out: str
    source: str

    @property
    def fingerprint(self) -> str:
        """SHA-256 over all texts and labels, the same wherever they came from."""
        digest = hashlib.sha256()
        for part in (self.train, self.test):
            digest.update(f"{len(part)};".encode())
            for text, second, label in zip(part.texts, part.seconds or part.texts, part.labels, strict=True):
                # Of each text its length, too, so that no two splits of the same letters are alike.
                digest.update(f"{len(text)}:{text}{len(second)}:{second}{label};".encode())
        return digest.hexdigest()


def load_text(name: str, data_dir: Path | None = None, source: str | None = None, limit: int | None = None) -> TextData:
    """The data set called `name`: from files, or with `source` "hf:NAME" from the hub.

    `limit` keeps the first so many training examples: a public rule, which looks at their position only.
    """
    text_set = _known(name)
    if limit is not None:
        positive_integer(limit=limit)
    if source is not None:
        from plrvo.tasks.text.hub import load_from_hub  # needs a package of its own

        train, test = load_from_hub(text_set, source)
        said = f"{name} from the hub as {source.removeprefix('hf:')}"
    else:
        train, test, said = _from_files(text_set, data_dir)
    if limit is not None:
        if limit > len(train):
            raise InvalidArgument("limit", limit, f"at most {len(train)}, the training examples of {name}")
        train = train.first(limit)
    return TextData(name, train, test, text_set.classes, text_set.held_out, said)


def load_split(name: str, split: str, data_dir: Path | None = None) -> Examples:
    """One labelled split of a data set's files."""
    text_set = _known(name)
    if split not in text_set.splits:
        raise InvalidArgument("split", split, "one of " + ", ".join(text_set.splits))
    contents = find(text_set.files(split), data_dir).contents
    return read_split(next(iter(contents.values())), text_set.splits[split], text_set)


def read_split(content: bytes, split: Split, text_set: TextSet) -> Examples:
    """The examples in a tab separated file with a header line; those without a gold label are left out."""
    name = f"{text_set.name}/{split.file.name}"
    try:
        lines = content.decode("utf-8").removesuffix("\n").split("\n")
    except UnicodeDecodeError:
        raise InvalidArgument("data_dir", name, "a file in UTF-8") from None
    header = lines[0].rstrip("\r").split("\t")
    wanted = [column for column in (split.text, split.second, split.label) if column is not None]
    if any(column not in header for column in wanted):
        raise InvalidArgument("data_dir", name, f"a header with the columns {', '.join(wanted)}")
    places = [header.index(column) for column in wanted]
    rows: list[tuple[list[str], int]] = []
    for number, line in enumerate(lines[1:], start=2):
        cells = line.rstrip("\r").split("\t")
        if len(cells) != len(header):
            raise InvalidArgument("data_dir", f"{name}, line {number}", f"{len(header)} columns")
        *texts, label = (cells[place] for place in places)
        if label not in text_set.labels:
            raise InvalidArgument(
                "data_dir", f"{name}, line {number}", f"a label of {', '.join(text_set.labels)}, not {label!r}"
            )
        gold = text_set.labels[label]
        if gold is not None:
            rows.append((texts, gold))
    if not rows:
        raise InvalidArgument("data_dir", name, "a file with examples")
    seconds = None if split.second is None else [texts[1] for texts, _ in rows]
    return Examples([texts[0] for texts, _ in rows], seconds, [label for _, label in rows])


def _from_files(text_set: TextSet, data_dir: Path | None) -> tuple[Examples, Examples, str]:
    names = ("train", text_set.held_out)
    try:
        found = find(text_set.files(*names), data_dir)
    except InvalidArgument as error:
        raise InvalidArgument(
            error.argument, error.value, f"{error.expected}. Or `data` hf:{text_set.hub}, with a network"
        ) from None
    parts = {name.removesuffix(".gz"): content for name, content in found.contents.items()}
    splits = [text_set.splits[name] for name in names]
    train, test = (read_split(parts[split.file.name], split, text_set) for split in splits)
    return train, test, found.source


def _known(name: str) -> TextSet:
    if name not in TEXT_SETS:
        raise InvalidArgument("name", name, f"one of {', '.join(TEXT_SETS)}")
    return TEXT_SETS[name]
