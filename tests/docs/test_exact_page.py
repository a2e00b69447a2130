"""The guide to exact mode shows the committed self-test and the committed benchmark."""

import json
import math
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_table_shows_the_committed_self_test() -> None:
    outcomes = json.loads((ROOT / "results" / "selftest.json").read_text())["outcomes"]
    page = (ROOT / "docs" / "guide-exact.md").read_text(encoding="utf-8")
    shown = re.findall(r"^\| (densities|last bits) \| (\w+) \| (.*) \|$", page, re.MULTILINE)
    expected = []
    for name, o in outcomes.items():
        attack, mode = name.rsplit("_", 1)
        cells = [
            f"{o['delta']:g}",
            f"{math.ceil(1000 * o['epsilon_claimed']) / 1000:.3f}",
            f"{math.floor(1000 * o['epsilon_audited']) / 1000:.3f}",
            f"{o['false_positives']} of {o['negatives']}, {o['false_negatives']} of {o['positives']}",
            o["verdict"],
        ]
        words = "densities" if attack == "mechanism" else "last bits", "floats" if mode == "float" else "integers"
        expected.append((*words, " | ".join(cells)))
    assert shown == expected
    assert all(o["as_expected"] for o in outcomes.values())


def test_what_it_costs_is_what_the_committed_benchmark_measured() -> None:
    rows = json.loads((ROOT / "checks" / "benchmarks" / "results.json").read_text())["groups"]["exact"]
    ratios = {row["what"]: row["ratio"].removesuffix("x the time") for row in rows}
    page = (ROOT / "docs" / "guide-exact.md").read_text(encoding="utf-8")

    def ratio(beginning: str, end: str) -> str:
        (found,) = [value for what, value in ratios.items() if what.startswith(beginning) and what.endswith(end)]
        return found

    laplace, gamma, gaussian = (
        ratio(f"1e7 exact {name} ", "torch normal_") for name in ("laplace", "gamma", "gaussian")
    )
    noise = (
        f"Exact Laplace noise takes {laplace} times as long as torch's `normal_`, Gamma-PLRV noise {gamma} times and "
    )
    assert f"{noise}Gaussian noise {gaussian} times." in page
    assert f"parameters takes {ratio('an exact step', 'floating point')} times as long" in page
