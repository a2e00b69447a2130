"""Whatever escapes from a command ends in one line."""

import os
import subprocess
import sys
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


RECEIPT = str(Path(__file__).parents[1] / "records" / "first_receipts" / "corr" / "receipt.json")
UNREAD = {
    "verify": ["verify", RECEIPT],
    "verify --json": ["verify", RECEIPT, "--json"],
    "account": [*ACCOUNT, "--dimension", "5"],
    "account --json": [*ACCOUNT, "--dimension", "5", "--json"],
    "help": ["account", "--help"],
    "version": ["--version"],
}


def into_closed_pipe(arguments, stream, *options):
    """The exit code where nobody reads one of the streams, and what the other has."""
    reading, writing = os.pipe()
    os.close(reading)
    other = "stderr" if stream == "stdout" else "stdout"
    try:
        command = [sys.executable, *options, "-m", "plrvo", *arguments]
        done = subprocess.run(command, **{stream: writing, other: subprocess.PIPE}, check=False, text=True)
    finally:
        os.close(writing)
    return done.returncode, getattr(done, other)


@pytest.mark.parametrize("options", [(), ("-u",)], ids=["buffered", "line by line"])
@pytest.mark.parametrize("name", UNREAD)
def test_an_answer_that_nobody_reads_is_not_a_no(name, options):
    assert into_closed_pipe(UNREAD[name], "stdout", *options) == (141, "")


def test_a_mistake_that_nobody_reads_is_no_traceback():
    assert into_closed_pipe(["account", "--noise", "lapalce"], "stderr") == (141, "")


@pytest.mark.skipif(os.name != "posix", reason="of a shell that closes a stream")
@pytest.mark.parametrize(("words", "code"), [(UNREAD["account"], 0), (["verify", RECEIPT], 0), (["account"], 2)])
def test_a_closed_stream_changes_no_exit_code(words, code):
    """Another program may have closed it, as `>&-` does."""
    closed = ["sh", "-c", 'exec "$@" >&-', "sh", sys.executable, "-m", "plrvo", *words]
    done = subprocess.run(closed, stderr=subprocess.PIPE, check=False, text=True)
    assert done.returncode == code
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
@pytest.mark.parametrize("words", [UNREAD["account"], UNREAD["version"]])
def test_an_answer_that_has_no_room_is_bad_output(words):
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([sys.executable, "-m", "plrvo", *words], stdout=full, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (2, "plrvo: standard output: No space left on device\n")


def test_a_command_that_is_stopped_says_so(monkeypatch, capsys):
    def stopped(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("plrvo.cli.account.epsilon", stopped)
    assert main(UNREAD["account"]) == 130
    assert capsys.readouterr().err == "plrvo: stopped\n"


def test_an_end_of_another_kind_is_passed_on(monkeypatch):
    def end(*_, **__):
        raise SystemExit(7)

    monkeypatch.setattr(command, "read_workload", end)
    with pytest.raises(SystemExit, match="7"):
        main([*ACCOUNT, "--dimension", "5"])
