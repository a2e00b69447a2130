"""The section of the results page about table-to-text, from results/tables.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FILE = Path(__file__).parents[2] / "results" / "tables.json"
METRICS = {"bleu": "BLEU", "nist": "NIST", "meteor_exact_stem": "METEOR*", "rouge_l": "ROUGE-L", "cider": "CIDEr"}


def tables_section() -> str:
    """Five metrics and ten generations for each noise."""
    rows = json.loads(FILE.read_text(encoding="utf-8"))
    receipt = next(row["receipt"] for row in rows if row["receipt"])
    lines = [
        "## E2E, table to text",
        "",
        *_setting(receipt),
        "",
        "| noise | " + " | ".join(METRICS.values()) + " | test loss | certified | lower | published |",
        "|---|" + "---|" * (len(METRICS) + 4),
        *(_row(row) for row in rows),
        "",
        "METEOR* is the variant with exact and stem matches that the [guide](guide-tables.md#metrics) describes, not",
        "the number of papers. The certified epsilon is that of one pair of a table and a text; a table of E2E has up",
        f"to {receipt['task']['group_size']} of them, for which, taken together, {_group(receipt)}.",
        "",
        *_reading(rows),
        "",
        "Ten of the texts, for the same tables in every row:",
        "",
        *_samples(rows),
    ]
    return "\n".join(lines)


def _setting(receipt: dict[str, Any]) -> list[str]:
    task, plan, run = receipt["task"], receipt["plan"], receipt["run"]
    work = plan["workload"]
    return [
        f"{task['model']}, trained: {task['trainable']} ({task['trainable_parameters']:,} parameters), "
        f"{task['examples']:,} pairs, sampling rate {work['sample_rate']}",
        f"(batches of {run['expected_batch_size']:.0f}), {work['steps']} steps, clip {work['clip']}, delta "
        f"{plan['delta']:g}, {run['optimizer']}, learning rate {run['learning_rate']:g}",
        f"with {run['schedule']} decay, one seed. Tested on {task['tested_on']}, beam search with "
        f"{task['decoding']['beams']} beams.",
        "`results/tables.py` made the numbers.",
    ]


def _row(row: dict[str, Any]) -> str:
    epsilons = (row[f"epsilon_{name}"] for name in ("certified", "lower", "published"))
    cells = [
        row["noise"],
        *(f"{row[name]:.3f}" for name in METRICS),
        f"{row['loss']:.2f}",
        *("-" if value is None else f"{value:.3f}" for value in epsilons),
    ]
    return "| " + " | ".join(cells) + " |"


def _reading(rows: list[dict[str, Any]]) -> list[str]:
    """What the numbers say, computed from them."""
    found = {row["noise"]: row for row in rows}
    gaps = [
        found[f"gamma, epsilon {e}"]["loss"] - found[f"gaussian, epsilon {e}"]["loss"]
        for e in (3, 8)
        if f"gamma, epsilon {e}" in found
    ]
    refuted = [row for row in rows if row["epsilon_published"] and row["epsilon_published"] < row["epsilon_lower"]]
    cost = min(row["loss"] for row in rows[1:]) - rows[0]["loss"]
    lines = [
        "So few steps teach a model of this size the form of a sentence, not the table: texts repeat themselves, and",
        "the overlap metrics, which reward common words, do not order the rows as the test loss does. By the loss,",
        f"noise costs {cost:.2f} or more, and Gamma noise is behind Gaussian noise of the same certified epsilon by",
        f"{' and '.join(f'{gap:.2f}' for gap in gaps)} (epsilon 3 and 8). One seed: a hint, no more.",
    ]
    if refuted:
        most = max(refuted, key=lambda row: row["epsilon_lower"] / row["epsilon_published"])
        lines += [
            f"The published formula gives {most['noise']} a value of {most['epsilon_published']:.2f}, where an attack",
            f"provably reaches {most['epsilon_lower']:.2f}: with few steps, a small sampling rate and little noise it",
            "is furthest from a guarantee.",
        ]
    return lines


def _group(receipt: dict[str, Any]) -> str:
    value = receipt["group"]["certified"]
    return "no guarantee is proved" if value is None else f"epsilon {value:.0f} is certified"


def _samples(rows: list[dict[str, Any]]) -> list[str]:
    lines = []
    for i, sample in enumerate(rows[0]["samples"]):
        lines += [f"{i + 1}. `{sample['table']}`", ""]
        lines += [f"    - {row['noise']}: {row['samples'][i]['text'] or '(nothing)'}" for row in rows]
        lines.append("")
    return lines[:-1]
