"""One training step: ours with Gamma-PLRV noise, Opacus with Gaussian noise in the same mode, and no privacy."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import opacus
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import plrvo
from benchmarks.timing import interleaved, shown
from plrvo.tasks.vision.models import build_model
from plrvo.training import PrivacyEngine

MODELS: dict[str, tuple[tuple[int, int, int], int]] = {
    "cnn": ((1, 28, 28), 600),
    "logistic": ((1, 28, 28), 600),
    "resnet18": ((3, 32, 32), 32),
}
CONTENDERS = ("ours hooks", "opacus hooks", "ours ghost", "opacus ghost", "no privacy")


def stepper(contender: str, model: str) -> Callable[[], None]:
    """A function that takes one step on a fixed batch."""
    shape, batch = MODELS[model]
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(batch, *shape, generator=generator)
    y = torch.randint(0, 10, (batch,), generator=generator)
    module: Any = build_model(model, shape, 10, generator)
    optimizer: Any = torch.optim.SGD(module.parameters(), lr=0.01, momentum=0.9)
    loss: Any = nn.CrossEntropyLoss()
    data = DataLoader(TensorDataset(x, y), batch_size=batch)
    who, _, mode = contender.partition(" ")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if who == "ours":
            dimension = sum(p.numel() for p in module.parameters())
            work = plrvo.Workload(sample_rate=0.01, steps=10**6, clip=1.0, dimension=dimension)
            bracket = plrvo.Epsilon(1.0, 0.0, None, 1e-5, "rdp", 1)  # not looked at: steps are timed, not certified
            engine = PrivacyEngine(plrvo.Plan(plrvo.GammaPLRV(k=100.0, theta=0.01), work, None, 1e-5, bracket))
            module, optimizer, *rest = engine.make_private(
                module=module, optimizer=optimizer, data_loader=data, grad_sample_mode=mode
            )
            loss = rest[0] if mode == "ghost" else loss
        elif who == "opacus":
            module, optimizer, *rest = opacus.PrivacyEngine().make_private(
                module=module,
                optimizer=optimizer,
                criterion=loss,
                data_loader=data,
                noise_multiplier=1.0,
                max_grad_norm=1.0,
                grad_sample_mode=mode,
                poisson_sampling=False,
            )
            loss = rest[0] if mode == "ghost" else loss

    def step() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            optimizer.zero_grad()
            loss(module(x), y).backward()
            optimizer.step()

    return step


def peak_memory(contender: str, model: str) -> float:
    """Peak resident megabytes of a fresh process that takes three steps."""
    code = f"from benchmarks.training import report_memory; report_memory({contender!r}, {model!r})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return float(done.stdout.strip().splitlines()[-1])


def report_memory(contender: str, model: str) -> None:
    """Run in the fresh process."""
    step = stepper(contender, model)
    for _ in range(3):
        step()
    # Not getrusage: its maximum is inherited from the process that started this one.
    status = Path("/proc/self/status").read_text()
    print(int(status.split("VmHWM:")[1].split()[0]) / 1024)


def run() -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for model in MODELS:
        steps = {contender: stepper(contender, model) for contender in CONTENDERS}
        times = interleaved(steps, turns=5 if model == "resnet18" else 9)
        for mode in ("hooks", "ghost"):
            ours, theirs = times[f"ours {mode}"], times[f"opacus {mode}"]
            plain = times["no privacy"].median
            rows.append(
                {
                    "what": f"step, {model}, batch {MODELS[model][1]}, {mode}, against Opacus with Gaussian noise",
                    "ours": f"{shown(ours.median)} (spread {shown(ours.spread)})",
                    "theirs": f"{shown(theirs.median)} (spread {shown(theirs.spread)})",
                    "ratio": f"{ours.median / theirs.median:.2f}x its time, {ours.median / plain:.2f}x no privacy",
                }
            )
        memory = {contender: peak_memory(contender, model) for contender in CONTENDERS}
        rows.append(
            {
                "what": f"peak memory of the process, {model}, hooks and ghost, against Opacus and no privacy",
                "ours": f"{memory['ours hooks']:.0f}, {memory['ours ghost']:.0f} MB",
                "theirs": f"{memory['opacus hooks']:.0f}, {memory['opacus ghost']:.0f}, {memory['no privacy']:.0f} MB",
                "ratio": f"{memory['ours hooks'] / memory['opacus hooks']:.2f}, "
                f"{memory['ours ghost'] / memory['opacus ghost']:.2f}x its memory",
            }
        )
    return rows
