"""Every check refuses what lies outside of its range by name, and what a file says is one harmless line."""

import math
from pathlib import Path

import numpy as np
import pytest

from plrvo import validate
from plrvo.cli.main import main
from plrvo.validate import InvalidArgument, printable, shortened

HARMFUL = {
    "erase the line": "\x1b[2K\r",
    "cursor up": "\x1b[1A",
    "C1 control": "\x9b2K",
    "bell and delete": "\a\x7f",
    "new lines": "a\nb\r\nc\x85d\u2028e\u2029f\v\f",
    "right to left": "\u202e\u2066\u200f\u061c",
    "nothing to see": "\u200b\ufeff\u00ad",
    "half a pair": "\ud800",
    "a tag character": "\U000e0041",
}


@pytest.mark.parametrize("name", HARMFUL)
def test_nothing_that_is_not_a_visible_character_is_printed(name):
    shown = printable(f"before{HARMFUL[name]}after")
    assert shown.isprintable()
    assert shown.startswith("before")
    assert shown.endswith("after")
    assert "\\" in shown
    shown.encode()


def test_what_people_write_stays_as_it_is():
    for text in ("runs/digits: verified", "Größe 深度 ε ≤ 3", ""):
        assert printable(text) == text


@pytest.mark.parametrize("name", HARMFUL)
def test_an_error_is_one_printable_line(name):
    text = HARMFUL[name]
    assert str(InvalidArgument(text, text, text)).isprintable()


@pytest.mark.parametrize("name", HARMFUL)
def test_a_refusal_of_the_command_is_one_printable_line(name, capsys):
    path = f"no such file {HARMFUL[name]}"
    assert main(["verify", path]) == 2
    error = capsys.readouterr().err
    assert error.endswith("\n")
    assert error[:-1].isprintable()


NO_NUMBERS = [True, "1", None, [1.0], 1j, math.nan, 10**400]
CHECKS = {  # what just passes, and what just does not
    "number": ([0, -math.inf, np.float32(2.0)], []),
    "positive": ([5e-324, 1.7e308, 3, np.int64(2)], [0.0, -1.0, math.inf]),
    "non_negative": ([0, 1.7e308], [-5e-324, math.inf]),
    "positive_integer": ([1, np.int64(7), 10**30], [0, -1, 300.0, math.inf]),
    "probability": ([5e-324, 1 - 2.0**-53], [0.0, 1.0, -0.1, 1.1]),
    "rate": ([5e-324, 1.0, 1], [0.0, 1 + 2.0**-52, -0.1]),
    "truth_value": ([True, False], [1, 0, "True"]),
}


@pytest.mark.parametrize("name", CHECKS)
def test_a_check_passes_its_range_and_names_what_lies_outside(name):
    check = getattr(validate, name)
    good, bad = CHECKS[name]
    for value in good:
        check(first=value)
    wrong = bad + [value for value in NO_NUMBERS if not any(value is passed for passed in good)]
    for value in wrong if name != "positive_integer" else [value for value in wrong if value != 10**400]:
        with pytest.raises(InvalidArgument, match=r"^second=") as caught:
            check(first=good[0], second=value)
        assert caught.value.argument == "second"
        assert caught.value.value is value


def test_everything_that_is_missing_is_named_at_once():
    validate.required(a=0, b=False, c="")
    with pytest.raises(InvalidArgument, match=r"^b=None: .*`c`"):
        validate.required(a=1, b=None, c=None)


def test_an_error_is_short_whatever_the_value():
    deep = []
    for _ in range(100_000):
        deep = [deep]
    for value in ("x" * 10**6, 10**5000, deep):
        assert len(str(InvalidArgument("a", value, "less"))) < 500
    assert shortened("plan.json") == "'plan.json'"


def test_an_extra_is_named_in_both_ways_wherever_it_is_missing():
    sources = Path(validate.__file__).parent
    own = {"validate.py", "tasks/tables/words.py", "training/trackers.py"}  # with other words around it
    for path in sources.rglob("*.py"):
        if path.relative_to(sources).as_posix() not in own:
            assert "pip install plrvo[" not in path.read_text(encoding="utf-8").replace("'", ""), path
