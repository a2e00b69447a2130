"""The text data sets: their files, checksums, columns and classes.

Files are tab separated, as GLUE and the data sets' own releases have them, compressed or not. A label of None marks
examples without a gold label, which are left out. The order of the classes is that of the copies on the Hugging Face
hub, so that labels mean the same thing wherever an example comes from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from plrvo.tasks.sources import DataFile, DataSet, Layout


@dataclass(frozen=True)
class Split:
    """One labelled part of a data set: its file, and the columns of the text, of a second text, and of the label."""

    file: DataFile
    text: str
    label: str
    second: str | None = None


@dataclass(frozen=True)
class TextSet:
    """A data set by name. `held_out` names the split that tests a model; `hub` is the data set's name on the hub."""

    name: str
    splits: Mapping[str, Split]
    labels: Mapping[str, int | None]
    held_out: str
    hub: str

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes, in the order of their numbers."""
        return tuple(name for name, label in self.labels.items() if label is not None)

    def files(self, *splits: str) -> DataSet:
        """The files of some splits, for `plrvo.tasks.sources.find`."""
        plain = tuple(self.splits[split].file for split in splits)
        packed = tuple(DataFile(f"{file.name}.gz", file.size, file.sha256, gzip=True) for file in plain)
        return DataSet(self.name, (Layout("gzip", packed), Layout("plain", plain)))


SST2 = TextSet(
    "sst2",
    {
        "train": Split(
            DataFile("train.tsv", 3_806_081, "48eac26399f8456935f81dd9e3a745c1430adb6c62e233ccfe22db4a0d15d1d1"),
            "sentence",
            "label",
        ),
        "dev": Split(
            DataFile("dev.tsv", 94_931, "54a9c12c77e402fc14d6a66a506f24d999f596b0176eb777c972cccc2f9cc4b0"),
            "sentence",
            "label",
        ),
        # GLUE keeps the labels of its test split; these are those of the original treebank.
        "test": Split(
            DataFile(
                "test-labeled-sst.tsv", 193_576, "fcd46f967b7b8efd8b5398481dadf873886298d092195167af907fd532e81e1c"
            ),
            "content",
            "label",
        ),
    },
    {"0": 0, "1": 1},
    held_out="dev",
    hub="stanfordnlp/sst2",
)
QNLI = TextSet(
    "qnli",
    {
        # No checksum: whoever has GLUE's training split may use it.
        "train": Split(DataFile("train.tsv", 64_000_000, None), "question", "label", "sentence"),
        "dev": Split(
            DataFile("dev.tsv", 1_367_342, "ac19409dcb04631eaaa094bdebdcf621086bc352503dfb6a1a648b614986f4fd"),
            "question",
            "label",
            "sentence",
        ),
    },
    {"entailment": 0, "not_entailment": 1},
    held_out="dev",
    hub="nyu-mll/glue:qnli",
)
SNLI = TextSet(
    "snli",
    {
        "train": Split(
            DataFile("train.tsv", 13_606_577, "68a51c324f479dadabee28ad9dd9d8e89d5615371e7bf76711036bbf0c5990a4"),
            "premise",
            "label",
            "hypothesis",
        ),
        "test": Split(
            DataFile("test.tsv", 1_425_264, "f2e8284aee0bedf86e0ac980591472713cc093ac25bb3447ce09f5592a708745"),
            "premise",
            "label",
            "hypothesis",
        ),
    },
    {"entailment": 0, "neutral": 1, "contradiction": 2, "-": None},
    held_out="test",
    hub="stanfordnlp/snli",
)


def _sick(file: DataFile) -> Split:
    return Split(file, "sentence_A", "entailment_judgment", "sentence_B")


SICK = TextSet(
    "sick",
    {
        "train": _sick(
            DataFile("SICK_train.txt", 506_243, "266cf8047149bd1d68138dd30439f3122bff30069740ac6705bb6197d9f1b48e")
        ),
        "dev": _sick(
            DataFile("SICK_trial.txt", 57_225, "5a88cfb62f8c6bd2a3cce0f2421ba2cb8c2be5ab4a800f6f01e2c64aafb7db56")
        ),
        "test": _sick(
            DataFile(
                "SICK_test_annotated.txt", 559_979, "2b8aa806658d6fc23c6824c83776c2d4fee7556000817b5ec0f982861413b7d0"
            )
        ),
    },
    {"ENTAILMENT": 0, "NEUTRAL": 1, "CONTRADICTION": 2},
    held_out="test",
    hub="RobZamp/sick",
)

TEXT_SETS = {text_set.name: text_set for text_set in (SST2, QNLI, SNLI, SICK)}
