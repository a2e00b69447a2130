"""The picture of the audit guide: what ClipBKD reached, from the results in results/audit."""

import json
from pathlib import Path

from docs.figures.both import write_both

from plrvo.audit.plot import Point, audits_figure

ROOT = Path(__file__).parents[2]
LABELS = {"gaussian": "Gaussian", "laplace": "Laplace", "gamma": "Gamma-PLRV, k = 100"}
# For each panel, the files in results/audit whose names go on with the noise.
PANELS = {
    "Fashion-MNIST, logistic regression": ("clipbkd-", "clipbkd-paper-"),
    "Fashion-MNIST, two-layer network": ("clipbkd-fashion-mnist-fnn-",),
    "Location-30, logistic regression": ("clipbkd-location30-lr-",),
    "Location-30, two-layer network": ("clipbkd-location30-fnn-",),
}


def stored(name: str) -> dict:
    """One of the results."""
    return json.loads((ROOT / "results" / "audit" / f"{name}.json").read_text())


def rows(name: str) -> list[dict]:
    """The audits in one file; none where it has not been run."""
    if not (ROOT / "results" / "audit" / f"{name}.json").exists():
        return []
    result = stored(name)
    return result.get("rows", [result])


def panel(prefixes: tuple[str, ...]) -> tuple[list[Point], int]:
    """The points of a panel, the one with the most models for each claim, and the models trained for all of it."""
    best: dict[tuple[str, float], dict] = {}
    models = 0
    for prefix in prefixes:
        for noise in LABELS:
            for row in rows(prefix + noise):
                models += row["runs"]
                key = (LABELS[noise], round(row["epsilon_claimed"], 3))
                best[key] = max(best.get(key, row), row, key=lambda r: r["runs"])
    points = [
        Point(label, row["epsilon_claimed"], row["epsilon_audited"], row["epsilon_certifiable"])
        for (label, _), row in best.items()
    ]
    return points, models


def main() -> None:
    """Draw docs/images/audit-clipbkd.png."""
    panels = {}
    for title, prefixes in PANELS.items():
        points, models = panel(prefixes)
        if points:
            panels[f"{title}: {models:,} models"] = points
    write_both(audits_figure(panels), ROOT / "docs" / "images" / "audit-clipbkd.png")


if __name__ == "__main__":
    main()
