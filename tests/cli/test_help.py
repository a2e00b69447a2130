"""Help is plain text that fits, names every option once, and has examples that can be copied."""

import re
import shlex
import subprocess

import pytest
import typer

from plrvo.cli.help import choices_of, commands, continued, describe, kind_of
from plrvo.cli.main import app, main

COMMANDS = dict(commands(typer.main.get_command(app), "plrvo"))
ENDS = [path for path, command in COMMANDS.items() if not hasattr(command, "commands")]


def rows_of(path):
    return [row for rows in describe(COMMANDS[path], path).groups.values() for row in rows]


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


@pytest.mark.parametrize("path", ENDS)
def test_a_list_of_choices_cannot_be_read_as_the_end_of_another_sentence(path):
    command = COMMANDS[path]
    for row in rows_of(path):
        assert not re.search(r": (\w[\w-]*, )+\w[\w-]*\.( \[|$)", row.text.replace("One of: ", "")), row
    for parameter in command.params:
        text = " ".join(row.text for row in rows_of(path) if parameter.opts[0] in row.typed)
        assert all(choice in text for choice in choices_of(kind_of(command, parameter)))


@pytest.mark.parametrize("path", ENDS)
def test_no_option_is_explained_by_one_that_the_command_lacks(path):
    rows = rows_of(path)
    known = {word for row in rows for word in re.findall(r"--[a-z][\w-]*", row.typed)}
    named = {word for row in rows for word in re.findall(r"(?<![\w`])--[a-z][\w-]*", re.sub(r"`.*?`", "", row.text))}
    assert named <= known
    assert "theta" not in " ".join(row.text for row in rows if "--theta" not in known)


def test_arguments_in_brackets_may_be_left_out():
    usages = {path: describe(COMMANDS[path], path).usage for path in ENDS}
    assert usages["plrvo verify"] == "plrvo verify RECEIPT [OPTIONS]"
    assert usages["plrvo report"] == "plrvo report [RUN]... [OPTIONS]"  # or --budget
    assert usages["plrvo train"] == "plrvo train [TASK] [OPTIONS]"  # or --resume
    assert usages["plrvo budget settle"] == "plrvo budget settle FILE ENTRY [OPTIONS]"
