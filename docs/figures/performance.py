"""Writes docs/performance.md and its pictures from the benchmarks' results: `python -m docs.figures.performance`."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
from docs.figures import faster, performance_field
from docs.figures.both import shown, write_both

from plrvo import appearance

CONTENDERS = ("no privacy", "plrvo", "Opacus hooks", "Opacus ghost")
ROOT = Path(__file__).parents[2]
PAGE, IMAGES = ROOT / "docs" / "performance.md", ROOT / "docs" / "images"
NAMES = {
    "training": "Training steps",
    "sampling": "Drawing noise",
    "forms": "The form of a layer's gradients",
    "beyond": "Beyond one step { #beyond }",
    "loading": "Fetching batches",
    "exact": "Exact noise",
    "large": "One large parameter",
    "optimizers": "The optimizer's own part { #optimizers }",
    "earlier": "Steps beside an earlier version { #earlier }",
    "text": "Text",
    "ftrl": "Correlated noise",
    "accounting": "Accounting",
    "design": "Design",
    "audit": "Audits",
    "imports": "Import",
}
WORDS = {
    "beyond": """\
A batch of any size goes through in parts (`BatchMemoryManager`), in the memory of one part; the peaks have
the examples themselves in them, which are there before.""",
    "large": """\
Megabytes that come with a model: parameters, momentum, gradient, and what else a step takes. A second copy of
the gradient would make it four thirds of the memory without privacy. The blocks in which noise is drawn are as large at
any size, and weigh on the smaller parameter only.""",
    "optimizers": """\
