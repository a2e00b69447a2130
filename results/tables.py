"""E2E with stories15M: Gaussian and Gamma noise at two certified epsilons, and no noise. Writes results/tables.json.

    python -m results.tables DATA_DIR

All layers are trained, on all pairs of E2E's training split: one seed, one learning rate for all, the same number of
steps, few enough for a processor. The five metrics are those of a public subset of the test split, 100 tables
evenly spread, by beam search. Rows are written as they finish, with ten of their generations, and rows that are there
are not run again.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

from plrvo.files import write_json

FILE = Path(__file__).with_name("tables.json")
STEPS, SAMPLE_RATE, CLIP = "40", "0.003", "0.1"
SETTING = [
    *("--model", "stories15M", "--trainable", "all", "--steps", STEPS, "--sample-rate", SAMPLE_RATE, "--clip", CLIP),
    *("--delta", "1e-5", "--optimizer", "adamw", "--lr", "4e-4", "--schedule", "linear", "--test-limit", "100"),
    *("--beams", "4", "--evaluate-every", STEPS, "--seed", "0"),
]
NOISES: dict[str, list[str]] = {
    "none": ["--noise", "none"],
    "gaussian, epsilon 8": ["--noise", "gaussian", "--epsilon", "8"],
    "gamma, epsilon 8": ["--noise", "gamma", "--epsilon", "8"],
    "gaussian, epsilon 3": ["--noise", "gaussian", "--epsilon", "3"],
    "gamma, epsilon 3": ["--noise", "gamma", "--epsilon", "3"],
}
SAMPLES = 10


def main(data_dir: str) -> None:
    """Run what is missing."""
    import contextlib
    import io

    from plrvo.cli.main import main as plrvo
    from plrvo.tasks.tables.generate import read_generations
    from plrvo.tasks.tables.metrics import METRICS

    rows = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else []
    for name, noise in NOISES.items():
        if any(row["noise"] == name for row in rows):
            continue
        with tempfile.TemporaryDirectory() as folder:
            out, begun = io.StringIO(), time.process_time()
            with contextlib.redirect_stdout(out):
                code = plrvo(["train", "e2e", "--data-dir", data_dir, *SETTING, *noise, "--out", folder, "--json"])
            if code:
                sys.exit(code)
            seconds = time.process_time() - begun
            result = json.loads(out.getvalue())
            receipt = None
            if noise[1] != "none":
                path = Path(folder) / "receipt.json"
                with contextlib.redirect_stdout(io.StringIO()):
                    if plrvo(["verify", str(path)]):
                        sys.exit(1)
                receipt = json.loads(path.read_text(encoding="utf-8"))
            texts = read_generations(Path(folder) / "generations.jsonl")
        keep = ("loss", *(metric.name for metric in METRICS), "epsilon_certified", "epsilon_lower", "epsilon_published")
        chosen = texts[:: len(texts) // SAMPLES][:SAMPLES]
        rows.append(
            {
                "noise": name,
                **{key: result.get(key) for key in keep},
                "cpu_seconds": round(seconds),
                "receipt": receipt,
                "samples": [{"table": row.table, "text": row.hypothesis} for row in chosen],
            }
        )
        write_json(FILE, rows)


if __name__ == "__main__":
    main(sys.argv[1])
