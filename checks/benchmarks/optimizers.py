"""The optimizer's own part of a step: torch's forms of it on the parameters of two models, in computing time.

One parameter after the other (torch's choice on processors), all of a group in one call ("foreach"), or everything in
one pass over memory ("fused", which `plrvo train` asks for). And the averaging of weights, which has the first two.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import torch
from torch import Tensor

from checks.benchmarks.field_models import MODELS
from checks.benchmarks.timing import interleaved, shown

_FORMS: dict[str, dict[str, bool]] = {
    "loop": {"foreach": False, "fused": False},
    "foreach": {"foreach": True},
    "fused": {"fused": True},
}
_TURNS = 21


def _optimizers() -> dict[str, Any]:
    """Makers of those that `plrvo train` has, with what it sets."""
    return {
        "SGD with momentum": partial(torch.optim.SGD, lr=0.1, momentum=0.9),
        "Adam": partial(torch.optim.Adam, lr=1e-3),
        "AdamW": partial(torch.optim.AdamW, lr=1e-3),
    }


def _trained(shapes: list[torch.Size]) -> list[Tensor]:
    parameters = [torch.randn(shape, requires_grad=True) for shape in shapes]
    for p in parameters:
        p.grad = torch.randn_like(p)
    return parameters


def _average_in_a_loop(averages: list[Tensor], weights: list[Tensor]) -> None:
    for average, p in zip(averages, weights, strict=True):
        average.lerp_(p, 0.1)


def _rows(name: str) -> list[dict[str, Any]]:
    shapes = [p.shape for p in MODELS[name].make().parameters()]
    of = f"{len(shapes)} parameters of {MODELS[name].title}, {sum(shape.numel() for shape in shapes):,} numbers"
    rows = []
    for kind, make in _optimizers().items():
        forms = {form: make(_trained(shapes), **settings).step for form, settings in _FORMS.items()}
        times = interleaved(forms, turns=_TURNS, clock=time.process_time)
        ours, loop, foreach = (times[form].median for form in ("fused", "loop", "foreach"))
        rows.append(
            {
                "what": f"step of {kind}, {of}: fused against a loop (foreach)",
                "ours": shown(ours),
                "theirs": f"{shown(loop)} ({shown(foreach)})",
                "ratio": f"{ours / loop:.2f}x the time",
            }
        )
    averages, weights = ([torch.randn(shape) for shape in shapes] for _ in range(2))
    times = interleaved(
        {
            "loop": lambda: _average_in_a_loop(averages, weights),
            "foreach": lambda: torch._foreach_lerp_(averages, weights, 0.1),
        },
        turns=_TURNS,
        clock=time.process_time,
    )
    loop, foreach = times["loop"].median, times["foreach"].median
    rows.append(
        {
            "what": f"average of weights, {of}: a loop against foreach",
            "ours": shown(loop),
            "theirs": shown(foreach),
            "ratio": f"{loop / foreach:.2f}x the time",
        }
    )
    return rows


def run() -> list[dict[str, Any]]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return [row for name in ("resnet18", "bert") for row in _rows(name)]
    finally:
        torch.set_num_threads(threads)
