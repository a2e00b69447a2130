"""The audits: simulated runs per second, and an ensemble of models against the same training in a loop."""

from __future__ import annotations

import time
import warnings
from dataclasses import replace

import numpy as np
import torch
from torch import nn
from torch.func import functional_call, grad, vmap

import plrvo
from checks.benchmarks.timing import interleaved, shown
from plrvo.accounting import Plan
from plrvo.audit import Canary
from plrvo.audit.ensemble import Recipe, train
from plrvo.audit.losses import CoordinateLoss
from plrvo.audit.mechanism import simulator
from plrvo.audit.models import Examples, make_model
from plrvo.audit.quantised import QuantisedLoss
from plrvo.tasks.preset import InMemory
from plrvo.training import PrivacyEngine

STEPS, EXAMPLES, FEATURES = 576, 6000, 784  # those of the protocol
_PART = 24  # stand for them where every step costs the same: not in the engine, whose first steps try the module
NOISE = plrvo.GammaPLRV(k=100.0, theta=0.005)
# The engine's plan is made beforehand: certifying is no part of training.


def _network(kind: str) -> nn.Module:
    if kind == "lr":
        return nn.Linear(FEATURES, 2)
    return nn.Sequential(nn.Linear(FEATURES, 32), nn.ReLU(), nn.Linear(32, 2))


def _loop(kind: str, x: torch.Tensor, y: torch.Tensor, recipe: Recipe, models: int) -> None:
    """One model after the other; per-example gradients by torch.func, one batch at a time."""
    generator = torch.Generator().manual_seed(0)
    for _ in range(models):
        net = _network(kind)
        parameters = {name: value.detach() for name, value in net.named_parameters()}

        def loss(parameters, x, y, net=net):
            return nn.functional.cross_entropy(functional_call(net, parameters, (x.unsqueeze(0),)), y.unsqueeze(0))

        per_example = vmap(grad(loss), in_dims=(None, 0, 0))
        for _ in range(recipe.steps):
            batch = torch.rand(len(x), generator=generator) < recipe.sample_rate
            gradients = per_example(parameters, x[batch], y[batch])
            norms = torch.stack([g.flatten(1).square().sum(dim=1) for g in gradients.values()]).sum(dim=0).sqrt()
            factor = (recipe.clip / norms).clamp(max=1.0)
            for name, g in gradients.items():
                total = torch.einsum("b,b...->...", factor, g)
                total += NOISE.sample(tuple(total.shape), generator)
                parameters[name] = parameters[name] - recipe.learning_rate / recipe.divisor * total


def _engine(kind: str, x: torch.Tensor, y: torch.Tensor, recipe: Recipe, models: int) -> None:
    """One model after the other, trained by the training engine with the same noise."""
    data = torch.utils.data.DataLoader(InMemory(x, y), collate_fn=lambda batch: batch)
    dimension = sum(p.numel() for p in _network(kind).parameters())
    plan = Plan(NOISE, plrvo.Workload(recipe.sample_rate, recipe.steps, recipe.clip, dimension), None, 1e-5)
    for _ in range(models):
        net = _network(kind)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            net, optimizer, loader = PrivacyEngine(plan).make_private(
                module=net,
                optimizer=torch.optim.SGD(net.parameters(), lr=recipe.learning_rate),
                data_loader=data,
                expected_batch_size=round(recipe.divisor),
                steps_per_epoch=recipe.steps,
            )
            for a, b in loader:
                optimizer.zero_grad()
                nn.functional.cross_entropy(net(a), b).backward()
                optimizer.step()


def _ensembles() -> list[dict[str, object]]:
    generator = np.random.default_rng(0)
    x = generator.random((EXAMPLES, FEATURES)).astype(np.float32)
    y = (x[:, 0] > 0.5).astype(np.int64)
    whole = Recipe(sample_rate=1 / 24, steps=STEPS, clip=1.0, learning_rate=0.15, divisor=250.0)
    part = replace(whole, steps=_PART)
    x_t, y_t, rows = torch.from_numpy(x), torch.from_numpy(y), []
    for kind, models, name in (("lr", 100, "logistic regression"), ("fnn", 20, "two-layer network")):
        model, data = make_model(kind, FEATURES, 2), Examples(x, y)
        times = interleaved(
            {
                "ensemble": lambda k=models, m=model, d=data: train(m, d, part, NOISE, k, generator),
                "loop": lambda kind=kind: _loop(kind, x_t, y_t, part, 2),
                "engine": lambda kind=kind: _engine(kind, x_t, y_t, whole, 1),
            },
            turns=7,
            clock=time.process_time,
        )
        ours = times["ensemble"].median / models * STEPS / _PART
        found = {"engine": times["engine"].median, "loop": times["loop"].median / 2 * STEPS / _PART}
        for other, what in (("engine", "the training engine in a loop"), ("loop", "torch.func in a loop")):
            theirs = found[other]
            rows.append(
                {
                    "what": f"{name}, {STEPS} steps, seconds per model: ensemble against {what}, one core",
                    "ours": f"{shown(ours)} ({1 / ours:.1f} models/s)",
                    "theirs": f"{shown(theirs)} ({1 / theirs:.2f} models/s)",
                    "ratio": f"{theirs / ours:.1f}x faster",
                }
            )
    return rows


def _mechanism() -> list[dict[str, object]]:
    work = plrvo.Workload(sample_rate=0.01, steps=300, clip=0.5, dimension=26_010)
    noise, canary = plrvo.GammaPLRV(k=40_000, theta=1e-4), Canary.spread(work)
    generator = np.random.default_rng(0)
    simulate = simulator(noise, work, canary)
    at_once, one_by_one = QuantisedLoss(noise, canary), CoordinateLoss(noise, np.repeat(canary.magnitudes, 26_010))
    times = interleaved(
        {
            "runs": lambda: simulate(True, 8192, generator),
            "at once": lambda: at_once.draw(True, 1 << 15, generator),
            "one by one": lambda: one_by_one.draw(True, 64, generator),
        },
        turns=5,
    )
    start = time.perf_counter()
    QuantisedLoss(noise, canary)
    table = time.perf_counter() - start
    run, step = times["runs"].median / 8192, times["at once"].median / (1 << 15)
    coordinate = times["one by one"].median / 64
    return [
        {
            "what": f"white-box run of 300 steps, n=26,010, one core: {1 / run:,.0f} runs/s (table: {shown(table)})",
            "ours": shown(run),
            "theirs": "-",
            "ratio": f"a million in {shown(run * 1e6)}",
        },
        {
            "what": "loss of one step at n=26,010: from its exact law, against 26,010 coordinates",
            "ours": shown(step),
            "theirs": shown(coordinate),
            "ratio": f"{coordinate / step:,.0f}x faster",
        },
    ]


def run() -> list[dict[str, object]]:
    """Rows of (what, ours, theirs, ratio); everything on one core, and models by computing time."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return [*_mechanism(), *_ensembles()]
    finally:
        torch.set_num_threads(threads)
