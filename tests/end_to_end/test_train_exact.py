"""`plrvo train --exact` as its users run it, and what it refuses."""

import json
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file
from tests.refusals import refusals

from plrvo.cli.main import main
from plrvo.records.folder import CHECKPOINT
from plrvo.records.history import read_history
from plrvo.tasks import experiment

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


class Crash(Exception):
    pass


RARELY = [*EXACT, "--evaluate-every", "2", "--checkpoint-every", "100"]


def crash_at(step: int, out: Path, monkeypatch: pytest.MonkeyPatch, keep: Path | None = None) -> None:
    """End a run while it evaluates this step, released by then; keep a copy of the checkpoint of the release before."""
    evaluate, seen = experiment._metrics, []

    def broken(task: Any, module: Any, settings: Any, *rest: Any) -> Any:
        seen.append(1)
        if keep is not None and len(seen) == step // 2 - 1:
            keep.write_bytes((settings.out / CHECKPOINT).read_bytes())
        if len(seen) == step // 2:
            raise Crash
        return evaluate(task, module, settings, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(experiment, "_metrics", broken)
        with pytest.raises(Crash):
            main([*RARELY, "--out", str(out)])


def test_a_released_step_is_kept_at_once_since_its_noise_cannot_be_drawn_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    out = tmp_path / "run"
    crash_at(6, out, monkeypatch)
    assert main([*RARELY, "--out", str(out), "--resume"]) == 0
    assert [row["step"] for row in read_history(out / "metrics.jsonl")] == [2, 4, 8]
    assert main(["verify", str(out / "receipt.json")]) == 0


def test_released_steps_that_were_not_kept_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """With a checkpoint of step 4 and results of step 6 seen, two steps are left of eight: the budget holds."""
    out, kept = tmp_path / "run", tmp_path / "kept"
    crash_at(6, out, monkeypatch, kept)
    (out / "checkpoint.safetensors").write_bytes(kept.read_bytes())
    with pytest.warns(UserWarning, match="2 steps were released after the checkpoint"):
        assert main([*RARELY, "--out", str(out), "--resume"]) == 0
    receipt = json.loads((out / "receipt.json").read_text())
    assert receipt["steps"] == sum(entry["workload"]["steps"] for entry in receipt["ledger"]) == 8
    assert receipt["epsilon"]["certified"] <= 3
    assert main(["verify", str(out / "receipt.json")]) == 0


def test_a_run_whose_last_release_was_not_kept_has_nothing_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    out, kept = tmp_path / "run", tmp_path / "kept"
    crash_at(8, out, monkeypatch, kept)
    (out / "checkpoint.safetensors").write_bytes(kept.read_bytes())
    capsys.readouterr()
    assert main([*RARELY, "--out", str(out), "--resume"]) == 2
    assert "a run with steps left" in capsys.readouterr().err


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
    lines = refusals(capsys.readouterr().err)
    assert len(lines) == 1
    assert said in lines[0]
    assert not (tmp_path / "run").exists()
