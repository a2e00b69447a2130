"""Every audit of `results/audit`, by the command that made it. Runs those whose file is missing.

    python -m checks.audits DATA_DIR [NAME...]

A name is the name of a file without its ending; all of them by default. Each takes seconds to minutes on one core.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
from pathlib import Path

from plrvo.files import write_json

FOLDER = Path(__file__).parents[1] / "results" / "audit"
GAMMA = "--noise gamma --k 40000 --theta 1e-4 --clip 0.5 --sample-rate 0.01 --steps 300 --dimension 26010"
GAUSSIAN = "--noise gaussian --noise-multiplier 1 --clip 1 --sample-rate 0.01 --steps 100 --dimension 10"
KINDS = ("gradient", "example")
SHAPES = {"gaussian": "--noise gaussian", "laplace": "--noise laplace", "gamma": "--noise gamma --k 100"}
# Data, model, claimed epsilons, models for each: the paper's number of models where the time allowed it.
CLIPBKD = {
    "": ("fashion-mnist", "lr", (1, 2, 4, 8), 800),
    "paper-": ("fashion-mnist", "lr", (4,), 2000),
    "location30-lr-": ("location30", "lr", (2, 8), 160),
    "location30-fnn-": ("location30", "fnn", (8,), 160),
    "fashion-mnist-fnn-": ("fashion-mnist", "fnn", (8,), 160),
    "sst2-": ("sst2", "lr", (8,), 400),
    "sst2-paper-": ("sst2", "lr", (8,), 80),
}
LOGISTIC = "audit one-run fashion-mnist --model logistic --clip 1 --sample-rate 0.02 --steps 300"
CNN = "audit one-run fashion-mnist --model cnn --clip 0.1 --sample-rate 0.01 --steps 300"


def _clipbkd(data: str, model: str, epsilons: tuple[int, ...], models: int, noise: str) -> str:
    claims = " ".join(f"--epsilon {epsilon}" for epsilon in epsilons)
    return f"audit clipbkd --data {data} --model {model} {noise} {claims} --models {models}"


def _one_run(training: str, canary: str, epsilons: tuple[int, ...]) -> list[str]:
    return [f"{training} {noise} --epsilon {e} --canary {canary}" for noise in SHAPES.values() for e in epsilons]


COMMANDS: dict[str, str | list[str]] = {
    "mechanism-published": f"audit mechanism {GAMMA} --claim published",
    "mechanism-certified": f"audit mechanism {GAMMA}",
    "mechanism-poisson": f"audit mechanism {GAUSSIAN}",
    "mechanism-shuffled": f"audit mechanism {GAUSSIAN} --sampler shuffled",
    "clipbkd-no-clipping": _clipbkd("fashion-mnist", "lr", (1, 2), 800, "--noise gaussian --without clipping"),
    **{
        f"clipbkd-{name}{kind}": _clipbkd(*setting, noise)
        for name, setting in CLIPBKD.items()
        for kind, noise in SHAPES.items()
    },
    "clipbkd-sst2-no-noise": _clipbkd("sst2", "lr", (8,), 2000, "--noise gaussian --without noise"),
    "one-run-gradient": _one_run(LOGISTIC, "gradient", (2, 8)),
    "one-run-example": _one_run(LOGISTIC, "example", (2, 8)),
    "one-run-cnn": _one_run(CNN, "gradient", (8,)),
    # Noise for the mean of a batch of 1,200, added to the sum, with the claim that it would have deserved.
    "one-run-broken": [f"{LOGISTIC} --noise laplace --scale 0.00093 --claim 2 --canary {k}" for k in KINDS],
}


def main(data_dir: str, *names: str) -> None:
    """Run what is missing."""
    from plrvo.cli.main import main as plrvo

    os.environ["PLRVO_DATA"] = data_dir
    for name in names or COMMANDS:
        file, commands = FOLDER / f"{name}.json", COMMANDS[name]
        if file.exists():
            continue
        results = []
        for command in [commands] if isinstance(commands, str) else commands:
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                code = plrvo([*command.split(), "--seed", "1", "--json"])
            if code not in (0, 1):  # 1 is a verdict
                sys.exit(code)
            results.append(json.loads(out.getvalue()))
        write_json(file, results[0] if isinstance(commands, str) else {"rows": results})


if __name__ == "__main__":
    main(*sys.argv[1:])
