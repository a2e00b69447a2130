"""The table of the guide to exact mode is that of the committed self-test."""

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
