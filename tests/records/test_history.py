"""Rows over steps come back as they were written, and anything else is refused."""

import pytest

from plrvo.records.history import read_history, write_history
from plrvo.validate import InvalidArgument


def test_rows_come_back(tmp_path):
    rows = [{"step": 1, "loss": 0.5}, {"step": 2, "name": "Größe"}]
    write_history(tmp_path / "m.jsonl", rows)
    assert read_history(tmp_path / "m.jsonl") == rows
    write_history(tmp_path / "m.jsonl", [])
    assert read_history(tmp_path / "m.jsonl") == []


@pytest.mark.parametrize(
    "content", [b"1\n", b'{"a": 1}\n[2]\n', b'{"a": \n', b'{"a": NaN}\n', b"\xff\n", b"\n"], ids=repr
)
def test_a_line_that_is_no_object_is_refused(tmp_path, content):
    (tmp_path / "m.jsonl").write_bytes(content)
    with pytest.raises(InvalidArgument, match=r"^metrics="):
        read_history(tmp_path / "m.jsonl")


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(InvalidArgument, match=r"^metrics="):
        read_history(tmp_path / "m.jsonl")
