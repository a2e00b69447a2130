"""Whatever escapes from a command ends in one line."""

import tomllib
from pathlib import Path

import pytest

from plrvo.cli import account as command
from plrvo.cli.main import _EXTRAS, main

ACCOUNT = ["account", "--noise", "laplace", "--scale", "2", "--clip", "1", "--sample-rate", "0.1", "--steps", "3"]


@pytest.mark.parametrize("error", [OverflowError, ZeroDivisionError, FloatingPointError, RecursionError, MemoryError])
def test_an_error_of_arithmetic_that_escapes_is_one_line(error, monkeypatch, capsys):
    def escape(*_, **__):
        raise error("too large")

    monkeypatch.setattr(command, "read_workload", escape)
    assert main([*ACCOUNT, "--dimension", "5"]) == 2
    assert capsys.readouterr().err.splitlines() == [
        f"plrvo: account: a value is out of range ({error.__name__}('too large'))"
    ]


def test_the_extras_that_errors_name_exist():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert set(_EXTRAS) <= set(project["optional-dependencies"])


@pytest.mark.parametrize("arguments", [[], ["audit"]], ids=["plrvo", "audit"])
def test_no_command_shows_which_there_are(arguments, capsys):
    assert main(arguments) == 2
    assert "Commands:" in capsys.readouterr().err
