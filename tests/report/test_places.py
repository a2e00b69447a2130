"""Commands of a page can be pasted where it was made."""

import shlex
from pathlib import Path

import pytest

from plrvo.report.places import typed


@pytest.mark.parametrize("given", ["runs/digits/receipt.json", "../runs/digits", "receipt.json", "a run/receipt.json"])
def test_a_path_is_typed_as_it_was_given(given):
    assert shlex.split(typed(Path(given))) == [given]


def test_a_path_from_the_root_begins_here_or_tells_no_folders_of_the_machine(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert typed(tmp_path / "runs" / "digits") == "runs/digits"
    assert typed(tmp_path.parent / "elsewhere" / "digits") == "elsewhere/digits"


def test_a_name_is_no_option():
    assert typed(Path("-v/receipt.json")) == "./-v/receipt.json"
