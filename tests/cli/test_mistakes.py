"""A hundred bad invocations: exit code 2, one line that names the argument, no traceback, and nothing written."""

import re
import shlex

import pytest

from plrvo.cli.main import main

WORK = "--sample-rate 0.01 --steps 300"
LAPLACE = f"account --noise laplace --clip 1 --dimension 10 {WORK}"
GAUSSIAN = f"account {WORK}"
TRAIN = "train digits --epsilon 3"
DESIGN = f"design --epsilon 1 --dimension 100 {WORK}"
MECHANISM = "audit mechanism --noise laplace --scale 2 --clip 1 --dimension 3 --sample-rate 0.5 --steps 2"

# What is typed, and what the line has to name.
INVOCATIONS = """
account | --noise (missing)
account | --sample-rate, --steps (missing as well); for example: plrvo account --noise-multiplier 1.1
account --noise laplace | --scale (missing); --clip, --sample-rate, --steps, --dimension (missing as well)
calibrate | --epsilon (missing): expected a value: it is required, and so are --sample-rate, --steps; for example: plrvo
account --noise-multiplier 1 --sample-rate 1% --steps 3 | --sample-rate 1%: expected a number; did you mean 0.01?
account --epsilon 3 | did you mean plrvo calibrate --epsilon? (it finds the noise for a budget)
account --target-epsilon 3 | did you mean plrvo calibrate --epsilon
account --noise-multiplier 1 --sample-rate 256/x --steps 3 | --sample-rate 256/x: expected a number
account --noise-multiplier 1 --sample-rate 256/0 --steps 3 | --sample-rate 256/0: expected a number
account --noise-multiplier 1 --sample-rate 3/2 --steps 3 | --sample-rate 1.5
{TRAIN} --sample-rate a/b | --sample-rate a/b: expected a number
account --sigma 1.1 | did you mean --noise-multiplier
account --noise-multiplier 1 --batch-size 256 | did you mean --sample-rate? (the sample rate is batch size / examples)
account --noise-multiplier 1 --epochs 3 | did you mean --steps? (steps are epochs / sample rate)
train mydata.csv --epsilon 1 | your own data: plrvo.PrivacyEngine (docs: training)
account --noise-multiplier | --noise-multiplier (missing): expected
account --noise-multiplier x | --noise-multiplier x: expected a number
{GAUSSIAN} | --noise (missing)
{GAUSSIAN} --noise-multiplier 0 | --noise-multiplier 0.0
{GAUSSIAN} --noise-multiplier 1_1 | --noise-multiplier 1_1: expected a number in plain digits
account --noise-multiplier 1 --sample-rate 0_1 --steps 3 | --sample-rate 0_1: expected a number
account --noise-multiplier 1 --sample-rate 0.1 --steps=3_0 | --steps 3_0: expected a number in plain digits
calibrate --epsilon 1 --noise gamma --k 1e300 --clip 1 --dimension 9 {WORK} | --k 1e+300: expected another value
tune digits --epsilon 3 --vary lr=1_0:100 | --vary lr=1_0:100: expected numbers
{TRAIN_TINY} | --epsilon 1e-09: expected at least 1e-06 to compare noises
audit clipbkd --epsilon 1 --noise laplace --models 0 | --models 0: expected a whole number of at least 1
{MECHANISM} --claim 1_0 | --claim 1_0: expected
{DESIGN} --save . | --save .: expected the name of a file; this is a folder
design --epsilon 1 --dimension 9 --minutes 1e300 --speed 1000 --dataset-size 60000 | --minutes 1e+300: expected fewer
{GAUSSIAN} --noise-multiplier nan | --noise-multiplier nan
{GAUSSIAN} --noise-multiplier inf | --noise-multiplier inf
{GAUSSIAN} --noise-multiplier -1 | --noise-multiplier -1.0
{GAUSSIAN} --noise-multiplier 1 --k 3 | --noise
{GAUSSIAN} --noise-multiplier 1 --delta 0 | --delta 0.0
{GAUSSIAN} --noise-multiplier 1 --delta 2 | --delta 2.0
{GAUSSIAN} --noise-multiplier 1 --clip 0 | --clip 0.0
{GAUSSIAN} --noise-multiplier 1 --dimension 0 | --dimension 0
{GAUSSIAN} --noise-multiplier 1 --dimension 1.5 | --dimension 1.5: expected a whole number
{GAUSSIAN} --noise-multiplier 1 --table --tight | --tight
{GAUSSIAN} --noise-multiplier 1 extra | extra: expected no more words
{GAUSSIAN} --noise-multiplier 1 --json=3 | --json: expected no value
account --noise-multiplier 1 --sample-rate 2 --steps 3 | --sample-rate 2.0
account --noise-multiplier 1 --sample-rate -1 --steps 3 | --sample-rate -1.0
account --noise-multiplier 1 --sample-rate 0.1 --steps -3 | --steps -3
account --noise-multiplier 1 --sample-rate 0.1 --steps 1e3 | --steps 1e3: expected a whole number; did you mean 1000?
account --noise-multiplier 1 --sample-rate 0.1 --steps 1e999 | --steps 1e999: expected a whole number
account --noise cauchy | --noise cauchy: expected one of gaussian, laplace
account --noise gausian | did you mean gaussian
account --noise auto {WORK} | --noise
account --noise gamma --k 10 --theta 1 {WORK} --dimension 5 | --clip
account --noise gamma --k 10 --theta 1 {WORK} --clip 1 | --dimension
account --noise gamma --k 10 --theta 1e308 {WORK} --clip 1e308 --dimension 5 | --theta 1e+308
account --noise-file no.json {WORK} --clip 1 --dimension 5 | no.json
{LAPLACE} | --scale (missing)
{LAPLACE} --scale 1e308 --clip 1e-300 | --clip 1e-300
{LAPLACE} --scale -2 | --scale -2.0
{LAPLACE} --scale 1 --shape 2 | --shape 2.0
calibrate --noise gaussian --eps 2 | did you mean --epsilon
{LAPLACE} --scale 1 --jsn | did you mean --json
calibrate --noise gaussian {WORK} | --epsilon
calibrate --noise gaussian --epsilon 0 {WORK} | --epsilon 0.0
calibrate --noise gaussian --epsilon inf {WORK} | --epsilon inf
calibrate --noise gaussian --epsilon nan {WORK} | --epsilon nan
calibrate --epsilon 1 {WORK} --k 3 | --clip
calibrate --epsilon 1 {WORK} --noise auto | --noise auto
calibrate --noise laplace --epsilon 1 {WORK} | --clip
calibrate --noise gaussian --epsilon 1 --target-delta 1 | did you mean --delta
calibrate --noise gaussian --epsilon 1 --noise-multiplier 1 {WORK} | --noise-multiplier
calibrate --noise gamma --k 0 --epsilon 1 --clip 1 --dimension 5 {WORK} | --k 0.0
{DESIGN} --clip 1 | did you mean --clip-min
{DESIGN} --clip-min 1 --clip-max 0.5 | --clip-max 0.5
{DESIGN} --clip-min nan | --clip-min nan
{DESIGN} --clip-min 1 --k-max 0 | --k-max 0.0
{DESIGN} --clip-min 1 --dataset-size -1 | --dataset-size -1
{DESIGN} --clip-min 1 --noise cauchy | --noise cauchy
{DESIGN} --clip-min 1 --choose gamma | did you mean --noise
{DESIGN} --clip-min 1 --accountant none | --accountant none: expected one of
{DESIGN} --clip-min 1 --plot a.xyz | --plot a.xyz
design --plan no.json | --plan no.json
trian digits | did you mean train
train | TASK
train cats --epsilon 1 | TASK cats
train dgits | did you mean digits
train digits | --epsilon
train digits extra --epsilon 1 | extra: expected
{TRAIN} --lr nan | --lr nan
{TRAIN} --lr 0 | --lr 0.0
{TRAIN} --lr 1e39 | --lr
{TRAIN} --learning-rate 1 | did you mean --lr
{TRAIN} --seed -5 | --seed -5
{TRAIN} --seed 1.5 | --seed 1.5: expected a whole number
{TRAIN} --evaluate-every 0 | --evaluate-every 0
{TRAIN} --evaluate-every -3 | --evaluate-every -3
{TRAIN} --checkpoint-every 0 | --checkpoint-every 0
{TRAIN} --physical-batch 0 | --physical-batch 0
{TRAIN} --momentum 1 | --momentum 1.0
{TRAIN} --momentum nan | --momentum nan
{TRAIN} --weight-decay -1 | --weight-decay -1.0
{TRAIN} --weight-decay nan | --weight-decay nan
{TRAIN} --clip 0 | --clip 0.0
{TRAIN} --clip nan | --clip nan
{TRAIN} --sample-rate 1.5 | --sample-rate 1.5
{TRAIN} --steps 0 | --steps 0
{TRAIN} --delta 1 | --delta 1
{TRAIN} --delta 0.01 | --delta 0.01
{TRAIN} --model lenet | --model lenet
{TRAIN} --optimizer lion | --optimizer lion
{TRAIN} --optimizer adm | did you mean adam
{TRAIN} --schedule zigzag | --schedule zigzag
{TRAIN} --noise none | --epsilon 3
{TRAIN} --noise auto --k 10 | --k 10
{TRAIN} --noise gaussian --noise-multiplier 1 | --noise-multiplier 1
{TRAIN} --noise-multiplier 1 --scale 2 | --noise
{TRAIN} --postprocess wish | --postprocess wish
{TRAIN} --clipping l3 | --clipping l3
{TRAIN} --grad-sample-mode magic | --grad-sample-mode magic
{TRAIN} --grid 1 | --grid 1.0
{TRAIN} --exact --grid 0 | --grid 0.0
{TRAIN} --exact --grid nan | --grid nan
{TRAIN} --canary example | --canary example
{TRAIN} --audit 0 | --audit 0
{TRAIN} --audit -1 | --audit -1
{TRAIN} --correlation square --epochs 1 | --correlation square
{TRAIN} --epochs 3 | --epochs 3
{TRAIN} --correlation tree --steps 3 | --steps 3
{TRAIN} --correlation tree --epochs 0 | --epochs 0
{TRAIN} --correlation tree --batch-size 0 --epochs 1 | --batch-size 0
{TRAIN} --correlation banded:0 --epochs 1 | --correlation banded:0
{TRAIN} --trainable head | --trainable head
{TRAIN} --max-length 0 | --max-length 0
{TRAIN} --plan no.json | --epsilon
train digits --plan no.json | --plan no.json
train digits --epsilon -1 | --epsilon -1.0
train digits --epsilon nan | --epsilon nan
train digits --scale 1e308 --clip 1e-300 | --clip
train --resume --out nowhere | --resume nowhere
audit | audit
audit mechansim | did you mean mechanism
{MECHANISM} --trials 1 | --trials 1
{MECHANISM} --trials -1 | --trials -1
{MECHANISM} --seed -1 | --seed -1
{MECHANISM} --claim wish | --claim wish: expected certified, published
{MECHANISM} --confidence 1 | --confidence 1.0
{MECHANISM} --coordinates 0 | --coordinates 0
{MECHANISM} --jobs 0 | --jobs 0
audit one-run cats --epsilon 1 | TASK cats
audit one-run digits --epsilon 3 --canaries 0 | --canaries 0
audit one-run digits --epsilon 3 --confidence 2 | --confidence 2.0
selftest --scale nan | --scale
selftest --noise cauchy | --noise
report no-such-run | RUN
report | RUN (missing): expected
verify | RECEIPT (missing): expected
budget settle a b | ENTRY b: expected a whole number
verify no.json | RECEIPT no.json
reproduce no-such-table | NAME no-such-table
reproduce table-cnn-mnst | did you mean table-cnn-mnist
"""


