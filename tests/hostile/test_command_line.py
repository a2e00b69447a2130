"""Whatever is typed: exit code 0, 1 or 2, and for 2 one line that says what is wrong."""

import hypothesis
import pytest
import typer
from hypothesis import strategies as st
from tests.patience import within

from plrvo.cli.main import app, main

WORDS = ["", "x", "0", "1", "-1", "2", "0.5", "1e-5", "1e400", "-inf", "nan", "1e-320", "999999999999999999999", "0x10"]
WORDS += ["é", "\ud800", "%s", "--json", "-", "a" * 300, "gaussian", "laplace", "gamma", "none", "one-hot", "certified"]
# What a command needs so that nothing it accepts takes long.
SMALL = {
    "account": ["--steps", "3", "--dimension", "5", "--noise", "laplace", "--scale", "2", "--clip", "1"],
    "calibrate": ["--steps", "3", "--dimension", "5", "--noise", "laplace", "--clip", "1", "--epsilon", "2"],
    "audit mechanism": ["--steps", "2", "--dimension", "3", "--noise", "laplace", "--scale", "2", "--trials", "4000"],
    "audit clipbkd": ["--data-dir", "no-such-folder"],
    "train": ["digits", "--model", "logistic", "--steps", "2", "--clip", "1"],
    "verify": [],
}
SLOW = {"--steps", "--trials", "--jobs", "--models", "--state", "--plot", "--out", "--dimension", "--coordinates"}


def options_of(command: str) -> list[str]:
    found = typer.main.get_command(app)
    for word in command.split():
        found = found.commands[word]
    return sorted({name for parameter in found.params for name in parameter.opts if name.startswith("--")} - SLOW)


@pytest.mark.parametrize("command", SMALL)
def test_any_words_end_in_an_answer_or_in_one_line(command, tmp_path_factory, capfd, monkeypatch):
    monkeypatch.chdir(tmp_path_factory.mktemp("here"))
    monkeypatch.setenv("PLRVO_OFFLINE", "1")
    monkeypatch.delenv("PLRVO_DATA", raising=False)
    known = options_of(command)
    pairs = st.tuples(
        st.sampled_from([*known, "--no-such-option"]), st.one_of(st.sampled_from(WORDS), st.text(max_size=5))
    )
    numbers = st.integers(0, 10**9)

    @hypothesis.settings(
        max_examples=25, deadline=None, derandomize=True, suppress_health_check=list(hypothesis.HealthCheck)
    )
    @hypothesis.given(st.lists(pairs, max_size=3), st.sets(st.integers(0, 8), max_size=2), numbers)
    def check(extra, dropped, number):
        base = [word for i, word in enumerate(SMALL[command]) if i not in dropped]
        words = [*command.split(), *base, *(word for pair in extra for word in pair)]
        if command == "train":
            words += ["--out", f"run-{number}"]
        capfd.readouterr()
        with within(60):
            code = main(words)
        captured = capfd.readouterr()
        assert code in (0, 1, 2), words
        assert "Traceback" not in captured.err
        if code == 2:
            lines = [line for line in captured.err.splitlines() if line.startswith("plrvo:")]
            assert len([line for line in lines if "warning:" not in line]) == 1, (words, captured.err)

    check()
