"""Integer noise against torch's normal and floating-point noise of its kind; an exact step against one in floats."""

from __future__ import annotations

import torch

import plrvo
from checks.benchmarks.steps import OURS_EXACT, OURS_HOOKS, Case, stepper
from checks.benchmarks.timing import interleaved, shown
from plrvo.noise import GridNoise, Keystream

COUNT = 10_000_000
CELL = 2.0**-20
LARGE = Case("mlp", batch=8, size=6600)  # 4.9e7 parameters


def run() -> list[dict[str, object]]:
    return [*_noise(), *_steps()]


def _steps() -> list[dict[str, object]]:
    times = interleaved({mode: stepper(mode, LARGE) for mode in (OURS_EXACT, OURS_HOOKS)}, turns=5)
    ours, theirs = times[OURS_EXACT].median, times[OURS_HOOKS].median
    return [
        {
            "what": "an exact step at 4.9e7 parameters, batch 8, against per-example gradients in floating point",
            "ours": shown(ours),
            "theirs": shown(theirs),
            "ratio": f"{ours / theirs:.2f}x the time",
        }
    ]


def _noise() -> list[dict[str, object]]:
    generator, keystream = torch.Generator().manual_seed(0), Keystream()
    noises = {
        "gamma": plrvo.GammaPLRV(k=100.0, theta=0.01),
        "laplace": plrvo.Laplace(1.0),
        "gaussian": plrvo.Gaussian(1.0),
    }
    integers, singles = torch.zeros(COUNT, dtype=torch.int64), torch.zeros(COUNT)
    contenders = {"normal_": lambda: singles.normal_(generator=generator)}
    for name, noise in noises.items():
        contenders[f"{name}, exact"] = lambda noise=noise: GridNoise(noise, CELL).add_to([integers], keystream)
        contenders[f"{name}, float"] = lambda noise=noise: noise.add_to([singles], generator)
    times = interleaved(contenders, turns=9)
    rows = []
    for name in noises:
        ours = times[f"{name}, exact"].median
        for other, what in (("normal_", "torch normal_"), (f"{name}, float", f"floating-point {name} noise")):
            theirs = times[other].median
            rows.append(
                {
                    "what": f"1e7 exact {name} integers, added to a buffer, against {what}",
                    "ours": shown(ours),
                    "theirs": shown(theirs),
                    "ratio": f"{ours / theirs:.2f}x the time",
                }
            )
    return rows
