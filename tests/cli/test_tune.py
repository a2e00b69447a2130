"""`plrvo tune`, as it is typed; killed and resumed in processes of its own."""

import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest

from plrvo.cli.main import main

SMALL = ["digits", "--epsilon", "3", "--sample-rate", "1", "--steps", "3", "--noise", "gaussian", "--model", "logistic"]
VARY = ["--vary", "lr=0.5,2"]


def test_a_search_says_what_it_cost_and_not_how_many_trials_there_were(tmp_path, capsys):
    out = str(tmp_path / "out")
    assert main(["tune", *SMALL, *VARY, "--trials-mean", "2", "--seed", "1", "--out", out, "--json"]) == 0
    told, warned = capsys.readouterr()
    found = json.loads(told)
    assert found["epsilon_lower"] < found["epsilon_certified"] <= 3
    assert found["settings"]["learning_rate"] in (0.5, 2.0)
    one, search, two, many = (row["epsilon"] for row in found["costs"])
    assert one < search == pytest.approx(found["epsilon_certified"])
    assert search < two < many
    assert found["seeded"]
    assert "NOT PRIVATE" in warned
    assert main(["verify", out]) == 0
    assert "of a whole search: the best of 2 trials on average" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (VARY, "--epsilon (missing)"),
        (["--epsilon", "3"], "--vary (missing)"),
        (["--epsilon", "3", *VARY, "--lr", "1"], "--lr 1.0: expected no value beside --vary"),
        (["--epsilon", "3", "--vary", "size=3"], "--vary size=3"),
        (["--epsilon", "3", "--vary", "clip=0.1:1"], "expected a list for clip"),
        (["--epsilon", "3", *VARY, "--eta", "2"], "--distribution tnb beside it"),
        (["--epsilon", "3", *VARY, "--trials-mean", "1"], "--trials-mean 1.0"),
        (["--epsilon", "3", *VARY, "--resume"], "beside --resume"),
        (["--epsilon", "3", "--vary", "optimizer=sgdd"], "--optimizer sgdd"),
        (["--epsilon", "3", *VARY, "--delta", "0.01"], "--delta 0.01"),
        (["--epsilon", "3", *VARY, "--budget", "none.budget"], "none.budget"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(tmp_path, capsys, arguments, line):
    out = tmp_path / "out"
    assert main(["tune", "digits", "--sample-rate", "1", "--steps", "2", *arguments, "--out", str(out)]) == 2
    told = capsys.readouterr()
    assert line in told.err
    assert told.err.count("\n") == 1
    assert not out.exists() or not list(out.iterdir())


@pytest.mark.parametrize("words", [["--keep-trials"], ["--held-out", "0.5"], ["--trials-mean", "3"], ["--grid"]])
def test_what_a_search_began_with_is_not_changed_on_resume(tmp_path, capsys, words):
    assert main(["tune", "--resume", "--out", str(tmp_path), *words]) == 2
    assert re.match(rf"plrvo: {words[0]} \S+: expected no value beside --resume", capsys.readouterr().err)


def test_resume_of_nothing_is_refused(tmp_path, capsys):
    assert main(["tune", "--resume", "--out", str(tmp_path)]) == 2
    assert "has not ended" in capsys.readouterr().err


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGKILL")
def test_a_search_that_is_killed_goes_on_with_the_same_trials(tmp_path, capsys):
    """Many trials, killed after the first is done; what was drawn and done before is the same afterwards."""
    out = tmp_path / "out"
    command = [
        sys.executable,
        "-m",
        "plrvo",
        "tune",
        *SMALL,
        *VARY,
        "--trials-mean",
        "3",
        "--seed",
        "18",
        "--out",
        str(out),
    ]
    running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ})
    secret = out / ".search"
    until = time.monotonic() + 120
    while not list(secret.glob("done-*.json")) and time.monotonic() < until and running.poll() is None:
        time.sleep(0.01)
    running.send_signal(signal.SIGKILL)
    running.wait()
    state = json.loads((secret / "state.json").read_text())
    assert len(state["trials"]) > 2  # by the seed: or there would be nothing to resume
    done = {path.name: path.stat().st_mtime_ns for path in secret.glob("done-*.json")}
    assert 1 <= len(done) < len(state["trials"])
    assert not (out / "receipt.json").exists()

    from plrvo.tasks.tuning import run as going_on
    from plrvo.tasks.tuning.trial import run_trial

    repeated = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(going_on, "run_trial", lambda f, n, kept=None: (repeated.append(n), run_trial(f, n, kept))[1])
        assert main(["tune", "--resume", "--out", str(out)]) == 0
    assert sorted(repeated) == sorted({*range(len(state["trials"]))} - {int(name[5:9]) for name in done})
    assert not secret.exists()
    capsys.readouterr()
    assert main(["verify", str(out)]) == 0
