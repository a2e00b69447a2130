"""`plrvo train --exact` as its users run it, and what it refuses."""

import json
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from plrvo.cli.main import main

BASE = [
    "train",
    "digits",
    "--model",
    "logistic",
    "--epsilon",
    "3",
    "--sample-rate",
    "0.1",
    "--clip",
    "1",
    "--steps",
    "8",
]
EXACT = [*BASE, "--exact", "--evaluate-every", "8", "--checkpoint-every", "4", "--json"]


def run(*arguments: str, capsys: Any) -> dict[str, Any]:
    assert main([*EXACT, *arguments]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("noise", ["gamma", "laplace", "gaussian"])
def test_a_run_is_certified_on_its_grid_and_verified(noise: str, tmp_path: Path, capsys: Any) -> None:
    result = run("--noise", noise, "--out", str(tmp_path / "run"), capsys=capsys)
    assert result["noise"]["noise"] == "grid"
    assert result["noise"]["base"]["noise"] == noise
    assert result["epsilon_lower"] <= result["epsilon_certified"] <= 3
    receipt = json.loads((tmp_path / "run" / "receipt.json").read_text())
    assert receipt["arithmetic"].startswith("integers on a grid")
    assert main(["verify", str(tmp_path / "run" / "receipt.json")]) == 0


def test_a_seed_repeats_an_exact_run_and_none_does_not(tmp_path: Path, capsys: Any) -> None:
    folders = [tmp_path / name for name in "abcd"]
    for folder, seed in zip(folders, (["--seed", "3"], ["--seed", "3"], [], []), strict=True):
        run(*seed, "--out", str(folder), capsys=capsys)
    a, b, c, d = (load_file(folder / "model.safetensors") for folder in folders)
    assert all(a[name].equal(b[name]) for name in a)
    assert not any(c[name].equal(d[name]) for name in c)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--exact", "--clipping", "per_layer"], "--clipping"),
        (["--exact", "--grad-sample-mode", "ghost"], "--grad-sample-mode"),
        (["--exact", "--grid", "1"], "--grid"),
        (["--exact", "--grid", "1e-12"], "--grid"),
        (["--exact", "--grid", "-1"], "--grid"),
        (["--exact", "--noise", "gamma", "--shared"], "--noise"),
        (["--exact", "--noise", "none"], "--exact"),
        (["--grid", "0.001"], "--grid"),
    ],
    ids=str,
)
def test_what_is_refused_is_named_in_one_line(arguments: list[str], said: str, tmp_path: Path, capsys: Any) -> None:
    assert main([*BASE, *arguments, "--out", str(tmp_path / "run")]) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1
    assert said in lines[0]
    assert not (tmp_path / "run").exists()
