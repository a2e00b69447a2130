import ast
import math
import re
from pathlib import Path

import hypothesis
import pytest
from hypothesis import strategies as st

from plrvo.accounting.printed import rounded_down, rounded_up

ROOT = Path(__file__).parents[2]
BOUND = re.compile(r"\b(certified|lower|audited|certifiable|could_show_at_most|epsilon_claimed|by_moments)\b")
NEAREST = re.compile(r"^[^%]*\.?\d*[gfe]$")


@hypothesis.given(st.floats(min_value=0, max_value=1e300), st.integers(2, 6))
def test_what_is_printed_is_never_on_the_wrong_side_and_never_far(value, digits):
    up, down = float(rounded_up(value, digits)), float(rounded_down(value, digits))
    assert down <= value <= up
    assert up - down <= max(10.0 ** (1 - digits) * value * 1.000001, 5e-324)


@pytest.mark.parametrize("value", [0.0, 0.1, 1.774, 3.0, 2999.0, 1e-9])
def test_numbers_of_few_digits_stay_as_they_are(value):
    assert float(rounded_up(value)) == float(rounded_down(value)) == value


def test_infinity_is_told():
    assert rounded_up(math.inf) == rounded_down(math.inf) == "inf"


@pytest.mark.parametrize("folder", ["src/plrvo", "docs/figures"])
def test_no_bound_is_printed_to_the_nearest_digit(folder):
    """f"{bracket.certified:.3g}" prints 0.3794 as 0.379. A statistic of many of them is no bound."""
    found = []
    for file in sorted((ROOT / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FormattedValue) and node.format_spec is not None:
                value, form = ast.unparse(node.value), ast.unparse(node.format_spec)[2:-1]
                if NEAREST.match(form) and BOUND.search(value) and ".statistic" not in value:
                    found.append(f"{file.relative_to(ROOT)}:{node.lineno}: {value}")
    assert found == []
