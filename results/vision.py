"""Fashion-MNIST with the paper's CNN at one certified epsilon: every noise, and no noise. Writes results/vision.json.

    python -m results.vision DATA_DIR

One learning rate for all (0.1 for gradients in units of the clip, momentum 0.9), two seeds, 300 steps. Rows are
written as they finish, and rows that are there are not run again.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from plrvo.files import write_json

FILE = Path(__file__).with_name("vision.json")
SETTING = ["--sample-rate", "0.01", "--steps", "300", "--clip", "0.1", "--delta", "1e-5", "--model", "cnn"]
NOISES: dict[str, list[str]] = {
    "gamma": ["--noise", "gamma", "--epsilon", "0.5"],
    "gamma, score": ["--noise", "gamma", "--epsilon", "0.5", "--postprocess", "score"],
    "laplace": ["--noise", "laplace", "--epsilon", "0.5"],
    "laplace, score": ["--noise", "laplace", "--epsilon", "0.5", "--postprocess", "score"],
    "gaussian": ["--noise", "gaussian", "--epsilon", "0.5"],
    "none": ["--noise", "none"],
}
SEEDS = (0, 1)


def main(data_dir: str) -> None:
    """Run what is missing."""
    import contextlib
    import io

    from plrvo.cli.main import main as plrvo

    rows = json.loads(FILE.read_text()) if FILE.exists() else []
    for seed in SEEDS:
        for name, noise in NOISES.items():
            if any(row["noise"] == name and row["seed"] == seed for row in rows):
                continue
            with tempfile.TemporaryDirectory() as folder:
                words = ["train", "fashion-mnist", "--data-dir", data_dir, *SETTING, *noise]
                out = io.StringIO()
                with contextlib.redirect_stdout(out):
                    code = plrvo([*words, "--seed", str(seed), "--out", folder, "--json", "--evaluate-every", "300"])
                if code:
                    sys.exit(code)
                result = json.loads(out.getvalue())
                if noise[1] != "none" and plrvo(["verify", str(Path(folder) / "receipt.json")]):
                    sys.exit(1)
            keep = ("accuracy", "epsilon_certified", "epsilon_lower", "epsilon_published")
            rows.append({"noise": name, "seed": seed, **{key: result.get(key) for key in keep}})
            write_json(FILE, rows)


if __name__ == "__main__":
    main(sys.argv[1])
