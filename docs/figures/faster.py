"""Writes the section "Make your loop faster" of docs/troubleshooting.md: `python -m docs.figures.faster`.

Each line has what it gains, from `checks/benchmarks/results.json`, or says that there is no number.
"""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

from docs.figures.performance_field import HOOKS, OURS
from docs.figures.renewed import renewed

PAGE = Path(__file__).parents[1] / "troubleshooting.md"
START = "<!-- written by docs.figures.faster -->"
Rows = list[dict[str, Any]]

_SECTION = """## Make your loop faster {{ #faster }}

What each gains was measured on one machine with {cores} cores ([performance](performance.md)); time it on yours, after
the first steps.

1. **Leave `grad_sample_mode="auto"`**, and look which way your layers go: [models](models.md). Where every layer is
   *fast*, a step takes {fast} times as long as without privacy, on [{count} models](performance.md#field); Opacus's
   hooks take {hooks} times. *fallback*, *functorch* and `"alone"` are slower than *fast*: exchange a layer that
   asks for them.
2. **Train fewer parameters.** A decoder of {whole} parameters takes {whole_time} a step, LoRA on it
   {lora_time} (same table). The head alone on features that are computed once, biases, or the last layers
   (`plrvo train --trainable`, `--layers`, [`choose`](guide-text.md#what-is-trained-and-what-n-is) in your own loop)
   go the same way, and only what is trained gets noise.
3. **`fused=True` in the optimizer**: `torch.optim.AdamW(model.parameters(), fused=True)`. Its own part of a step takes
   {adam} times as long with Adam and AdamW, {sgd} with SGD ([the optimizer's own
   part](performance.md#optimizers)). `plrvo train` asks for it.
4. **Try one thread less than there are cores**: `torch.set_num_threads(1)` of two, or `OMP_NUM_THREADS=1`. Noise is
   drawn on the core that is left while gradients are clipped. {threads}
5. **Large batches go in parts**: `BatchMemoryManager`, or `--physical-batch`. {parts_time} for the time, {parts_memory}
   for the memory of {parts} beside one part alone ([beyond one step](performance.md#beyond)).
   So parts smaller than what memory allows may be faster, too.
6. **Pad little.** A padded position costs what a word costs. Cut long examples and pad all to one constant length; or
   mask padding and sort a batch that was drawn by length into parts, as `plrvo train` does with
   [text](guide-text.md#data). One length also saves tries: batches longer than all before are
   [tried](sharp-edges.md#padding). No number: it depends on your lengths.
7. **Keep memory from step to step**: `plrvo.training.memory.keep()` before anything else, or
   `MALLOC_TRIM_THRESHOLD_=2147483647 MALLOC_MMAP_THRESHOLD_=33554432`. The table of models was measured so, private and
   not; there is no number of what it gains. Memory may grow in long runs of batches of many sizes.
8. **Do not time the first steps.** In them module, loss and padding are
   [tried](guide-training.md#what-is-different-and-why): a try of a small network takes less than a step, of a loss over
   a large vocabulary as long as some dozen. Later tries take about a hundredth of a run's time.
9. **Evaluate in `model.eval()` and under `torch.no_grad()`**: nothing is recorded there, and it takes {evaluation}
   times as long as without privacy ([beyond one step](performance.md#beyond)). Evaluate seldom, too.

The guarantee depends on none of these; accuracy does on the second, and on what is cut."""


def section(results: dict[str, Any]) -> str:
    """The words, with numbers of these measurements."""
    groups = results["groups"]
    field = {row["model"]: row for row in groups["field"]}
    whole, lora = field["gpt2"], field["lora"]
    optimizers, beyond = groups["optimizers"], groups["beyond"]
    parts = [row for row in beyond if row["what"].startswith("peak memory")]
    return _SECTION.format(
        cores=results["cores"],
        count=len(field),
        fast=_span([row["to_plain"]["1"][OURS] for row in field.values()]),
        hooks=_span([row["to_plain"]["1"][HOOKS] for row in field.values() if HOOKS in row["to_plain"]["1"]]),
        whole=f"{whole['parameters']:,}",
        whole_time=_milliseconds(whole),
        lora_time=_milliseconds(lora),
        adam=_span([_ratio(row) for row in optimizers if row["what"].startswith(("step of Adam", "step of AdamW"))]),
        sgd=_span([_ratio(row) for row in optimizers if row["what"].startswith("step of SGD")]),
        threads=_threads(groups["field"]),
        parts_time=_only(beyond, "a step on")["ratio"].removesuffix(" the time"),
        parts_memory=_span([_ratio(row) for row in parts]) + "x",
        parts=_only(beyond, "a step on")["what"].removeprefix("a step on ").partition(",")[0],
        evaluation=_span([_ratio(row) for row in beyond if row["what"].startswith("evaluation")]),
    )


def _threads(rows: Rows) -> str:
    """Who is faster with one thread than with two."""
    ratios = {row["title"]: row["milliseconds"]["2"][OURS] / row["milliseconds"]["1"][OURS] for row in rows}
    sooner = [title for title, ratio in ratios.items() if ratio > 1]
    later = statistics.median([ratio for ratio in ratios.values() if ratio <= 1] or [1.0])
    names = "; ".join(sooner)
    return (
        f"On two cores that pays for {len(sooner)} of {len(rows)} [models](performance.md#field): {names}.\n"
        f"   The others take {later:.2f} times as long with both threads (median)."
    )


def _span(values: list[float]) -> str:
    low, high = (f"{value:.2f}" for value in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"


def _ratio(row: dict[str, Any]) -> float:
    return float(row["ratio"].partition("x")[0])


def _only(rows: Rows, beginning: str) -> dict[str, Any]:
    (row,) = (row for row in rows if row["what"].startswith(beginning))
    return row


def _milliseconds(row: dict[str, Any]) -> str:
    return f"{row['milliseconds']['1'][OURS]:.0f} ms"


def page(results: dict[str, Any]) -> str:
    """The whole page, with this section anew."""
    return renewed(PAGE, START, section(results))


if __name__ == "__main__":
    from docs.figures.performance import read

    PAGE.write_text(page(read()), encoding="utf-8")
