"""A private run in the last layers of a classifier, as the command does it."""

import json
from dataclasses import replace

import pytest
from safetensors.torch import load_file
from tests.tasks.text.tiny import save_checkpoint, texts, write_sst2

from plrvo.cli.main import main
from plrvo.tasks.text import catalog, recipes


@pytest.mark.parametrize("trainable", ["lora", "all"])
def test_a_private_run_in_the_last_layer(tmp_path, monkeypatch, capsys, trainable):
    write_sst2(tmp_path / "sst2", texts(40), texts(12))
    known = catalog.TEXT_SETS["sst2"]
    splits = {
        name: replace(split, file=replace(split.file, sha256=None, size=10_000)) for name, split in known.splits.items()
    }
    monkeypatch.setitem(catalog.TEXT_SETS, "sst2", replace(known, splits=splits))
    monkeypatch.setitem(recipes.EXAMPLES, "sst2", 40)
    model, out = save_checkpoint(tmp_path / "tiny"), tmp_path / "run"
    asked = ["--epsilon", "4", "--delta", "1e-3", "--sample-rate", "0.2", "--steps", "3", "--seed", "1", "--json"]
    layers = ["--trainable", trainable, "--layers", "1", "--data-dir", str(tmp_path), "--out", str(out)]
    assert main(["train", "sst2", "--model", str(model), *asked, *layers]) == 0
    assert json.loads(capsys.readouterr().out)["epsilon_certified"] <= 4
    task = json.loads((out / "receipt.json").read_text())["task"]
    assert task["layers"] == 1
    names = load_file(out / "model.safetensors")
    assert any(".layer.1." in name for name in names)
    assert not any(".layer.0." in name for name in names)
    assert main(["verify", str(out / "receipt.json")]) == 0
