"""Table-to-text data sets as tables with their texts, found as `plrvo.tasks.sources` says.

DART is read without its training split: `dart` as a task trains on WebNLG, which is a part of DART, and tests on DART's
test split, and says so.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from plrvo.tasks.archive import BadArchive, untar_ending, unxz, unzip
from plrvo.tasks.sources import find
from plrvo.tasks.tables import catalog
from plrvo.tasks.tables.formats import Entry, dart_json_entries, e2e_entries, xml_entries
from plrvo.validate import InvalidArgument

NAMES = ("e2e", "dart", "webnlg")


@dataclass(frozen=True)
class Split:
    """Entries in the order of their file."""

    entries: tuple[Entry, ...]

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """One (table, text) for each reference: the examples of training."""
        return [(entry.table, text) for entry in self.entries for text in entry.references]

    @property
    def most_references(self) -> int:
        """The largest number of texts of one table; a table may stand in several entries."""
        return max(Counter(table for table, _ in self.pairs).values(), default=0)

    @property
    def fingerprint(self) -> str:
        """SHA-256 of tables and texts, whatever file they came in."""
        return hashlib.sha256(json.dumps(self.pairs).encode()).hexdigest()


@dataclass(frozen=True)
class TableData:
    """The splits of a data set; `source` tells a person where they came from and holds no path."""

    name: str
    train: Split
    dev: Split
    test: Split
    source: str


def load_tables(name: str, data_dir: Path | None = None) -> TableData:
    """The data set called `name`, one of NAMES. DART has an empty training split."""
    loaders = {"e2e": _e2e, "dart": _dart, "webnlg": _webnlg}
    if name not in loaders:
        raise InvalidArgument("name", name, f"one of {', '.join(NAMES)}")
    try:
        return loaders[name](data_dir)
    except (BadArchive, ValueError) as error:  # behind a checksum: a mistake of ours, and not of the user's
        if isinstance(error, InvalidArgument):
            raise
        raise InvalidArgument("data_dir", str(data_dir), f"{name} as it was published, not {error}") from None


def training_data(name: str, data_dir: Path | None = None) -> TableData:
    """As `load_tables`, with WebNLG's training split where the data set has none of its own."""
    data = load_tables(name, data_dir)
    if data.train.entries:
        return data
    other = load_tables("webnlg", data_dir)
    source = f"training: {other.source}; test: {data.source}"
    return TableData(data.name, other.train, data.dev, data.test, source)


def spread(entries: Sequence[Entry], count: int | None) -> list[Entry]:
    """At most `count` entries, evenly spread over all: a subset that depends on nothing but their number.

    >>> [entry.table for entry in spread([Entry(str(i), ("x",)) for i in range(10)], 4)]
    ['0', '2', '5', '7']
    """
    if count is None or count >= len(entries):
        return list(entries)
    return [entries[i * len(entries) // count] for i in range(count)]


def _e2e(data_dir: Path | None) -> TableData:
    found = find(catalog.E2E, data_dir)
    files = unzip(found.contents[catalog.E2E_ARCHIVE], catalog.E2E_FILES)
    train, dev, test = (Split(tuple(e2e_entries(files[name]))) for name in catalog.E2E_FILES)
    return TableData("e2e", train, dev, test, found.source)


def _webnlg(data_dir: Path | None) -> TableData:
    found = find(catalog.WEBNLG, data_dir)
    files = untar_ending(unxz(found.contents[catalog.WEBNLG_ARCHIVE], catalog.WEBNLG_TAR_LIMIT), ".xml")
    train, dev, test = (
        Split(tuple(entry for name, file in files.items() if f"/{split}/" in name for entry in xml_entries(file)))
        for split in ("train", "dev", "test")
    )
    return TableData("webnlg", train, dev, test, found.source)


def _dart(data_dir: Path | None) -> TableData:
    found = find(catalog.DART, data_dir)
    ending = ".gz" if found.layout == "gz" else ""
    dev = Split(tuple(dart_json_entries(found.contents[catalog.DART_DEV + ending])))
    test = Split(tuple(xml_entries(found.contents[catalog.DART_TEST + ending])))
    return TableData("dart", Split(()), dev, test, found.source)
