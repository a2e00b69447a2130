"""A step of twelve models from the field: no privacy, Opacus's two modes and ours, which chooses by itself ("auto").

Ours multiplies in linear layers by oneDNN, where torch does by MKL. What of a ratio comes from that shows a step
without privacy whose products go the same way.

Each contender has a process of its own for one thread and one for two, and they take turns; a ratio is the median over
the turns of the two times in one turn, which is the time that passes: the machine has to be quiet. What the process
computes is kept beside it, for one thread: plrvo's noise may be drawn on a core that torch's threads leave free, and
counts there. Peak memory is that of such a process, its first steps included. All of them let the C library keep a
step's memory for the next one.
`python -m checks.benchmarks.field NAME` measures single models.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

# Before processes are forked, as is everything that models are made of and that noise is drawn with.
import transformers  # noqa: F401
from cryptography.hazmat.primitives.ciphers import algorithms  # noqa: F401

from checks.benchmarks.field_models import MODELS, parameters_of
from checks.benchmarks.processes import Contender, Times
from checks.benchmarks.steps import CONTENDERS, GHOST, HOOKS, OURS, PLAIN, PLAIN_FASTER, stepping
from plrvo.training.memory import keep

THREADS = (1, 2)
FIRST = {
    OURS: 9
}  # steps that are not counted: in them models and losses are tried and passes listened to; of others one
_SECONDS, _FEWEST, _MOST = 6.0, 5, 21  # how long the turns of a model take, about, and how many there are
_OPACUS = (HOOKS, GHOST)


def _stepper(name: str, contender: str) -> Callable[[], None]:
    model = MODELS[name]
    torch.manual_seed(0)
    keep()  # in every process: a ratio is to say what privacy costs, not what the allocator does
    make = model.for_opacus if contender in _OPACUS and model.for_opacus else model.make
    return stepping(contender, make(), *model.batch(torch.Generator().manual_seed(0)), mode="auto")


def take_turns(name: str, threads: int) -> dict[str, Any]:
    """Times of every turn by contender and the peak of its memory; of one that cannot do the model, its error."""
    processes = {
        contender: Contender(partial(_stepper, name, contender), FIRST.get(contender, 1), threads)
        for contender in (*CONTENDERS, PLAIN_FASTER)
    }
    errors = {contender: process.error for contender, process in processes.items() if process.error}
    running = {contender: process for contender, process in processes.items() if not process.error}
    times: dict[str, list[Times]] = {contender: [] for contender in running}
    start = time.perf_counter()
    for turn in range(_MOST):
        if turn >= _FEWEST and time.perf_counter() - start > _SECONDS:
            break
        for contender, process in running.items():
            times[contender].append(process.step()[0])
    return {"times": times, "errors": errors, "megabytes": {c: process.end() for c, process in running.items()}}


def _row(name: str) -> dict[str, Any]:
    return row_of(name, {threads: take_turns(name, threads) for threads in THREADS})


def row_of(name: str, turns: dict[int, Any]) -> dict[str, Any]:
    """What was measured of a model, by the number of threads."""
    model = MODELS[name]
    seconds, computed = (
        {t: {c: [pair[kind] for pair in of] for c, of in found["times"].items()} for t, found in turns.items()}
        for kind in (0, 1)
    )
    memory = turns[1]["megabytes"]
    x, _ = model.batch(torch.Generator().manual_seed(0))
    row: dict[str, Any] = {
        "model": name,
        "title": model.title,
        "batch": len(x),
        "parameters": parameters_of(model.make()),
        "errors": turns[1]["errors"],
        "megabytes": memory,
        "turns": {str(t): len(of[PLAIN]) for t, of in seconds.items()},
        "milliseconds": {str(t): {c: 1e3 * statistics.median(v) for c, v in of.items()} for t, of in seconds.items()},
        "spread": {str(t): {c: 1e3 * _spread(v) for c, v in of.items()} for t, of in seconds.items()},
        "to_plain": {str(t): {c: _ratio(v, of[PLAIN]) for c, v in of.items()} for t, of in seconds.items()},
        "computed_to_plain": {c: _ratio(v, computed[1][PLAIN]) for c, v in computed[1].items()},
        "same_products": {str(t): _ratio(of[OURS], of[PLAIN_FASTER]) for t, of in seconds.items()},
        "to_ours": {str(t): {c: _ratio(v, of[OURS]) for c, v in of.items()} for t, of in seconds.items()},
    }
    ratios = row["to_plain"]["1"]
    best = min((ratios[mode] for mode in _OPACUS if mode in ratios), default=None)
    return {
        **row,
        "what": f"step, {model.title}, batch {len(x)}",
        "ours": f"{ratios[OURS]:.2f}x no privacy",
        "theirs": "Opacus cannot" if best is None else f"Opacus {best:.2f}x no privacy",
        "ratio": f"memory {memory[OURS] / memory[PLAIN]:.2f}x no privacy",
    }


def _spread(values: list[float]) -> float:
    quartiles = statistics.quantiles(values, n=4)
    return quartiles[2] - quartiles[0]


def _ratio(values: list[float], others: list[float]) -> float:
    return statistics.median(one / other for one, other in zip(values, others, strict=True))


def run() -> list[dict[str, Any]]:
    rows = []
    for name in MODELS:
        rows.append(_row(name))
        print(f"  {rows[-1]['what']}: {rows[-1]['ours']}, {rows[-1]['theirs']}, {rows[-1]['ratio']}", flush=True)
    return rows


if __name__ == "__main__":
    for each in sys.argv[1:] or MODELS:
        print(json.dumps(_row(each)), flush=True)
