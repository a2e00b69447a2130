"""Features are computed once and kept, and computed again where the file is not what was written."""

import pytest
import torch

from plrvo.tasks.features import Chunk, cached_features
from plrvo.validate import InvalidArgument

ROWS = torch.arange(6.0).reshape(3, 2)


def chunk(calls, rows=ROWS, key="key"):
    return Chunk(key, len(rows), lambda: calls.append(key) or rows)


def test_what_is_kept_is_not_computed_again(tmp_path):
    calls, heard = [], []
    for _ in range(2):
        parts = cached_features([chunk(calls), chunk(calls, key="other")], 6, tmp_path, heard.append)
        assert all(torch.equal(part, ROWS) for part in parts)
    assert calls == ["key", "other"]
    assert heard == [3, 6, 3, 6]


def test_a_log_hears_of_how_many_and_where_they_are(tmp_path, caplog):
    with caplog.at_level("DEBUG", "plrvo"):
        cached_features([chunk([]), chunk([], key="other")], 6, tmp_path)
        cached_features([chunk([])], 3, None)
    kept = f", and kept in {tmp_path}, as secret as the data"
    made = ["features of 3 of 6 examples made" + kept, "features of 6 of 6 examples made" + kept]
    assert caplog.messages == [*made, "features of 3 of 3 examples made"]


def test_without_a_folder_nothing_is_kept():
    calls = []
    for _ in range(2):
        cached_features([chunk(calls)], 3, None)
    assert calls == ["key", "key"]


def test_a_damaged_file_or_one_of_other_rows_is_computed_again(tmp_path):
    calls = []
    cached_features([chunk(calls)], 3, tmp_path)
    path = tmp_path / "key.safetensors"
    whole = path.read_bytes()
    for damaged in (whole[:-1], whole[:-1] + b"\1", b"", b"\xff" * 100):
        path.write_bytes(damaged)
        (part,) = cached_features([chunk(calls)], 3, tmp_path)
        assert torch.equal(part, ROWS)
        assert path.read_bytes() == whole
    assert len(calls) == 5
    cached_features([chunk(calls, ROWS[:2])], 2, tmp_path)
    assert len(calls) == 6


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidArgument, match=r"^cache_dir="):
        cached_features([chunk([])], 3, tmp_path / "file")
