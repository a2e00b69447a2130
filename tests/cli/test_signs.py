"""Signs of life: plain lines in a log, none on a terminal, none where nothing takes long."""

import io
import json
import logging
import time

import pytest

from plrvo.cli import signs
from plrvo.cli.main import main
from plrvo.cli.signs import Signs

LOG = logging.getLogger("plrvo.anything")


class Terminal(io.StringIO):
    def isatty(self):
        return True


def lines_of(stream, count, patience=20.0):
    """The lines, once there are so many of them."""
    until = time.monotonic() + patience
    while stream.getvalue().count("\n") < count and time.monotonic() < until:
        time.sleep(0.01)
    return stream.getvalue().splitlines()


def test_work_is_told_when_it_has_begun_and_while_it_goes_on():
    stream = io.StringIO()
    with Signs("e2e", stream, every=0.2, after=0.01):
        LOG.debug("%d of %d texts written", 0, 64)
        first = lines_of(stream, 1)
        LOG.debug("%d of %d texts written", 32, 64)
        later = lines_of(stream, 2)
        LOG.debug("scoring")
        last = lines_of(stream, 3)
    assert first == ["plrvo: e2e: 0 of 64 texts written (0 s)"]
    assert later[1].startswith("plrvo: e2e: 32 of 64 texts written (")
    assert any(line.startswith("plrvo: e2e: scoring (") for line in last)


def test_work_that_takes_turns_is_told_no_more_often_than_work_of_one_kind():
    stream = io.StringIO()
    with Signs("study", stream, every=0.3, after=0.01):
        begun = time.monotonic()
        for step in range(40):  # two kinds of lines for every step, as a row that is trained has them
            LOG.debug("row %d of %d: step %d", 1, 2, step)
            time.sleep(0.02)
            LOG.debug("%d of %d steps taken", step, 40)
            time.sleep(0.02)
        passed = time.monotonic() - begun
    lines = stream.getvalue().splitlines()
    assert {line.split(": ")[2][:3] for line in lines[:2]} == {"row", "0 o"}
    assert 3 <= len(lines) <= 2 + passed / 0.3 + 1


def test_what_takes_no_time_leaves_no_line_and_nothing_behind():
    stream, before = io.StringIO(), (logging.getLogger("plrvo").level, list(logging.getLogger("plrvo").handlers))
    with Signs("digits", stream):
        LOG.debug("loading")
    assert stream.getvalue() == ""
    assert (logging.getLogger("plrvo").level, logging.getLogger("plrvo").handlers) == before


def test_a_terminal_has_a_bar_in_their_place():
    stream = Terminal()
    with Signs("digits", stream, every=0.01, after=0.01):
        LOG.debug("loading")
        time.sleep(0.1)
    assert stream.getvalue() == ""


def test_what_is_logged_cannot_write_to_the_terminal():
    stream = io.StringIO()
    with Signs("x", stream, after=0.01):
        LOG.debug("a\x1b[2Kb\nc")
        (line,) = lines_of(stream, 1)
    assert "\\x1b[2Kb\\nc" in line


@pytest.mark.parametrize("more", [[], ["--json"]])
def test_a_run_in_a_log_shows_what_it_does_on_stderr_alone(more, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(signs.Signs.__init__, "__defaults__", (None, 0.05, 0.01, ""))
    run = ["train", "digits", "--model", "logistic", "--epsilon", "3", "--steps", "60", "--out", str(tmp_path)]
    assert main([*run, *more]) == 0
    said = capsys.readouterr()
    assert " of 60 steps taken (" in said.err
    assert "plrvo: digits: " not in said.out
    assert "DEBUG" not in said.err
    if more:
        assert json.loads(said.out)["steps"] == 60


def test_a_run_says_how_many_examples_a_second_it_trained_on(tmp_path, capsys):
    run = ["train", "digits", "--model", "logistic", "--epsilon", "3", "--steps", "4", "--out"]
    assert main([*run, str(tmp_path / "a")]) == 0
    assert "examples a second were trained on (`plrvo design --speed`)" in capsys.readouterr().err
    assert main([*run, str(tmp_path / "b"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["examples_per_second"] > 0
    assert main(["train", "--resume", "--out", str(tmp_path / "a"), "--json"]) == 0  # took no step
    assert "examples_per_second" not in json.loads(capsys.readouterr().out)
