"""Help is plain text that fits, names every option once, and has examples that can be copied."""

import re
import shlex
import subprocess

import pytest
import typer

from plrvo.cli.help import commands, continued, describe
from plrvo.cli.main import app, main

COMMANDS = dict(commands(typer.main.get_command(app), "plrvo"))


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("path", COMMANDS)
def test_it_fits_and_names_every_option(path, width, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", str(width))
    assert main([*path.split()[1:], "--help"]) == 0
    told = capsys.readouterr().out
    assert max(map(len, told.splitlines())) <= width
    assert not re.search(r"<\w+>|\[bold|[\U0001f000-\U0001ffff]", told)
    for parameter in COMMANDS[path].params:
        for name in parameter.opts:
            assert name.startswith("-") is False or re.search(
                rf"^  (-v, |--\w+, )?{name}\b|, {name}\b", told, re.MULTILINE
            )


@pytest.mark.parametrize("path", COMMANDS)
def test_the_example_has_options_that_there_are(path):
    example = describe(COMMANDS[path], path).example
    if example is None:
        assert hasattr(COMMANDS[path], "commands")
        return
    known = {name for parameter in COMMANDS[path].params for name in parameter.opts}
    assert example.startswith(f"{path} ")
    assert {word for word in shlex.split(example) if word.startswith("--")} <= known


def test_a_long_example_is_one_command_to_a_shell():
    command = "echo a --first 1 --second 2 --third 3"
    shown = continued(command, 24)
    assert shown.count("\\\n") == 2
    said = subprocess.run(["sh", "-c", shown], capture_output=True, text=True, check=True).stdout
    assert said.split() == command.split()[1:]


def test_both_words_of_a_switch_are_shown_and_which_is_the_default():
    told = " ".join(describe(COMMANDS["plrvo explore"], "plrvo explore").text(100).split())
    assert "--browser/--no-browser Open it in the browser. [--browser]" in told
    told = " ".join(describe(COMMANDS["plrvo tune"], "plrvo tune").text(100).split())
    assert "--grid/--random" in told
    assert "[--random]" in told


def test_help_has_no_word_about_options_of_other_commands():
    for path in ("plrvo account", "plrvo selftest"):
        assert "--epsilon" not in describe(COMMANDS[path], path).text(100)


def test_choices_and_defaults_are_shown():
    told = " ".join(describe(COMMANDS["plrvo train"], "plrvo train").text(100).split())
    assert "auto, gaussian, laplace, gamma, generalised-gaussian, none." in told
    assert "[runs/latest]" in told
    assert "banded:B:cyclic" in told
    assert "--seed" not in describe(COMMANDS["plrvo train"], "plrvo train").example
