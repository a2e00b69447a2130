"""Training runs of rows: stopped in the middle of a run and continued, they give the same rows to the last byte."""

import json
from dataclasses import replace

import pytest
from checks.torture.reproduce import DIGITS, FILES

from plrvo.cli.main import main
from plrvo.paper.entry import Context, Scale
from plrvo.paper.reproduce import Reproduction
from plrvo.paper.training import Recipe, train


class Stopped(KeyboardInterrupt):
    pass


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    out = tmp_path_factory.mktemp("whole")
    Reproduction(DIGITS, out, Context(Scale.smoke, out)).run()
    return [(out / name).read_bytes() for name in FILES]


@pytest.mark.parametrize("moment", ["epsilon 1.0: gaussian-0, step 51", "epsilon 3.0: gamma_score-0, step 7"])
def test_stopped_and_continued_equals_uninterrupted(tmp_path, whole, moment):
    def stop(done, count, text):
        if text.startswith(moment):
            raise Stopped

    here = Reproduction(DIGITS, tmp_path, Context(Scale.smoke, tmp_path))
    with pytest.raises(Stopped):
        here.run(stop)
    assert not (tmp_path / FILES[1]).exists()
    here.run()
    assert [(tmp_path / name).read_bytes() for name in FILES] == whole


def test_every_run_has_a_receipt_that_verifies(tmp_path, capsys):
    out = tmp_path / "out"
    found = Reproduction(DIGITS, out, Context(Scale.smoke, out)).run()
    receipts = sorted(out.glob("runs/*/*/receipt.json"))
    assert len(receipts) == 4
    for path in receipts:
        assert main(["verify", str(path), "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["verdict"] == "verified"
    row = found["rows"][0]
    receipt = json.loads((out / "runs" / row["key"] / "gaussian-0" / "receipt.json").read_text())
    assert row["measured"]["gaussian"] == 100 * receipt["run"]["metrics"]["accuracy"]
    assert row["details"]["run_certified"]["gaussian"] == receipt["epsilon"]["certified"]


def test_seeds_differ_and_repeat(tmp_path):
    context = Context(Scale.smoke, tmp_path)
    recipe = Recipe("digits", "logistic", 0.05, 5, 1e-2)
    losses = [train(context, name, recipe, None, seed).metrics["loss"] for name, seed in (("a", 0), ("b", 0), ("c", 1))]
    assert losses[0] == losses[1] != losses[2]


def test_a_run_without_privacy_that_was_cut_off_is_begun_again(tmp_path):
    context, recipe = Context(Scale.smoke, tmp_path), Recipe("digits", "logistic", 0.05, 5, 1e-2)
    first = train(context, "plain", recipe, None, 0)
    assert train(context, "plain", recipe, None, 0).metrics == first.metrics


def test_label_smoothing_is_trained_with_and_said(tmp_path):
    context, recipe = Context(Scale.smoke, tmp_path), Recipe("digits", "logistic", 0.05, 5, 1e-2)
    sharp = train(context, "sharp", recipe, None, 0).metrics["loss"]
    smooth = train(context, "smooth", replace(recipe, label_smoothing=0.3), None, 0).metrics["loss"]
    assert sharp != smooth
