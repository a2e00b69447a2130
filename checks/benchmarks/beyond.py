"""Beyond one step: batches that go through in parts, and evaluation of a module that is trained privately.

Computing time of one thread, the contenders taking turns; peak memory is that of processes of their own.
"""

from __future__ import annotations

import time
from typing import Any

import torch

from checks.benchmarks.field_models import MODELS
from checks.benchmarks.processes import in_a_process
from checks.benchmarks.steps import OURS, highest_memory, stepping
from checks.benchmarks.timing import Timing, interleaved, shown
from plrvo.training.clipping.mode import wrapper_of

_PART = 256
_FIRST = 9  # steps in which models and losses are tried, and passes listened to


def _step(batch: int, parts: int) -> Any:
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(batch, 1, 28, 28, generator=generator), torch.randint(0, 10, (batch,), generator=generator)
    return stepping(OURS, MODELS["cnn"].make(), x, y, mode="auto", parts=parts)


def _times() -> dict[str, Timing]:
    whole, parts = _step(4 * _PART, 1), _step(4 * _PART, 4)
    for step in (whole, parts):
        for _ in range(_FIRST):
            step()
    return interleaved({"whole": whole, "parts": parts}, turns=9, clock=time.process_time)


def _memory(batch: int, parts: int) -> float:
    step = _step(batch, parts)
    for _ in range(3):
        step()
    return highest_memory()


def _virtual() -> list[dict[str, object]]:
    times = in_a_process(_times)
    rows: list[dict[str, object]] = [
        {
            "what": f"a step on {4 * _PART} examples in parts of {_PART}, CNN of the paper's tables, against one batch",
            "ours": shown(times["parts"].median),
            "theirs": shown(times["whole"].median),
            "ratio": f"{times['parts'].median / times['whole'].median:.2f}x the time",
        }
    ]
    least = in_a_process(_memory, _PART, 1)
    for many in (4, 16):
        found = in_a_process(_memory, many * _PART, many)
        rows.append(
            {
                "what": f"peak memory, {many * _PART} examples in parts of {_PART}, against a batch of {_PART}",
                "ours": f"{found:.0f} MB",
                "theirs": f"{least:.0f} MB",
                "ratio": f"{found / least:.2f}x the memory",
            }
        )
    return rows


def _evaluation(name: str) -> dict[str, object]:
    x, _ = MODELS[name].batch(torch.Generator().manual_seed(0))
    plain, ours = MODELS[name].make(), MODELS[name].make()
    private = wrapper_of("bookkeeping", ours, asked="auto")(ours)
    plain.eval()
    private.eval()
    with torch.no_grad():
        times = interleaved(
            {"plain": lambda: plain(x), "private": lambda: private(x)}, turns=25, clock=time.process_time
        )
    return {
        "what": f"evaluation, {MODELS[name].title}, batch {len(x)}, against a module without privacy",
        "ours": shown(times["private"].median),
        "theirs": shown(times["plain"].median),
        "ratio": f"{times['private'].median / times['plain'].median:.2f}x the time",
    }


def run() -> list[dict[str, Any]]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return [*_virtual(), *(_evaluation(name) for name in ("mlp", "recommender", "vit", "lora"))]
    finally:
        torch.set_num_threads(threads)
