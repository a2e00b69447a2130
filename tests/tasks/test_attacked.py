"""Loaders: the real files where they are, and refusals of what only looks like them."""

import gzip

import numpy as np
import pytest
from tests.audit.toy import csv_text, write_fashion, write_idx, write_tgz

from plrvo.tasks.attacked import load, read_idx
from plrvo.validate import InvalidArgument


@pytest.mark.data
def test_fashion_mnist_gives_six_thousand_images_of_two_classes(data_dir):
    data = load("fashion-mnist", data_dir)
    assert data.x.shape == (6000, 784)
    assert np.bincount(data.y).tolist() == [3000, 3000]
    assert data.x.min() == 0
    assert data.x.max() == 1


@pytest.mark.data
def test_location30_gives_all_its_records(data_dir):
    data = load("location30", data_dir)
    assert data.x.shape == (5010, 446)
    assert sorted(np.unique(data.y)) == list(range(30))
    assert set(np.unique(data.x)) == {0.0, 1.0}


def test_two_classes_are_taken_and_relabelled(tmp_path):
    write_fashion(tmp_path / "fashion-mnist")
    data = load("fashion-mnist", tmp_path)
    assert len(data) == 80
    assert np.bincount(data.y).tolist() == [40, 40]


def test_purchase100_is_read_packed_or_plain(tmp_path):
    text = csv_text(300, 100, 600)
    write_tgz(tmp_path / "a" / "purchase100" / "dataset_purchase.tgz", {"dataset_purchase": text})
    (tmp_path / "b" / "purchase100").mkdir(parents=True)
    (tmp_path / "b" / "purchase100" / "dataset_purchase").write_text(text)
    packed, plain = load("purchase100", tmp_path / "a"), load("purchase100", tmp_path / "b")
    assert packed.x.shape == (300, 100)
    assert packed.classes == 100
    assert np.array_equal(packed.x, plain.x)
    assert np.array_equal(packed.y, np.arange(300) % 100)


def test_the_environment_names_the_folder(tmp_path, monkeypatch):
    write_fashion(tmp_path / "fashion-mnist")
    monkeypatch.setenv("PLRVO_DATA", str(tmp_path))
    assert len(load("fashion-mnist")) == 80
    monkeypatch.delenv("PLRVO_DATA")
    with pytest.raises(InvalidArgument, match="PLRVO_DATA"):
        load("fashion-mnist")


@pytest.mark.parametrize(
    "members",
    [
        {"../outside": "1,0\n"},
        {"/etc/outside": "1,0\n"},
        {"one": "1,0\n", "two": "1,0\n"},
        {},
        {"bangkok": "31,0,1\n"},
        {"bangkok": "1,0,7\n"},
        {"bangkok": "1,zero\n"},
        {"bangkok": "1,0,1\n1,0\n"},
    ],
    ids=["above", "absolute", "two files", "empty", "label", "value", "word", "ragged"],
)
def test_archives_with_anything_else_are_refused(tmp_path, members):
    write_tgz(tmp_path / "location30" / "dataset_location.tgz", members)
    with pytest.raises(InvalidArgument, match="data_dir"):
        load("location30", tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["location30"]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"not gzip",
        gzip.compress(b""),
        gzip.compress(b"\0\0\x0d\x01\0\0\0\x01a"),
        gzip.compress(b"\0\0\x08\x01\0\0\0\x05ab"),
    ],
    ids=["empty", "no gzip", "no header", "floats", "short"],
)
def test_files_that_are_no_idx_are_refused(tmp_path, content):
    file = tmp_path / "images.gz"
    file.write_bytes(content)
    with pytest.raises(InvalidArgument, match="idx"):
        read_idx(file)


def test_missing_files_and_names_are_refused_by_name(tmp_path):
    with pytest.raises(InvalidArgument, match="a folder that holds location30/"):
        load("location30", tmp_path)
    (tmp_path / "location30").mkdir()
    with pytest.raises(InvalidArgument, match="tgz"):
        load("location30", tmp_path)
    with pytest.raises(InvalidArgument, match="data='imagenet'"):
        load("imagenet", tmp_path)


def test_images_and_labels_must_match(tmp_path):
    write_fashion(tmp_path / "fashion-mnist")
    write_idx(tmp_path / "fashion-mnist" / "train-labels-idx1-ubyte.gz", np.zeros(7))
    with pytest.raises(InvalidArgument, match="same number"):
        load("fashion-mnist", tmp_path)
