"""How time and memory grow: with the batch, the parameters, the values of noise, the dimension and the steps."""

from __future__ import annotations

from collections.abc import Callable

import torch

import plrvo
from checks.benchmarks.steps import CONTENDERS, Case, peak_memory, stepper
from checks.benchmarks.timing import interleaved
from plrvo.accounting.lower import _step

Curves = dict[str, list[tuple[float, float]]]


def _training(cases: dict[int, Case], turns: int) -> tuple[Curves, Curves]:
    seconds: Curves = {contender: [] for contender in CONTENDERS}
    megabytes: Curves = {contender: [] for contender in CONTENDERS}
    for x, case in cases.items():
        times = interleaved({contender: stepper(contender, case) for contender in CONTENDERS}, turns)
        for contender in CONTENDERS:
            seconds[contender].append((x, times[contender].median))
            megabytes[contender].append((x, peak_memory(contender, case)))
    return seconds, megabytes


def _noise() -> Curves:
    generator = torch.Generator().manual_seed(0)
    gamma, laplace = plrvo.GammaPLRV(k=100.0, theta=0.01), plrvo.Laplace(1.0)
    curves: Curves = {"torch normal_": [], "Gamma-PLRV": [], "Laplace": []}
    for exponent in range(4, 9):
        buffer = torch.zeros(10**exponent)
        contenders: dict[str, Callable[[], object]] = {
            "torch normal_": lambda b=buffer: b.normal_(generator=generator),
            "Gamma-PLRV": lambda b=buffer: gamma.add_to([b], generator),
            "Laplace": lambda b=buffer: laplace.add_to([b], generator),
        }
        for name, timing in interleaved(contenders, 5).items():
            curves[name].append((10**exponent, timing.median))
    return curves


def _accounting(works: dict[int, plrvo.Workload]) -> Curves:
    noise = plrvo.GammaPLRV(k=40_000, theta=6e-5)
    curves: Curves = {"bracket": [], "certified": []}

    def bracket(work: plrvo.Workload) -> None:
        _step.cache_clear()
        plrvo.epsilon(noise, work, 1e-5)

    for x, work in works.items():
        contenders: dict[str, Callable[[], object]] = {
            "bracket": lambda w=work: bracket(w),
            "certified": lambda w=work: plrvo.Ledger().plus(noise, w).certified(1e-5),
        }
        for name, timing in interleaved(contenders, 5).items():
            curves[name].append((x, timing.median))
    return curves


def run() -> list[dict[str, object]]:
    """One row for each picture: its curves, and a sentence for the terminal."""
    by_batch = _training({batch: Case("cnn", batch) for batch in (75, 300, 1200)}, 7)
    by_width = {width: Case("mlp", 128, width) for width in (128, 512, 2048)}
    parameters = {784 * w + w + w * w + w + 10 * w + 10: case for w, case in by_width.items()}
    by_parameters = _training(parameters, 5)
    pictures: dict[tuple[str, str, str], Curves] = {
        ("time of a step, CNN", "batch", "seconds"): by_batch[0],
        ("peak memory, CNN", "batch", "megabytes"): by_batch[1],
        ("time of a step, three linear layers, batch 128", "parameters", "seconds"): by_parameters[0],
        ("peak memory, three linear layers, batch 128", "parameters", "megabytes"): by_parameters[1],
        ("adding noise", "values", "seconds"): _noise(),
        ("accounting", "dimension", "seconds"): _accounting(
            {10**i: plrvo.Workload(0.01, 300, 0.5, 10**i) for i in range(0, 10, 3)}
        ),
        ("accounting, n = 26,010", "steps", "seconds"): _accounting(
            {10**i: plrvo.Workload(0.01, 10**i, 0.5, 26_010) for i in range(1, 6)}
        ),
    }
    return [
        {
            "what": f"{what}, {unit} against {axis}",
            "ours": "",
            "theirs": "",
            "ratio": "; ".join(f"{name} {c[0][1]:.3g} to {c[-1][1]:.3g}" for name, c in curves.items()),
            "picture": what,
            "axis": axis,
            "unit": unit,
            "curves": curves,
        }
        for (what, axis, unit), curves in pictures.items()
    ]
