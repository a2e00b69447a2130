"""Nothing that depends on private examples before the noise is written or shown, unless the user insists."""

import json
import re
from dataclasses import replace

import torch
from safetensors import safe_open

import plrvo
from plrvo.cli.main import main
from plrvo.records.folder import DIAGNOSTICS as FILE
from plrvo.tasks import catalog
from plrvo.tasks.experiment import run_private
from plrvo.tasks.preset import InMemory
from plrvo.tasks.settings import Settings, Streams
from plrvo.training import PoissonSampler

BASE = ["train", "digits", "--model", "logistic", "--noise", "laplace", "--scale", "3", "--clip", "1", "--seed", "4"]
BASE += ["--sample-rate", "0.5", "--steps", "12", "--evaluate-every", "3", "--checkpoint-every", "5", "--json"]


def everything_written(folder, printed) -> str:
    """All text of a run: its files, its output, and the record inside the checkpoint."""
    parts = [printed.out, printed.err]
    for path in folder.iterdir():
        if path.suffix == ".safetensors":
            with safe_open(path, "pt") as file:
                parts.append(str(file.metadata()))
        elif path.suffix != ".png":
            parts.append(path.read_text())
    return "\n".join(parts)


def numbers_in(text: str) -> set[str]:
    return set(re.findall(r"(?<![\w.])\d+(?:\.\d+)?(?:e-?\d+)?(?![\w.])", text))


def test_batch_sizes_and_training_losses_are_nowhere_but_in_unsafe_diagnostics(tmp_path, capsys):
    assert main([*BASE, "--out", str(tmp_path / "safe")]) == 0
    safe = everything_written(tmp_path / "safe", capsys.readouterr())
    assert main([*BASE, "--out", str(tmp_path / "unsafe"), "--unsafe-diagnostics"]) == 0
    printed = capsys.readouterr()
    assert "no guarantee covers it" in printed.err
    unsafe = everything_written(tmp_path / "unsafe", printed)

    rows = [json.loads(line) for line in (tmp_path / "unsafe" / FILE).read_text().splitlines()]
    steps = [row for row in rows if "step" in row]
    assert [row["step"] for row in steps] == list(range(1, 13))
    secrets = {str(row[name]) for row in steps for name in ("batch_size", "training_loss")}
    assert len(secrets) > 20
    assert secrets <= numbers_in(unsafe)  # the scan finds what is there
    assert not secrets & numbers_in(safe)
    assert not (tmp_path / "safe" / FILE).exists()

    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("safe", "unsafe")]
    assert weights[0] == weights[1]
    receipts = [json.loads((tmp_path / name / "receipt.json").read_text()) for name in ("safe", "unsafe")]
    assert [receipt["run"]["unsafe_diagnostics"] for receipt in receipts] == [False, True]
    assert main(["verify", str(tmp_path / "unsafe" / "receipt.json")]) == 0
    assert "unsafe diagnostics" in capsys.readouterr().out


def _content(path):
    """Bytes; of a safetensors file what it holds, since the order of its metadata is arbitrary."""
    if path.suffix != ".safetensors":
        return path.read_bytes()
    with safe_open(path, framework="pt") as file:
        return {"metadata": file.metadata(), **{name: file.get_tensor(name).tolist() for name in file.keys()}}  # noqa: SIM118


def test_an_example_that_no_batch_drew_leaves_no_trace(tmp_path):
    """Whatever is computed from the data set as a whole would show here: counts of labels, norms, lengths."""
    outputs = []
    for change in (False, True):
        torch.manual_seed(0)  # a checkpoint holds the global stream too, which dropout draws from
        streams = Streams.from_seed(5)
        preset = catalog.prepare(catalog.Request("digits", "logistic", None, {}), streams.weights)
        x, y = (tensor.clone() for tensor in preset.task.data.tensors)
        if change:
            x[_never_drawn(len(y))] = 1e6
            y[_never_drawn(len(y))] = 0
        work = plrvo.Workload(sample_rate=0.01, steps=9, clip=1.0, dimension=650)
        plan = plrvo.Plan.certify(plrvo.Laplace(2.0), work, 1e-5)
        folder = tmp_path / str(change)
        settings = Settings(folder, 0.1, seed=5, evaluate_every=2, checkpoint_every=4)
        run_private(replace(preset.task, data=InMemory(x, y)), preset.module, plan, settings, streams)
        outputs.append({path.name: _content(path) for path in folder.iterdir()})
    assert outputs[0] == outputs[1]


def _never_drawn(size: int) -> int:
    sampler = PoissonSampler(size=size, sample_rate=0.01, steps=9, generator=Streams.from_seed(5).batches)
    drawn = {index for batch in sampler for index in batch}
    return next(index for index in range(size) if index not in drawn)


def test_a_finished_run_keeps_no_generator_and_a_checkpoint_is_for_its_owner(tmp_path):
    assert main([*BASE, "--out", str(tmp_path / "run")]) == 0
    path = tmp_path / "run" / "checkpoint.safetensors"
    assert path.stat().st_mode & 0o077 == 0
    with safe_open(path, "pt") as file:
        assert not [name for name in file.keys() if name.startswith("generator.") and "global" not in name]  # noqa: SIM118
    assert main([*BASE, "--out", str(tmp_path / "run"), "--resume"]) == 0
