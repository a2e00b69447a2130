"""What is wrong with the words of a command that trains is told before torch is imported."""

import json
import subprocess
import sys

import pytest

from plrvo.records.folder import CHECKPOINT, RECEIPT
from plrvo.tasks import settings
from plrvo.tasks.choices import OPTIMIZERS

# One process for all of them: to import the light part takes a second each time.
_SCRIPT = """
import contextlib, io, json, sys
from plrvo.cli.main import main

def told(words):
    before = set(sys.modules)
    with contextlib.redirect_stderr(io.StringIO()) as said:
        code = main(words)
    return code, said.getvalue(), sorted({"torch", "opacus", "transformers"} & (set(sys.modules) - before))

print(json.dumps([told(words) for words in json.loads(sys.argv[1])]))
"""
TRAIN = ["train", "digits", "--epsilon", "3"]
TUNE = ["tune", "digits", "--epsilon", "3", "--vary", "lr=0.5,2"]
ONE_RUN = ["audit", "one-run", "digits", "--epsilon", "3"]
MISTAKES = [
    ([*TRAIN, "--lr", "nan"], "--lr nan: expected above 0"),
    ([*TRAIN, "--momentum", "1"], "--momentum 1.0: expected at least 0 and below 1"),
    ([*TRAIN, "--clip", "1e-21"], "--clip 1e-21: expected at least 1e-20"),
    ([*TRAIN, "--sample-rate", "1e-40"], "--sample-rate 1e-40: expected at least 1e-30"),
    (["train", "digits", "--epsilon", "-3"], "--epsilon -3.0: expected a positive finite number"),
    (["train", "digits"], "--epsilon (missing)"),
    (["train", "dgits", "--epsilon", "3"], "did you mean digits?"),
    ([*TRAIN, "--noise", "cauchy"], "--noise cauchy: expected one of"),
    ([*TRAIN, "--model", "cnn-nrom"], "--model cnn-nrom: expected one of cnn, cnn-tanh"),
    ([*TRAIN, "--model", "cnn:x"], "--model cnn:x: expected one of"),
    ([*TRAIN, "--optimizer", "adm"], "--optimizer adm: expected one of sgd, adam, adamw; did you mean adam?"),
    ([*TRAIN, "--schedule", "cos"], "--schedule cos: expected one of"),
    ([*TRAIN, "--postprocess", "median"], "--postprocess median: expected score, clamp"),
    ([*TRAIN, "--grad-sample-mode", "ghosts"], "--grad-sample-mode ghosts: expected one of auto"),
    ([*TRAIN, "--grad-sample-mode", "alone"], "--grad-sample-mode alone: expected another mode"),
    ([*TRAIN, "--exact", "--grad-sample-mode", "ghost"], "--grad-sample-mode ghost: expected hooks"),
    ([*TRAIN, "--trainable", "head"], "--trainable head: expected no value for digits"),
    ([*TRAIN, "--views", "10"], "--views 10: expected at most 9"),
    ([*TRAIN, "--correlation", "banded:x", "--epochs", "2"], "--correlation banded:x: expected identity"),
    ([*TRAIN, "--correlation", "banded:²", "--epochs", "2"], "--correlation banded:²: expected identity"),
    ([*TRAIN, "--correlation", "tree"], "--epochs (missing)"),
    ([*TRAIN, "--delta", "0.01"], "--delta 0.01: expected less than 1/N = 0.000693"),
    (["train", "e2e", "--epsilon", "3", "--delta", "0.01"], "--delta 0.01: expected less than 1/N = 2.38e-05"),
    (["train", "sst2", "--epsilon", "3", "--delta", "0.01"], "--delta 0.01: expected less than 1/N = 1.48e-05"),
    (["train", "sst2", "--epsilon", "3", "--momentum", "0.5"], "--momentum 0.5: expected no value beside --optimizer"),
    (["train", "sst2", "--epsilon", "3", "--momentum", "0.9"], "--momentum 0.9: expected no value beside --optimizer"),
    ([*TRAIN, "--optimizer", "adamw", "--momentum", "0.9"], "--momentum 0.9: expected no value beside --optimizer"),
    ([*TUNE, "--optimizer", "adam", "--vary", "momentum=0.5,0.9"], "--momentum 0.5: expected no value beside"),
    ([*TUNE, "--optimizer", "adam", "--vary", "momentum=0.9"], "--momentum 0.9: expected no value beside"),
    ([*TUNE, "--delta", "0.01"], "--delta 0.01: expected less than 1/N"),
    ([*TRAIN, "--audit", "100", "--delta", "0.5"], "--audit 100: expected more of them"),
    (["train", "sst2", "--epsilon", "3", "--trainable", "tail"], "--trainable tail: expected one of all"),
    (["train", "sst2", "--epsilon", "3", "--data", "x"], "--data x: expected hf:NAME"),
    (["train", "sst2", "--epsilon", "3", "--max-length", "3"], "--max-length 3: expected at least 4"),
    (["train", "e2e", "--epsilon", "3", "--top-p", "0.9", "--beams", "2"], "--beams 2: expected 1 beside --top-p"),
    ([*TRAIN, "--out", "a-file/below"], "--out a-file/below: expected a place where you can write (Not a directory)"),
    ([*TUNE, "--out", "a-file/below"], "--out a-file/below: expected a place where you can write"),
    ([*ONE_RUN, "--plot", "a-file/x.png"], "--plot a-file/x.png: expected a place where you can write"),
    (["report", "held", "--out", "a-file/x.html"], "--out a-file/x.html: expected a place where you can write"),
    (["reproduce", "figure-snr", "--out", "a-file/x"], "--out a-file/x: expected a place where you can write"),
    (["design", "--epsilon", "1", "--save", "a-file/x.json"], "--save a-file/x.json: expected a place where you can"),
    ([*TRAIN, "--out", "held"], "--out held: expected a new folder"),
    ([*TRAIN, "--out", "a-file"], "--out a-file: expected a folder"),
    (["train", "--resume", "--out", "nothing"], "--resume nothing: expected a folder that holds checkpoint"),
    ([*TRAIN, "--resume", "--out", "begun", "--lr", "0.7"], "--lr 0.7: expected no value, as in the run that"),
    (["train", "--resume", "--out", "begun", "--steps", "9"], "--steps 9: expected 5, as in the run that"),
    (["train", "mnist", "--resume", "--out", "begun"], "TASK mnist: expected digits, as in the run that"),
    (["train", "--resume", "--out", "begun", "--budget", "x"], "x: expected no value: the run began without"),
    ([*TRAIN, "--budget", "none.budget"], "none.budget: expected an account"),
    (["train", "digits", "--plan", "none.json"], "none.json"),
    ([*TUNE, "--momentum", "nan"], "--momentum nan"),
    ([*TUNE, "--jobs", "0"], "--jobs 0: expected a whole number of at least 1"),
    ([*TUNE, "--vary", "optimizer=sgdd"], "--optimizer sgdd: expected one of"),
    ([*TUNE, "--vary", "clip=1e-21,1"], "--clip 1e-21"),
    ([*TUNE, "--model", "foo"], "--model foo"),
    ([*TUNE, "--out", "held"], "--out held: expected a new folder"),
    (["tune", "--resume", "--out", "nothing"], "expected a folder that holds a search which has not ended"),
    ([*TUNE, "--budget", "none.budget"], "none.budget: expected an account"),
    ([*ONE_RUN, "--lr", "nan"], "--lr nan"),
    ([*ONE_RUN, "--model", "foo"], "--model foo"),
    ([*ONE_RUN, "--canaries", "0"], "--canaries 0"),
    ([*ONE_RUN, "--confidence", "2"], "--confidence 2.0: expected a number in (0, 1)"),
    (["audit", "one-run", "dgits", "--epsilon", "3"], "did you mean digits?"),
    (["audit", "one-run", "--receipt", "none.json"], "--receipt none.json"),
]


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    """What each of them comes to: exit code, stderr, and what it imported; and what was written."""
    folder = tmp_path_factory.mktemp("here")
    (folder / "held").mkdir()
    (folder / "held" / RECEIPT).touch()
    (folder / "a-file").touch()
    (folder / "begun").mkdir()
    record = json.dumps({"extra": {"job": {"task": "digits", "noise": "auto", "epsilon": 3.0, "steps": 5}}})
    header = json.dumps({"__metadata__": {"record": record}}).encode()
    (folder / "begun" / CHECKPOINT).write_bytes(len(header).to_bytes(8, "little") + header)
    before = sorted(folder.rglob("*"))
    asked = json.dumps([words for words, _ in MISTAKES])
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT, asked], cwd=folder, capture_output=True, text=True, check=True
    )
    assert sorted(folder.rglob("*")) == before
    return {" ".join(words): told for (words, _), told in zip(MISTAKES, json.loads(done.stdout), strict=True)}


@pytest.mark.parametrize(("words", "line"), [(" ".join(words), line) for words, line in MISTAKES])
def test_a_mistake_is_told_without_torch(words, line, answers):
    code, said, imported = answers[words]
    assert line in said
    assert (code, said.count("\n")) == (2, 1)
    assert not imported


def test_the_optimizers_are_those_that_there_are():
    assert tuple(settings.OPTIMIZERS) == OPTIMIZERS
