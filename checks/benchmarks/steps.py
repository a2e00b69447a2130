"""Training steps to be timed: the same model and batch for every contender."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import opacus
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import plrvo
from plrvo.accounting.exact import default_cell
from plrvo.noise import GridNoise
from plrvo.tasks.vision.models import build_model
from plrvo.training import PrivacyEngine
from plrvo.training.clipping.linears import Lent

PLAIN, OURS, HOOKS, GHOST = "no privacy", "plrvo", "Opacus hooks", "Opacus ghost"
CONTENDERS = (PLAIN, OURS, HOOKS, GHOST)
PLAIN_FASTER = "no privacy, products as plrvo's"
OURS_HOOKS, OURS_EXACT = "plrvo hooks", "plrvo exact"  # per-example gradients, in floating point and in integers


@dataclass(frozen=True)
class Case:
    """A model by name, with the batch that it is trained on; `size` is its free dimension, if it has one."""

    model: str
    batch: int
    size: int = 0


CNN, RESNET, MINILM = Case("cnn", 600), Case("resnet18", 32), Case("minilm", 32, size=64)


class Encoder(nn.Module):
    """A BERT encoder of MiniLM's shape (6 layers of 384) with random weights: time does not depend on their values.

    Position and segment numbers are given for every example, which Opacus needs.
    """

    def __init__(self) -> None:
        super().__init__()
        from transformers import BertConfig, BertForSequenceClassification

        config = BertConfig(hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536)
        self.bert = BertForSequenceClassification(config)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        places = torch.arange(tokens.shape[1]).expand_as(tokens).contiguous()
        return self.bert(input_ids=tokens, position_ids=places, token_type_ids=torch.zeros_like(tokens)).logits


def _inputs(case: Case, generator: torch.Generator) -> tuple[nn.Module, torch.Tensor, int]:
    if case.model == "minilm":
        with torch.random.fork_rng():
            torch.manual_seed(0)
            return Encoder(), torch.randint(0, 30_000, (case.batch, case.size), generator=generator), 2
    if case.model == "mlp":
        with torch.random.fork_rng():
            torch.manual_seed(0)
            layers = [nn.Linear(784, case.size), nn.ReLU(), nn.Linear(case.size, case.size), nn.ReLU()]
            return nn.Sequential(*layers, nn.Linear(case.size, 10)), torch.randn(case.batch, 784), 10
    shape = (3, 32, 32) if case.model == "resnet18" else (1, 28, 28)
    return build_model(case.model, shape, 10, generator), torch.randn(case.batch, *shape, generator=generator), 10


def stepper(contender: str, case: Case) -> Callable[[], None]:
    """A function that takes one step on a fixed batch; ours adds Gamma-PLRV noise, Opacus Gaussian."""
    generator = torch.Generator().manual_seed(0)
    module, x, classes = _inputs(case, generator)
    y = torch.randint(0, classes, (case.batch,), generator=generator)
    return stepping(contender, module, x, y)


def stepping(
    contender: str, module: Any, x: torch.Tensor, y: torch.Tensor, mode: str = "", parts: int = 1
) -> Callable[[], None]:
    """The same for any module and batch; `mode` is that of ours, book-keeping unless something else is asked for.

    With several `parts`, each goes through by itself, as `BatchMemoryManager` has it, and the last one takes the step.
    """
    optimizer: Any = torch.optim.SGD([p for p in module.parameters() if p.requires_grad], lr=0.01, momentum=0.9)
    loss: Any = nn.CrossEntropyLoss()
    data = DataLoader(TensorDataset(x, y), batch_size=len(x))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if contender in (OURS, OURS_HOOKS, OURS_EXACT):
            dimension = sum(p.numel() for p in module.parameters() if p.requires_grad)
            work = plrvo.Workload(sample_rate=0.01, steps=10**6, clip=1.0, dimension=dimension)
            noise: plrvo.Noise = plrvo.GammaPLRV(k=100.0, theta=0.01)
            if contender == OURS_EXACT:
                noise = GridNoise(noise, default_cell(noise, work))
            engine = PrivacyEngine(plrvo.Plan(noise, work, None, 1e-5))
            mode = mode or ("bookkeeping" if contender == OURS else "hooks")
            module, optimizer, _ = engine.make_private(
                module=module, optimizer=optimizer, data_loader=data, grad_sample_mode=mode
            )
        elif contender == PLAIN_FASTER:
            Lent(module)
        elif contender != PLAIN:
            mode = contender.removeprefix("Opacus ")
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
    module.train()
    draws = getattr(optimizer, "draws", None)

    def step() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for number, (some, of) in enumerate(zip(x.chunk(parts), y.chunk(parts), strict=True), start=1):
                optimizer.zero_grad()
                if draws is not None and number == 1:
                    draws.drawn(range(len(x)))  # the loader would have said so
                if parts > 1:
                    optimizer.signal_skip_step(do_skip=number < parts)
                loss(module(some), of).backward()
                optimizer.step()

    return step


def peak_memory(contender: str, case: Case) -> float:
    """Peak resident megabytes of a fresh process that takes three steps."""
    code = f"from checks.benchmarks.steps import *; report_memory({contender!r}, {case!r})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return float(done.stdout.strip().splitlines()[-1])


def report_memory(contender: str, case: Case) -> None:
    """Run in the fresh process."""
    step = stepper(contender, case)
    for _ in range(3):
        step()
    print(highest_memory())


def highest_memory() -> float:
    """Peak resident megabytes of this process. Not getrusage: its maximum is inherited from who started it."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024
