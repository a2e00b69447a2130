"""A step of twelve models from the field: no privacy, Opacus's two modes and ours, which chooses by itself ("auto").

Each model has a process of its own for one thread and one for two, in which the contenders take turns; a ratio is the
median over the turns of the two times in one turn. With one thread what the process computes counts (CPU), so that
others on the machine weigh little; with two, where waiting threads count as computing, it is the time that passes. Peak
memory is that of a process for each contender alone. `python -m checks.benchmarks.field NAME` measures single models.
"""

from __future__ import annotations

import json
import multiprocessing
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
import transformers  # noqa: F401  (before processes are forked, as is everything that models are made of)

from checks.benchmarks.field_models import MODELS, parameters_of
from checks.benchmarks.steps import CONTENDERS, GHOST, HOOKS, OURS, PLAIN, highest_memory, stepping

THREADS = (1, 2)
FIRST = {
    OURS: 9
}  # steps that are not counted: in them models and losses are tried and passes listened to; of others one
_SECONDS, _FEWEST, _MOST = 3.0, 3, 21  # how long the turns of a model compute, about, and how many there are
_OPACUS = (HOOKS, GHOST)


def _stepper(name: str, contender: str) -> Callable[[], None]:
    model = MODELS[name]
    torch.manual_seed(0)
    make = model.for_opacus if contender in _OPACUS and model.for_opacus else model.make
    return stepping(contender, make(), *model.batch(torch.Generator().manual_seed(0)), mode="auto")


def _error(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).strip().splitlines()[0][:160]}" if str(error) else type(error).__name__


def take_turns(name: str) -> dict[str, Any]:
    """Seconds of every turn by contender, (wall, CPU); of one that cannot do the model, the first line of its error."""
    steps, errors = {}, {}
    for contender in CONTENDERS:
        try:
            step = _stepper(name, contender)
            for _ in range(FIRST.get(contender, 1)):
                step()
            steps[contender] = step
        except Exception as error:  # Opacus's, whatever it is
            errors[contender] = _error(error)
    seconds: dict[str, list[tuple[float, float]]] = {contender: [] for contender in steps}
    start = time.process_time()
    for turn in range(_MOST):
        if turn >= _FEWEST and time.process_time() - start > _SECONDS:
            break
        for contender, step in steps.items():
            began = time.perf_counter(), time.process_time()
            step()
            seconds[contender].append((time.perf_counter() - began[0], time.process_time() - began[1]))
    return {"seconds": seconds, "errors": errors}


def take_memory(name: str, contender: str) -> float:
    """Peak megabytes of three steps."""
    step = _stepper(name, contender)
    for _ in range(3):
        step()
    return highest_memory()


def in_a_process(work: Callable[..., Any], *arguments: Any, threads: int = 1) -> Any:
    """What the work gives in a process of its own; None where that ends without an answer.

    It is forked from this one, which has imported everything and computed nothing: its memory is what it begins with.
    """
    fork = multiprocessing.get_context("fork")
    answers = fork.SimpleQueue()

    def run_alone() -> None:
        torch.set_num_threads(threads)
        try:
            answers.put(work(*arguments))
        except Exception as error:
            answers.put(_error(error))

    process = fork.Process(target=run_alone)
    process.start()
    process.join()
    return None if answers.empty() else answers.get()


def _row(name: str) -> dict[str, Any]:
    turns = {threads: in_a_process(take_turns, name, threads=threads) for threads in THREADS}
    memory = {contender: in_a_process(take_memory, name, contender) for contender in CONTENDERS}
    return row_of(name, turns, memory)


def row_of(name: str, turns: dict[int, Any], memory: dict[str, Any]) -> dict[str, Any]:
    """What was measured of a model: turns by the number of threads, and peak megabytes, or an error in their place."""
    model = MODELS[name]
    seconds = {
        t: {c: [pair[t == 1] for pair in of] for c, of in found["seconds"].items()} for t, found in turns.items()
    }
    memory = {contender: found for contender, found in memory.items() if isinstance(found, float)}
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
        "to_ours": {str(t): {c: _ratio(v, of[OURS]) for c, v in of.items()} for t, of in seconds.items()},
    }
    ratios = row["to_plain"]["1"]
    best = min((ratios[mode] for mode in _OPACUS if mode in ratios), default=None)
    known = PLAIN in memory and OURS in memory
    return {
        **row,
        "what": f"step, {model.title}, batch {len(x)}",
        "ours": f"{ratios[OURS]:.2f}x no privacy",
        "theirs": "Opacus cannot" if best is None else f"Opacus {best:.2f}x no privacy",
        "ratio": f"memory {memory[OURS] / memory[PLAIN]:.2f}x no privacy" if known else "",
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
