"""Tokens per second of MiniLM: a private step with Gamma noise, Opacus ghost with Gaussian noise, no privacy."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import opacus
import torch
from torch.utils.data import DataLoader, TensorDataset

import plrvo
from checks.benchmarks.timing import interleaved, shown
from plrvo.tasks.text.models import load_checkpoint
from plrvo.tasks.text.trainable import choose, dimension
from plrvo.tasks.transformer import LogitsLoss
from plrvo.training import PrivacyEngine

EXAMPLES, TOKENS = 32, 32
TRAINABLE = ("all", "lora", "bias")
CONTENDERS = ("ours", "opacus ghost", "no privacy")


def stepper(contender: str, trainable: str) -> Callable[[], None]:
    """A function that takes one step on a fixed batch."""
    generator = torch.Generator().manual_seed(0)
    checkpoint = load_checkpoint("minilm", 2, generator)
    module: Any = checkpoint.model
    choose(module, trainable, generator)
    ids = torch.randint(1000, 30_000, (EXAMPLES, TOKENS), generator=generator)
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "token_type_ids": torch.zeros_like(ids)}
    labels = torch.randint(0, 2, (EXAMPLES,), generator=generator)
    trained = [p for p in module.parameters() if p.requires_grad]
    optimizer: Any = torch.optim.AdamW(trained, lr=1e-5)
    loss: Any = LogitsLoss()
    data: Any = DataLoader(TensorDataset(ids, labels), batch_size=EXAMPLES)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if contender == "ours":
            work = plrvo.Workload(sample_rate=0.01, steps=10**6, clip=1.0, dimension=dimension(module))
            engine = PrivacyEngine(plrvo.Plan(plrvo.GammaPLRV(k=100.0, theta=0.01), work, None, 1e-5))
            module, optimizer, _ = engine.make_private(
                module=module, optimizer=optimizer, data_loader=data, grad_sample_mode="bookkeeping"
            )
        elif contender == "opacus ghost":
            module, optimizer, loss, _ = opacus.PrivacyEngine().make_private(
                module=module,
                optimizer=optimizer,
                criterion=loss,
                data_loader=data,
                noise_multiplier=1.0,
                max_grad_norm=1.0,
                grad_sample_mode="ghost",
                poisson_sampling=False,
            )

    def step() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            optimizer.zero_grad()
            loss(module(**inputs), labels).backward()
            optimizer.step()

    return step


def run() -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for trainable in TRAINABLE:
        times = interleaved({contender: stepper(contender, trainable) for contender in CONTENDERS}, turns=7)
        ours, theirs, plain = (times[contender] for contender in CONTENDERS)
        speed = {name: EXAMPLES * TOKENS / timing.median for name, timing in times.items()}
        rows.append(
            {
                "what": f"step, MiniLM, {trainable}, {EXAMPLES} examples of {TOKENS} tokens, "
                "against Opacus ghost with Gaussian noise",
                "ours": f"{speed['ours']:.0f} tokens/s (step {shown(ours.median)}, spread {shown(ours.spread)})",
                "theirs": f"{speed['opacus ghost']:.0f} tokens/s, {speed['no privacy']:.0f} without privacy "
                f"(spread {shown(theirs.spread)}, {shown(plain.spread)})",
                "ratio": f"{ours.median / theirs.median:.2f}x its time, {ours.median / plain.median:.2f}x no privacy",
            }
        )
    return rows
