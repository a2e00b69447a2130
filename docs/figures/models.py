"""Writes docs/models.md from results/models.json.

`python -m docs.figures.models` writes the page; with `--measure` everything in it is measured anew first.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[1] / "models.md"
RESULTS = Path(__file__).parents[2] / "results" / "models.json"
HEAD = """# Which models

Every row was measured: a batch of five examples in the engine, with the mode that `grad_sample_mode="auto"` comes to,
beside a loop over single examples by autograd. The two clipped sums differ by {largest} clips at most; about 1e-5 for
each example is the margin that norms are rounded up by. `tests/training/test_models.py` measures them again.

| way | what it is |
|---|---|
| fast | one backward pass, by book-keeping |
| fallback | per-example gradients, by a rule of Opacus's or by torch.func, for the layers that need it |
| functorch | the whole model once more for each example, with a warning; `grad_sample_mode="functorch"` asks for it |
| refused | before the first step, in a line that names the fix |

The last way that works, "functorch", is slower: all examples at once by torch.func, or in a loop where that does not
get through. What the model has drawn at random in its pass (dropout) is given to each example again. "auto" comes to it
on the first batch, where gradients by layers are not those of autograd, or cannot be had.

What is not in the list is tried out on its first batch: examples apart, gradients as by autograd; else it is refused.
"""


def page() -> str:
    """The whole page."""
    found = json.loads(RESULTS.read_text(encoding="utf-8"))
    differences = [row["difference"] for rows in found.values() for row in rows if row["difference"] is not None]
    lines = [HEAD.format(largest=bound(max(differences)))]
    for title, rows in found.items():
        lines += [f"## {title}", "", "| | way |", "|---|---|"]
        lines += [f"| {row['name']} | {row['way']} |" for row in rows]
        lines.append("")
    return "\n".join(lines)


def bound(difference: float) -> str:
    """A power of ten that it does not exceed."""
    return f"1e{math.ceil(math.log10(max(difference, 1e-9)))}"


def measure() -> dict[str, list[dict[str, Any]]]:
    """Every case of the catalogue."""
    from tests.training.models import LAYERS, architectures, measured

    found: dict[str, list[dict[str, Any]]] = {}
    for title, cases in (("Layers", LAYERS), ("Architectures", architectures())):
        found[title] = []
        for case in cases:
            row = measured(case)
            found[title].append({"name": case.name, "way": row.way, "difference": row.difference})
    return found


if __name__ == "__main__":
    if "--measure" in sys.argv:
        RESULTS.write_text(json.dumps(measure(), indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(page(), encoding="utf-8")
