"""What a file says reaches a terminal as one harmless line."""

import pytest

from plrvo.cli.main import main
from plrvo.validate import InvalidArgument, printable

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
