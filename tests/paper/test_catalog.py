"""Every entry: its rows at all scales, and a run at smoke scale of those that need no data."""

import csv
import io
import json
import re
from pathlib import Path

import pytest
from tests.paper.toy import Stopped, contents, run, stopping

from plrvo.paper.catalog import ENTRIES, find
from plrvo.paper.document import read_reproduction
from plrvo.paper.entry import Entry, Scale
from plrvo.paper.reproduce import as_csv, plain
from plrvo.validate import InvalidArgument

ROW = {"key", "label", "parameters", "printed", "measured", "epsilon", "flags", "details"}
NO_DATA = [entry for entry in ENTRIES if not entry.needs[Scale.smoke].data and not entry.needs[Scale.smoke].elsewhere]
ANALYTIC = [entry for entry in NO_DATA if "torch" not in entry.needs[Scale.smoke].packages]


def test_names_are_unique_and_found():
    assert len({entry.name for entry in ENTRIES}) == len(ENTRIES)
    assert all(find(entry.name) is entry for entry in ENTRIES)
    with pytest.raises(InvalidArgument, match="--list"):
        find("table-of-nothing")


def test_rows_have_keys_of_their_own_that_are_fit_for_a_folder():
    for entry in ENTRIES:
        for scale in entry.needs:
            rows = entry.rows(scale)
            keys = [row.key for row in rows]
            assert keys
            assert len({key.lower() for key in keys}) == len(keys)
            assert all(re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9.+_-]*", key) for key in keys), keys
            json.dumps([dict(row.parameters) for row in rows], allow_nan=False)
        assert len(entry.rows(Scale.full)) >= len(entry.rows(Scale.quick)) >= len(entry.rows(Scale.smoke))


@pytest.mark.parametrize("entry", NO_DATA, ids=lambda entry: entry.name)
def test_entries_without_data_run_at_smoke_scale_and_go_on_where_they_stopped(entry: Entry, tmp_path):
    found = run(entry, tmp_path, Scale.smoke)
    stored, table, picture = contents(entry, tmp_path)
    assert json.loads(stored) == {name: value for name, value in found.items() if name != "files"}
    assert found["status"] == "finished"
    assert [row["key"] for row in found["rows"]] == [row.key for row in entry.rows(Scale.smoke)]
    for row in found["rows"]:
        assert row.keys() == ROW
        assert row["printed"].keys() == row["measured"].keys(), row["key"]
    assert len(list(csv.reader(io.StringIO(table.decode())))) == len(found["rows"]) + 1
    assert picture.startswith(b"\x89PNG")
    if entry in ANALYTIC:
        assert continued(entry, tmp_path / "parts") == [stored, table, picture]


def continued(entry: Entry, out: Path) -> list[bytes]:
    """What is written by a run that was stopped at its second row and then went on."""
    with pytest.raises(Stopped):
        run(stopping(entry, 1), out, Scale.smoke)
    run(entry, out, Scale.smoke)
    return contents(entry, out)


@pytest.mark.parametrize(
    "folder", sorted((Path(__file__).parents[2] / "results" / "paper").iterdir()), ids=lambda f: f.name
)
def test_committed_results_are_what_their_rows_say(folder: Path):
    found = read_reproduction(folder, "folder")
    entry = find(folder.name)
    assert (found["name"], found["title"], found["status"]) == (entry.name, entry.title, "finished")
    expected = {row.key: plain(row.parameters) for row in entry.rows(Scale(found["scale"]))}
    assert {row["key"]: row["parameters"] for row in found["rows"]} == expected
    assert found["findings"] == entry.findings(found["rows"])
    assert (folder / f"{entry.name}.csv").read_text() == as_csv(found["rows"])
