"""Help and mistakes are answered from a table, without what the commands themselves need."""

import subprocess
import sys

import pytest
import typer

from plrvo.cli.help import commands, sentence, summaries
from plrvo.cli.listed import COMMANDS
from plrvo.cli.main import app, main

GROUPS = {path: found for path, found in commands(typer.main.get_command(app), "plrvo") if hasattr(found, "commands")}
_HEAVY = "{'numpy', 'scipy', 'torch', 'rich', 'cryptography'}"


@pytest.mark.parametrize("path", GROUPS)
def test_the_table_says_what_the_commands_say(path):
    assert summaries(GROUPS[path]) == {name: sentence(found.help) for name, found in GROUPS[path].commands.items()}


def test_the_table_has_the_names_that_the_commands_have():
    assert set(GROUPS) == {"plrvo", "plrvo audit", "plrvo budget"}
    for group in GROUPS.values():
        assert {name: found.name for name, found in group.commands.items()} == {name: name for name in group.commands}
    assert [*GROUPS["plrvo"].commands] == [*COMMANDS]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--help"], 0),
        (["--version"], 0),
        ([], 2),
        (["audit", "--help"], 0),
        (["budget", "--help"], 0),
        (["acount"], 2),
        (["audit", "onerun"], 2),
        (["--verson"], 2),
    ],
    ids=str,
)
def test_no_part_of_a_computation_is_imported(words, code):
    script = f"import sys; from plrvo.cli.main import main; code = main({words}); found = {_HEAVY} & set(sys.modules); "
    done = subprocess.run(
        [sys.executable, "-c", script + "sys.exit(f'imported {found}' if found else code)"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "imported" not in done.stderr
    assert done.returncode == code, done.stderr


@pytest.mark.parametrize(("typed", "meant"), [(["acount"], "account"), (["budget", "histroy"], "history")])
def test_a_mistyped_command_is_guessed(typed, meant, capsys):
    assert main(typed) == 2
    assert capsys.readouterr().err == f"plrvo: {typed[-1]}: no such command; did you mean {meant}?\n"


def test_a_command_is_not_looked_into_to_see_whether_it_is_there(monkeypatch):
    group = typer.main.get_command(app)
    monkeypatch.setattr("plrvo.cli.lazy.import_module", lambda name: pytest.fail(f"imports {name}"))
    assert "train" in group.commands
    assert "trian" not in group.commands
    assert group.list_commands(None) == [*COMMANDS]
