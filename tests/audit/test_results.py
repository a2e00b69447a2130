"""The audit guide prints what results/audit holds, rounded down."""

import json
from pathlib import Path

import pytest

from plrvo.cli.show import rounded_down

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "guide-audit.md").read_text()


def stored(name: str) -> dict:
    return json.loads((ROOT / "results" / "audit" / f"{name}.json").read_text())


@pytest.mark.parametrize("kind", ["gaussian", "laplace", "gamma", "no-clipping"])
def test_the_guide_shows_the_stored_clipbkd_results(kind):
    rows = stored(f"clipbkd-{kind}")["rows"]
    cells = " | ".join(
        "0"
        if row["epsilon_audited"] == 0
        else rounded_down(row["epsilon_audited"], 4 if row["epsilon_audited"] > 0.1 else 3)
        for row in rows
    )
    assert f"| {cells} |" in GUIDE
    assert {row["verdict"] for row in rows} == {"refuted" if kind == "no-clipping" else "consistent"}
    assert {row["runs"] for row in rows} == {800}


@pytest.mark.parametrize("kind", ["published", "certified", "poisson", "shuffled"])
def test_the_guide_shows_the_stored_mechanism_results(kind):
    result = stored(f"mechanism-{kind}")
    assert f"| {rounded_down(result['epsilon_audited'])} | {result['verdict']} |" in GUIDE
    assert f"{result['epsilon_claimed']:.4g}" in GUIDE


def test_the_guide_counts_the_models_that_were_trained():
    kinds = ("gaussian", "laplace", "gamma", "no-clipping")
    total = sum(row["runs"] for kind in kinds for row in stored(f"clipbkd-{kind}")["rows"])
    assert f"{total:,} models in all" in GUIDE
