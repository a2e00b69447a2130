"""`plrvo report` as its users run it."""

import json

from tests.report.samples import MECHANISM, changed_receipt, copied

from plrvo.cli.main import main


def test_a_page_of_everything_is_written_and_told(gamma_run, plain_run, table, tmp_path, capsys):
    out = tmp_path / "folder" / "page.html"
    runs = [str(path) for path in (gamma_run, plain_run, table, MECHANISM)]
    assert main(["report", *runs, "--out", str(out), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["path"] == str(out)
    assert told["verified"] is True
    assert [run["kind"] for run in told["runs"]] == ["training", "training", "reproduction", "audit"]
    assert [run["verified"] for run in told["runs"]] == [True, None, None, True]
    assert out.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert [path.name for path in out.parent.iterdir()] == ["page.html"]  # nothing half-written is left


def test_a_receipt_that_does_not_verify_gives_a_page_and_exit_code_one(gamma_run, tmp_path, capsys):
    folder, out = copied(gamma_run, tmp_path / "run"), tmp_path / "page.html"
    changed_receipt(folder, lambda receipt: receipt["epsilon"].update(certified=0.1))
    assert main(["report", str(folder), "--out", str(out), "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["verified"] is False
    assert told["differences"]
    assert "Does not verify." in out.read_text(encoding="utf-8")


def test_bad_input_is_one_line_and_nothing_is_written(tmp_path, capsys, gamma_run):
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "receipt.json").write_text("{")
    empty = tmp_path / "empty"
    empty.mkdir()
    before = (gamma_run / "receipt.json").read_bytes()
    for run, out in (
        (broken, "page.html"),
        (empty, "page.html"),
        (tmp_path / "missing", "page.html"),
        (gamma_run, str(gamma_run / "receipt.json")),
    ):
        assert main(["report", str(gamma_run), str(run), "--out", str(tmp_path / out)]) == 2
        error = capsys.readouterr().err
        assert error.count("\n") == 1
        assert error.startswith(("plrvo: RUN", "plrvo: --out"))
        assert not (tmp_path / "page.html").exists()
    assert (gamma_run / "receipt.json").read_bytes() == before