What torch does with the released gradient. `plrvo train` asks for one pass over memory (`fused=True`), which torch does
not choose by itself on processors; a loop of one's own can ask for it where it makes its optimizer. Averages of weights
are kept one parameter after the other: `foreach` goes through memory just as often.""",
}
# Programs, which are neither noises nor claims: the colours that are left.
LOOKS = dict(zip(CONTENDERS, appearance.lines(CONTENDERS), strict=True))

STEPS = shown("time of a training step against no privacy", "images/performance-steps.png")
# What was measured before noise came from a cipher, by digests of the rows: as soon as a group is measured again, it
# has other ones.
OLD = {"9f3c3a833090", "a642a6352a17", "bbb7036c5a00", "1a87a90dad3a", "1c90ea4fa5cf"}
_OLD = """\
*Measured before noise of floating point came from a cipher, norms were rounded up and losses were tried (see the
changelog), and not since. What that costs a step is measured [beside an earlier version](#earlier).*"""
OPENING = """# Performance

{taken} What it takes in your own loop you can change: [make your loop faster](troubleshooting.md#faster).

Compare ratios, not times: all are of one machine with {cores} cores. Times are medians over turns that the contenders
take in one process.

"""
WHY = """## How a step costs little more than one without privacy

The gradient of a linear layer's weight, for one example, is a sum of outer products of what went in and of the gradient
of what came out, one for each token. Opacus's hooks form that gradient for every example; its ghost clipping computes
the norms only and then takes a second backward pass. Here the one backward pass records both factors and computes no
weight gradient; norms come from the factors' products with each other, and one weighted matrix product gives the
clipped sum (`plrvo.training.clipping`; after Bu et al., 2022). Where the gradient is about as small as its factors, as
in most convolutions, it is formed at once and the factors are let go. Noise is added into the gradient's own buffer by
a kernel that stays in the cache and uses every core of torch's. Where torch was given fewer threads than there are
cores, the first two million numbers are drawn on one of the others while gradients are clipped: the same numbers,
used once.

A step drops much memory that the next one asks for again. On Linux the C library gives it back to the system in
between, and what is fresh has to be cleared, which takes a good part of a small step, private or not. So that ratios
say what privacy costs, all steps in the tables of twelve models were taken with memory kept, as by
`MALLOC_TRIM_THRESHOLD_=2147483647` and `MALLOC_MMAP_THRESHOLD_=33554432`, or `plrvo.training.memory.keep()` before
anything else. plrvo does not set this by itself: in long runs of batches of many sizes the process may grow.

## Why an embedding's gradient is not sparse

Noise is on every coordinate of what a step releases, also on rows of an embedding that no example of the batch has. A
step that left those out would show which words, or users, the batch has, and no account covers that. So the sum of an
embedding is dense, and `nn.Embedding(sparse=True)` is taken, gives the same numbers and saves nothing; `SparseAdam`,
which steps by sparse gradients only, is refused. Norms and sums are computed from the tokens that examples have; the
noise is what every row costs.
"""
ALL = """## All measurements

`make bench` runs every measurement on this page and writes `checks/benchmarks/results.json`, from which this page and
its pictures are made. Spreads are interquartile ranges."""


def _table(rows: list[dict[str, Any]]) -> str:
    lines = ["| measured | plrvo | others | ratio |", "|---|---|---|---|"]
    lines += [f"| {row['what']} | {row['ours']} | {row['theirs']} | {row['ratio']} |" for row in rows]
    return "\n".join(lines)


def is_old(rows: list[dict[str, Any]]) -> bool:
    """Whether these very rows are from before noise came from a cipher."""
    return hashlib.sha256(json.dumps(rows, sort_keys=True).encode()).hexdigest()[:12] in OLD


def _group(name: str, rows: list[dict[str, Any]]) -> str:
    words = [*([_OLD] if is_old(rows) else []), *([STEPS] if name == "training" else [])]
    return "\n\n".join([f"### {NAMES[name]}", *words, *([WORDS[name]] if name in WORDS else []), _table(rows)])


def page(results: dict[str, Any]) -> str:
    """The whole page."""
    groups = results["groups"]
    parts = [OPENING.format(cores=results["cores"], taken=performance_field.taken(groups)).rstrip()]
    parts += [performance_field.section(groups), WHY.rstrip(), ALL, performance_field.details(groups)]
    parts += [_group(name, groups[name]) for name in NAMES if name in groups]
    if "growth" in groups:
        pictures = "\n\n".join(shown(row["what"], f"images/{_file(row).name}") for row in groups["growth"])
        parts.append("\n\n".join(["### Growth", *([_OLD] if is_old(groups["growth"]) else []), pictures]))
    return "\n\n".join(part for part in parts if part) + "\n"


def _file(row: dict[str, Any]) -> Path:
    return IMAGES / f"performance-{row['unit']}-by-{row['axis']}.png"


def draw_steps(rows: list[dict[str, Any]]) -> None:
    """Bars: each contender's step in units of the step without privacy."""
    cases = [row for row in rows if "seconds" in row]
    figure, axes = plt.subplots(figsize=(8, 3.4), layout="constrained")
    for i, contender in enumerate(CONTENDERS):
        heights = [row["seconds"][contender] / row["seconds"]["no privacy"] for row in cases]
        bars = axes.bar([j + 0.2 * (i - 1.5) for j in range(len(cases))], heights, 0.2, label=contender)
        bars.patches[0].axes.bar_label(bars, fmt="%.2f", fontsize=8)
        for bar in bars:
            bar.set_color(LOOKS[contender]["color"])
    axes.set_xticks(range(len(cases)), [row["model"].replace(", batch", "\nbatch") for row in cases], fontsize=8)
    axes.set_ylabel("time of a step, no privacy = 1")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8)
    write_both(figure, IMAGES / "performance-steps.png", dpi=120)
    plt.close(figure)


def draw_growth(row: dict[str, Any]) -> None:
    """One picture with logarithmic axes."""
    figure, axes = plt.subplots(figsize=(6, 3.2), layout="constrained")
    looks = zip(row["curves"], appearance.lines(list(row["curves"])), strict=True)
    for name, look in looks:
        points = zip(*row["curves"][name], strict=True)
        axes.loglog(*points, markersize=4, label=name, **LOOKS.get(name, look))
    for axis in (axes.xaxis, axes.yaxis):
        appearance.tick_logarithms(axis)
    axes.set_xlabel(row["axis"])
    axes.set_ylabel(row["unit"])
    axes.set_title(row["picture"], fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8)
    write_both(figure, _file(row), dpi=120)
    plt.close(figure)


def read() -> dict[str, Any]:
    """The measurements."""
    results: dict[str, Any] = json.loads((ROOT / "checks" / "benchmarks" / "results.json").read_text())
    return results


if __name__ == "__main__":
    measured = read()
    draw_steps(measured["groups"]["training"])
    if "field" in measured["groups"]:
        performance_field.draw(measured["groups"]["field"], LOOKS, IMAGES)
    for each in measured["groups"]["growth"]:
        draw_growth(each)
    PAGE.write_text(page(measured), encoding="utf-8")
    faster.PAGE.write_text(faster.page(measured), encoding="utf-8")
