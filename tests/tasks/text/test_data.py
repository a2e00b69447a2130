"""Loaders: the counts of the real files, and what happens to broken ones."""

import gzip
import sys

import pytest
from tests.tasks.text.tiny import texts, write_sst2

from plrvo.tasks.text import data as text_data
from plrvo.tasks.text.catalog import QNLI, SNLI, SST2, TEXT_SETS
from plrvo.tasks.text.data import load_split, load_text, read_split
from plrvo.validate import InvalidArgument


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "split", "count", "classes"),
    [
        ("sst2", "train", 67_349, 2),
        ("sst2", "dev", 872, 2),
        ("sst2", "test", 1_821, 2),
        ("qnli", "dev", 5_463, 2),
        ("snli", "train", 100_000 - 110, 3),  # 110 have no gold label
        ("snli", "test", 10_000 - 176, 3),
        ("sick", "train", 4_500, 3),
        ("sick", "dev", 500, 3),
        ("sick", "test", 4_927, 3),
    ],
)
def test_counts_of_the_real_files(data_dir, name, split, count, classes):
    examples = load_split(name, split, data_dir)
    assert len(examples) == len(examples.texts) == count
    assert set(examples.labels) == set(range(classes))
    assert (examples.seconds is None) == (name == "sst2")
    assert not any("\r" in text or "\t" in text for text in examples.texts)


@pytest.mark.data
def test_a_limit_keeps_the_first_examples(data_dir):
    everything, few = load_text("sick", data_dir), load_text("sick", data_dir, limit=70)
    assert few.train.texts == everything.train.texts[:70]
    assert few.train.seconds == everything.train.seconds[:70]
    assert few.test == everything.test
    assert few.fingerprint != everything.fingerprint
    with pytest.raises(InvalidArgument, match="at most 4500"):
        load_text("sick", data_dir, limit=4501)
    with pytest.raises(InvalidArgument, match="limit=0"):
        load_text("sick", data_dir, limit=0)


@pytest.mark.data
def test_qnli_has_no_training_split_and_the_error_says_what_works(data_dir):
    with pytest.raises(InvalidArgument) as refused:
        load_text("qnli", data_dir)
    assert "lacks train.tsv.gz" in refused.value.expected
    assert "`data` hf:nyu-mll/glue:qnli" in refused.value.expected


@pytest.mark.data
def test_a_training_split_of_ones_own_makes_qnli_whole(data_dir, tmp_path):
    folder = tmp_path / "qnli"
    folder.mkdir()
    dev = gzip.decompress((data_dir / "qnli" / "dev.tsv.gz").read_bytes())
    (folder / "dev.tsv").write_bytes(dev)
    (folder / "train.tsv").write_bytes(b"\n".join(dev.split(b"\n")[:101]))
    loaded = load_text("qnli", tmp_path)
    assert len(loaded.train) == 100
    assert len(loaded.test) == 5_463


def test_uncompressed_files_are_checked_like_compressed_ones(tmp_path):
    write_sst2(tmp_path / "sst2", texts(20), texts(5))
    with pytest.raises(InvalidArgument, match="checksum"):
        load_text("sst2", tmp_path)


@pytest.mark.parametrize(
    ("content", "wrong"),
    [
        ("sentence\tlabel\ngood film\t1\nbad film\t2\n", "line 3.*'2'"),
        ("sentence\tlabel\ngood film\n", "line 2.*2 columns"),
        ("text\tlabel\ngood film\t1\n", "columns sentence, label"),
        ("sentence\tlabel\n", "2 columns|examples"),
        (b"sentence\tlabel\n\xff\t1\n", "UTF-8"),
    ],
)
def test_broken_files_are_refused_with_the_place(content, wrong):
    content = content if isinstance(content, bytes) else content.encode()
    with pytest.raises(InvalidArgument, match=wrong):
        read_split(content, SST2.splits["train"], SST2)


def test_examples_without_a_gold_label_are_left_out():
    content = b"pairID\tpremise\thypothesis\tlabel\n1\ta\tb\t-\n2\tc\td\tneutral\n"
    examples = read_split(content, SNLI.splits["train"], SNLI)
    assert (examples.texts, examples.seconds, examples.labels) == (["c"], ["d"], [1])


def test_unknown_names_are_refused():
    with pytest.raises(InvalidArgument, match="sst2, qnli, snli, sick"):
        load_text("imdb")
    with pytest.raises(InvalidArgument, match="train, dev"):
        load_split("qnli", "test")


@pytest.mark.parametrize("source", ["nyu-mll/glue", "hf:", "csv:file"])
def test_a_source_that_is_not_the_hub_is_refused(source):
    with pytest.raises(InvalidArgument, match="hf:NAME"):
        load_text("sst2", source=source)


def test_without_the_package_the_hub_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)  # as if it were not installed
    with pytest.raises(InvalidArgument, match="pip install datasets"):
        load_text("sst2", source="hf:stanfordnlp/sst2")


def _folder_for_datasets(folder, set_, label):
    """Splits as JSON lines, which the library reads without a network."""
    import json

    split = set_.splits["train"]
    row = {split.text: "a film", "label": label} | ({split.second: "b"} if split.second else {})
    folder.mkdir()
    for name in ("train", "validation", "test"):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for _ in range(3)))
    return f"hf:{folder}"


@pytest.mark.parametrize("name", TEXT_SETS)
def test_the_library_of_data_sets_reads_a_folder(tmp_path, name):
    loaded = load_text(name, source=_folder_for_datasets(tmp_path / "set", TEXT_SETS[name], 1))
    assert len(loaded.train) == len(loaded.test) == 3
    assert loaded.train.labels == [1, 1, 1]


def test_labels_of_the_hub_outside_the_classes_are_refused(tmp_path):
    with pytest.raises(InvalidArgument, match="labels from 0 to 1"):
        load_text("qnli", source=_folder_for_datasets(tmp_path / "set", QNLI, 2))


def test_fingerprints_see_where_texts_are_split():
    def data(seconds):
        part = text_data.Examples(["ab", "c"], seconds, [0, 1])
        return text_data.TextData("sick", part, part, ("a", "b"), "dev", "here")

    assert data(["d", "ef"]).fingerprint != data(["de", "f"]).fingerprint
