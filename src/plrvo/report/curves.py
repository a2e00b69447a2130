"""A test metric and epsilon over the steps of a run."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from plrvo import appearance
from plrvo.files import write_bytes


def plot_curves(history: list[dict[str, Any]], title: str, path: Path, metric: str = "accuracy") -> None:
    """One picture with the metric on the left axis and, for a private run, certified epsilon on the right one."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    steps = [row["step"] for row in history]
    figure, axes = plt.subplots(figsize=(6.4, 3.8))
    values = [(100 if metric == "accuracy" else 1) * row[metric] for row in history]
    axes.plot(steps, values, color=appearance.OTHER.colour, marker="o", markersize=3)
    axes.set_xlabel("steps")
    axes.set_ylabel("test accuracy, %" if metric == "accuracy" else f"test {metric}", color=appearance.OTHER.colour)
    axes.set_title(title, fontsize=10)
    axes.spines["top"].set_visible(False)
    if history and "epsilon_certified" in history[0]:
        right = axes.twinx()
        right.plot(
            steps, [row["epsilon_certified"] for row in history], color=appearance.CERTIFIED.colour, linestyle="--"
        )
        right.set_ylabel("certified epsilon", color=appearance.CERTIFIED.colour)
        right.set_ylim(bottom=0)
        right.spines["top"].set_visible(False)
    figure.tight_layout()
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=140)
    plt.close(figure)
    write_bytes(path, buffer.getvalue())