def invocations():
    names = {"WORK": WORK, "LAPLACE": LAPLACE, "GAUSSIAN": GAUSSIAN, "TRAIN": TRAIN, "DESIGN": DESIGN}
    lines = INVOCATIONS.strip().splitlines()
    names["TRAIN_TINY"] = "train digits --epsilon 1e-9 --steps 3"
    return [line.format(**names, MECHANISM=MECHANISM).rpartition(" | ")[::2] for line in lines]


@pytest.mark.parametrize(("words", "named"), invocations(), ids=lambda value: value[-60:])
def test_a_bad_invocation_is_one_line_that_names_the_argument(words, named, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PLRVO_OFFLINE", "1")
    assert main(shlex.split(words)) == 2
    lines = [line for line in capfd.readouterr().err.splitlines() if line.strip() and "warning:" not in line]
    if words != "audit":  # without a command it says which ones there are
        assert len(lines) == 1, lines
        assert lines[0].startswith("plrvo: ")
        assert named in lines[0]
        assert re.match(r"plrvo: \S.*?: (expected |no such )", lines[0]), lines[0]
    assert not list(tmp_path.iterdir())


def test_of_an_option_that_comes_twice_the_last_is_taken_and_said(capsys):
    words = f"{GAUSSIAN} --noise-multiplier 1.1 --noise-multiplier=2 --json".split()
    assert main(words) == 0
    told = capsys.readouterr()
    assert '"sigma": 2.0' in told.out
    assert told.err == "plrvo: warning: --noise-multiplier 2 is taken; --noise-multiplier 1.1 before it is not\n"


def test_there_are_a_hundred_of_them():
    assert len(set(invocations())) >= 100
