"""Runs to make pages of: real ones, a reproduction in the form of `plrvo reproduce`."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_model
from torch.utils.data import DataLoader, TensorDataset

import plrvo
from plrvo.cli.main import main
from plrvo.paper.cnn import CNN_DELTA, CNN_ROWS
from plrvo.paper.document import sealed
from plrvo.report.loading import read_run
from plrvo.report.page import make_page
from plrvo.training.receipts import make_receipt

FAST = [
    "digits",
    "--model",
    "logistic",
    "--sample-rate",
    "0.1",
    "--clip",
    "1",
    "--steps",
    "12",
    "--evaluate-every",
    "3",
]
HOSTILE = '"><script>document.title="owned"</script><img src=x onerror="document.title=\'owned\'">'
MECHANISM = Path(__file__).parents[2] / "results" / "audit" / "mechanism-published.json"
POISSON = MECHANISM.with_name("mechanism-poisson.json")
ONE_RUN = MECHANISM.with_name("one-run-gradient.json")
CLIPBKD = Path(__file__).parents[2] / "results" / "audit" / "clipbkd-gamma.json"


def train(folder: Path, *options: str) -> Path:
    """A real run of a few steps."""
    assert main(["train", *FAST, *options, "--out", str(folder), "--json"]) == 0
    return folder


def own_loop(folder: Path, run: dict[str, Any]) -> Path:
    """A step of a loop of somebody's own, whose receipt has what they say of it."""
    folder.mkdir(parents=True)
    model, engine = torch.nn.Linear(3, 2), plrvo.PrivacyEngine()
    module, optimizer, loader = engine.make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        data_loader=DataLoader(TensorDataset(torch.randn(40, 3), torch.arange(40) % 2), batch_size=10),
        noise_multiplier=1.0,
        max_grad_norm=1.0,
    )
    inputs, targets = next(iter(loader))
    torch.nn.functional.cross_entropy(module(inputs), targets).backward()
    optimizer.step()
    save_model(model, folder / "model.safetensors")
    weights = folder / "model.safetensors"
    make_receipt(engine, optimizer, weights, {"name": "own"}, run, delta=1e-3).write(folder / "receipt.json")
    return folder


def reproduction(folder: Path, **changes: Any) -> Path:
    """The CNN table with its printed values and real brackets; the measured accuracies are made up."""
    rows = []
    for i, row in enumerate(CNN_ROWS):
        bracket = plrvo.epsilon(row.noise, row.workload, CNN_DELTA)
        off = row.printed_theta != row.theta
        rows.append(
            {
                "key": f"epsilon-{row.printed_epsilon}",
                "label": f"epsilon {row.printed_epsilon}",
                "parameters": {"clip": row.clip, "theta": row.theta, "k": row.k},
                "printed": {"gaussian": row.mnist.gaussian, "gamma": row.mnist.gamma, "laplace": None},
                "measured": {"gaussian": 88.0 + i, "gamma": 80.5 + i, "laplace": 79.25 + i, "gamma_score": 84.0 + i},
                "epsilon": {
                    "printed": row.printed_epsilon,
                    "published": bracket.published,
                    "certified": bracket.certified,
                    "lower": bracket.lower,
                },
                "flags": {"misprinted": f"theta {row.printed_theta:g} does not give the printed epsilon"}
                if off
                else {},
            }
        )
    content = {
        "name": "table-cnn-mnist",
        "group": "paper",
        "title": "CNN on MNIST, nine budgets",
        "paper": "table of CNN-MNIST",
        "scale": "quick",
        "status": "finished",
        "stand_in": "one seed instead of five trials",
        "columns": ["gaussian", "gamma", "laplace", "gamma_score"],
        "rows": rows,
        "findings": ["4 of 9 rows print a theta that does not give their epsilon."],
        "files": {},
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "reproduction.json").write_text(json.dumps(sealed({**content, **changes})))
    return folder


def copied(folder: Path, to: Path) -> Path:
    shutil.copytree(folder, to)
    return to


def changed_receipt(folder: Path, change: Any) -> None:
    """Change the receipt in the folder as a careless hand would, without its digest."""
    path = folder / "receipt.json"
    receipt = json.loads(path.read_text())
    change(receipt)
    path.write_text(json.dumps(receipt))


def page_of(*paths: Path) -> str:
    return make_page([read_run(path) for path in paths]).decode()
