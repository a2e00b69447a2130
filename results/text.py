"""SST-2 with MiniLM at three certified epsilons: three noises and none, for the head, the biases and all layers.

    python -m results.text DATA_DIR

One seed. AdamW with linear decay and, for each choice of what is trained, one learning rate for all noises. Rows are
written as they finish, and rows that are there are not run again. Takes about half an hour of one core.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
import tempfile
from pathlib import Path

from plrvo.files import read_json, write_json

FILE = Path(__file__).with_name("text.json")
SEED = 0
SETTINGS: dict[str, list[str]] = {
    # About 2,048 examples a step, with cached features.
    "head": ["--sample-rate", "0.0304", "--steps", "300", "--lr", "0.02", "--max-length", "128"],
    # About 256 examples a step: what a processor manages in minutes.
    "bias": ["--sample-rate", "0.0038", "--steps", "30", "--lr", "5e-3", "--max-length", "32"],
    "all": ["--sample-rate", "0.0038", "--steps", "30", "--lr", "5e-4", "--max-length", "32"],
}
NOISES: dict[str, list[str]] = {
    "gaussian": ["--noise", "gaussian"],
    "gamma": ["--noise", "gamma"],
    "gamma, score": ["--noise", "gamma", "--postprocess", "score"],
}
EPSILONS = ("3", "1", "0.5")
KEPT = ("accuracy", "loss", "epsilon_certified", "epsilon_lower", "epsilon_published", "delta", "steps", "noise")


def runs() -> list[tuple[str, str, str | None, list[str]]]:
    """(what is trained, noise, epsilon, options)."""
    found: list[tuple[str, str, str | None, list[str]]] = []
    for trainable, setting in SETTINGS.items():
        found.append((trainable, "none", None, [*setting, "--noise", "none"]))
        for epsilon in EPSILONS:
            for name, noise in NOISES.items():
                found.append((trainable, name, epsilon, [*setting, *noise, "--epsilon", epsilon]))
    return found


def main(data_dir: str) -> None:
    """Run what is missing."""
    rows = json.loads(FILE.read_text()) if FILE.exists() else []
    for trainable, name, epsilon, options in runs():
        if any((row["trainable"], row["noise_name"], row["epsilon"]) == (trainable, name, epsilon) for row in rows):
            continue
        row = _run(["sst2", "--data-dir", data_dir, "--trainable", trainable, "--seed", str(SEED), *options])
        rows.append({"trainable": trainable, "noise_name": name, "epsilon": epsilon, **row})
        write_json(FILE, rows)


def _run(arguments: list[str]) -> dict[str, object]:
    """The essentials of one run: what the command prints, and what its verified receipt says of model and data."""
    from plrvo.cli.main import main as plrvo

    with tempfile.TemporaryDirectory() as folder:
        out = io.StringIO()
        never = ["--evaluate-every", "100000", "--checkpoint-every", "100000"]
        with contextlib.redirect_stdout(out):
            code = plrvo(["train", *arguments, *never, "--clip", "1", "--out", folder, "--json"])
        if code:
            sys.exit(code)
        result = json.loads(out.getvalue())
        receipt = Path(folder) / "receipt.json"
        row = {key: result.get(key) for key in KEPT}
        if not receipt.exists():
            return row
        if plrvo(["verify", str(receipt)]):
            sys.exit(1)
        said = read_json(receipt, "receipt", "a receipt")
        kept = {key: said["task"][key] for key in ("trainable_parameters", "max_length")}
        run = {key: said["run"][key] for key in ("grad_sample_mode", "expected_batch_size", "learning_rate")}
        return {**row, **kept, **run, "sample_rate": said["plan"]["workload"]["sample_rate"]}


if __name__ == "__main__":
    main(sys.argv[1])
