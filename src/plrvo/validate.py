"""One way in for bad values: each check names the argument, its value and what would be right."""

from __future__ import annotations

import difflib
import math
import numbers
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any


class InvalidArgument(ValueError):
    """A value that no computation should start from.

    >>> raise InvalidArgument("delta", 2, "a number in (0, 1)")
    Traceback (most recent call last):
        ...
    plrvo.validate.InvalidArgument: delta=2: expected a number in (0, 1)

    Args:
        argument: its name.
        value: what was given.
        expected: what would be right.
    """

    def __init__(self, argument: str, value: object, expected: str) -> None:
        super().__init__(printable(f"{argument}={shortened(value)}: expected {expected}"))
        self.argument = argument
        self.value = value
        self.expected = expected


def printable(text: str) -> str:
    r"""The text on one line, with everything escaped that a terminal or a reader would take for something else.

    Names in a file can hold escape sequences that overwrite the line before, line ends, and marks that turn the
    direction of writing around. Python knows what is none of these.

    >>> print(printable("run\x1b[2K\rverified"))
    run\x1b[2K\rverified
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def shortened(value: object) -> str:
    """The value as Python writes it, or the ends of it: a file can hold a number of a million digits.

    >>> shortened("plan.json"), len(shortened([0] * 10**6))
    ("'plan.json'", 203)
    """
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # whole numbers of more than 4,300 digits, lists in lists in lists
        return f"a {type(value).__name__} that is too large to show"
    return text if len(text) <= 400 else f"{text[:150]}...{text[-50:]}"


def counted(number: float, noun: str, form: str = "") -> str:
    """So many of them: the noun is given in the singular, the number is written in a form of `format`.

    >>> counted(1, "step"), counted(1200, "step", ","), counted(2, "canary"), counted(0, "batch"), counted(1, "guess")
    ('1 step', '1,200 steps', '2 canaries', '0 batches', '1 guess')
    """
    if number != 1:
        noun = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}es" if noun.endswith(("ch", "s")) else f"{noun}s"
    return f"{number:{form}} {noun}"


def installing(extra: str) -> str:
    """How to install what an extra brings, from an index or in a clone of the project.

    >>> installing("text")
    "pip install 'plrvo[text]', or '.[text]' in a clone"
    """
    return f"pip install 'plrvo[{extra}]', or '.[{extra}]' in a clone"


def of_type(kind: type, **arguments: Any) -> None:
    """Objects of this class: swapped arguments are found here, and not deep inside.

    >>> of_type(int, steps="a hundred")
    Traceback (most recent call last):
        ...
    plrvo.validate.InvalidArgument: steps='a hundred': expected a int, not a str (are arguments swapped?)
    """
    for name, value in arguments.items():
        if not isinstance(value, kind):
            found = type(value).__name__
            raise InvalidArgument(name, value, f"a {kind.__name__}, not a {found} (are arguments swapped?)")


def a_path(**arguments: Any) -> Path:
    """The path that one argument is, or spells."""
    ((name, value),) = arguments.items()
    if not isinstance(value, str | os.PathLike):
        raise InvalidArgument(name, value, "the path of a file")
    return Path(value)


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The one of these that was probably meant.

    >>> nearest("dgits", ["digits", "mnist"]), nearest("cats", ["digits", "mnist"])
    ('digits', None)
    """
    return next(iter(difflib.get_close_matches(word.lower(), list(known), n=1, cutoff=0.7)), None)


def one_of(known: Iterable[str], **arguments: Any) -> None:
    """One of these words.

    >>> one_of(["sgd", "adam"], optimizer="adm")
    Traceback (most recent call last):
        ...
    plrvo.validate.InvalidArgument: optimizer='adm': expected one of sgd, adam; did you mean adam?
    """
    words = list(known)
    for name, value in arguments.items():
        if value not in words:
            guess = nearest(value, words) if isinstance(value, str) else None
            more = f"; did you mean {guess}?" if guess else ""
            raise InvalidArgument(name, value, f"one of {', '.join(words)}{more}")


def refuse_beside(other: str, arguments: Mapping[str, Any]) -> None:
    """None of these may have a value beside `other`: what would not be used is not ignored."""
    for name, value in arguments.items():
        if value is not None and value is not False:
            shown = value if isinstance(value, int | float) else str(value)
            raise InvalidArgument(name, shown, f"no value beside {other}")


def required(**arguments: Any) -> None:
    """Every one of these must have a value."""
    missing = [name for name, value in arguments.items() if value is None]
    if missing:
        others = ", ".join(f"`{name}`" for name in missing[1:])
        more = f", and so {'are' if missing[2:] else 'is'} {others}" if others else ""
        raise InvalidArgument(missing[0], None, "a value: it is required" + more)


def number(expected: str = "a number", **arguments: Any) -> None:
    """A real number, and not NaN, nor a whole number that no float comes near."""
    for name, value in arguments.items():
        if isinstance(value, bool) or not isinstance(value, numbers.Real) or math.isnan(_as_float(value)):
            raise InvalidArgument(name, value, expected)


def _as_float(value: numbers.Real) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.nan


def positive(**arguments: Any) -> None:
    """Finite and above zero."""
    number("a positive finite number", **arguments)
    for name, value in arguments.items():
        if not 0 < value < math.inf:
            raise InvalidArgument(name, value, "a positive finite number")


def non_negative(**arguments: Any) -> None:
    """Finite and not below zero."""
    number("a finite number, zero or above", **arguments)
    for name, value in arguments.items():
        if not 0 <= value < math.inf:
            raise InvalidArgument(name, value, "a finite number, zero or above")


def positive_integer(**arguments: Any) -> None:
    """A whole number of at least one; 300.0 is not one, so that a typo in a unit is seen."""
    for name, value in arguments.items():
        if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < 1:
            raise InvalidArgument(name, value, "a whole number of at least 1")


def probability(**arguments: Any) -> None:
    """Strictly between zero and one."""
    number("a number in (0, 1)", **arguments)
    for name, value in arguments.items():
        if not 0 < value < 1:
            raise InvalidArgument(name, value, "a number in (0, 1)")


def rate(**arguments: Any) -> None:
    """Above zero and at most one."""
    number("a number in (0, 1]", **arguments)
    for name, value in arguments.items():
        if not 0 < value <= 1:
            raise InvalidArgument(name, value, "a number in (0, 1]")


def native(instance: Any) -> None:
    """Make Python's own numbers of the NumPy scalars in a frozen dataclass, so that it can be written as JSON."""
    for name, value in list(vars(instance).items()):
        if isinstance(value, tuple):
            object.__setattr__(instance, name, tuple(map(plain_number, value)))
        elif plain_number(value) is not value:
            object.__setattr__(instance, name, plain_number(value))


def plain_number(value: Any) -> Any:
    """Python's own number in the place of a NumPy scalar."""
    return value.item() if isinstance(value, numbers.Number) and hasattr(value, "item") else value


def spelled_number(kind: type[int] | type[float], text: str) -> Any:
    """The number that a text spells, or ValueError; Python would take 1_1, a slip for 1.1, for 11.

    >>> spelled_number(float, "1e-5"), spelled_number(int, "30")
    (1e-05, 30)
    >>> spelled_number(float, "1_1")
    Traceback (most recent call last):
        ...
    ValueError: 1_1 is no number
    """
    if "_" in text or not text.isascii():
        raise ValueError(f"{text} is no number")
    return kind(text)


def truth_value(**arguments: Any) -> None:
    """True or False, and nothing that merely counts as one of them."""
    for name, value in arguments.items():
        if not isinstance(value, bool):
            raise InvalidArgument(name, value, "True or False")
