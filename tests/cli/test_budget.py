"""`plrvo budget`, and what it says."""

import json

import pytest
from tests.budget.accounts import account, plan

from plrvo.budget import Account
from plrvo.cli.main import main


def told(capsys, *arguments):
    assert main([*arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_an_account_from_its_beginning_to_its_end(tmp_path, capsys):
    file = str(tmp_path / "a.budget")
    made = told(capsys, "budget", "create", file, "--epsilon", "5", "--name", "census")
    assert (made["name"], made["spent"], made["left_at_least"], made["left_at_most"]) == ("census", 0, 5, 5)
    charge = Account(file).reserve(plan(), "first")
    charge.release(30)
    shown = told(capsys, "budget", "show", file)
    assert shown["entries"][0] | {"at": "", "machine": "", "noise": ""} == {
        **{"entry": 1, "name": "first", "state": "reserved", "planned": 100, "released": 30, "charged": 100},
        **{"at": "", "machine": "", "noise": ""},
    }
    assert 0 < shown["spent_lower"] <= shown["spent_if_fixed_beforehand"] < shown["spent"]
    assert shown["left_at_least"] == pytest.approx(5 - shown["spent"])
    charge.let_go()
    assert told(capsys, "budget", "settle", file, "1")["charged"] == 30
    assert main(["budget", "close", file]) == 0
    capsys.readouterr()
    events = told(capsys, "budget", "history", file)["events"]
    assert [event["event"] for event in events] == ["created", "reserved", "released", "settled", "closed"]


def test_what_is_left_is_printed_as_a_bracket(tmp_path, capsys):
    made = account(tmp_path, name="census")
    made.reserve(plan(), "[b]x[/b]").let_go()
    assert main(["budget", "show", str(made.path)]) == 0
    out = capsys.readouterr().out
    assert "left is at least 2.802 and at most 3.324 of epsilon 5" in out
    assert "[b]x[/b]" in out
    assert main(["budget", "history", str(made.path)]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["create", "FILE", "--epsilon", "3"], "FILE {file}: expected a file that does not exist yet"),
        (["create", "new"], "--epsilon (missing): expected a value"),
        (["create", "new", "--epsilon", "-1"], "--epsilon -1.0: expected a positive finite number"),
        (["create", "new", "--epsilon", "1", "--delta", "2"], "--delta 2.0: expected a number in (0, 1)"),
        (["create", "new", "--epsilon", "1", "--name", "a\nb"], "--name a b: expected a text"),
        (["create", "new", "--epsilon", "1", "--adjacency", "x"], "--adjacency x: expected one of add-or-remove"),
        (["create", "no/new", "--epsilon", "1"], "a file in a folder that exists"),
        (["show", "nothing"], "FILE {folder}/nothing: expected an account, as `plrvo budget create` writes it"),
        (["settle", "FILE", "7"], "ENTRY 7: expected the number of an entry: there are 0"),
        (["settle", "FILE", "x"], "ENTRY x: expected a whole number"),
        (["sho", "FILE"], "sho: no such command; did you mean show?"),
    ],
)
def test_bad_input_is_one_line(tmp_path, monkeypatch, capsys, arguments, line):
    made = account(tmp_path)
    monkeypatch.chdir(tmp_path)
    given = [str(made.path) if word == "FILE" else word for word in arguments]
    assert main(["budget", *given]) == 2
    err = capsys.readouterr().err
    assert len(err.splitlines()) == 1
    assert line.format(file=made.path, folder=tmp_path) in err
