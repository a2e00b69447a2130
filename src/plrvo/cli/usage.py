"""What is wrong with the words of a command, in the form of every other refusal: argument, value, what is expected."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from plrvo.cli.help import choices_of, kind_of
from plrvo.cli.mistakes import computed, meant, of_another
from plrvo.validate import nearest

_KINDS = {float: "a number", int: "a whole number", Path: "a path", str: "a text"}
_MOST = 1e15  # of whole numbers that a float is exact about
_QUOTED = re.compile(r"(?:^|: )'(.*?)' is not", re.DOTALL)


def usage_message(error: Any) -> str:
    """The line for what the parser found."""
    message = str(error.format_message())
    named, parameter = getattr(error, "option_name", None), getattr(error, "param", None)
    no_command = re.match(r"No such command '(.*?)'", message, re.DOTALL)
    if type(error).__name__ == "NoSuchOption":
        return _unknown(str(named), "option", error.ctx)
    if no_command:
        return _unknown(no_command[1], "command", error.ctx)
    if named is not None:  # an option whose value is missing, or one too many
        takes_none = "does not take" in message
        return f"{named}: expected no value after it" if takes_none else f"{named} (missing): expected {_after(error)}"
    if parameter is not None:
        return _of_parameter(error, parameter, message)
    extra = re.search(r"extra arguments?(?:\(s\))? \((.*)\)", message, re.DOTALL)
    if extra:
        return f"{extra[1]}: expected no more words; {error.ctx.command_path} --help lists what there is"
    return message


def misread(command: Any, words: Sequence[str]) -> Iterator[str]:
    """Numbers that the parser would take for others: Python leaves out what stands between digits.

    1_1, a slip for 1.1, would be 11.
    """
    for name, parameter, value in _typed(command, words):
        if ("_" in value or not value.isascii()) and kind_of(command, parameter) in (float, int):
            yield f"{name} {value}: expected a number in plain digits"


def dropped(command: Any, words: Sequence[str]) -> Iterator[str]:
    """Options that come twice, of which the parser takes the last without a word."""
    before: dict[Any, str] = {}
    for name, parameter, value in _typed(command, words):
        if parameter in before and not parameter.multiple:
            yield f"{name} {value} is taken; {before[parameter]} before it is not"
        before[parameter] = f"{name} {value}"


def _typed(command: Any, words: Sequence[str]) -> Iterator[tuple[str, Any, str]]:
    """Options that have a value: name, parameter, value."""
    known = {name: parameter for parameter in command.params for name in parameter.opts if name.startswith("-")}
    rest = iter(words)
    for word in rest:
        name, sign, value = word.partition("=")
        parameter = known.get(name)
        if word == "--":
            return
        if parameter is not None and not getattr(parameter, "is_flag", False):
            yield name, parameter, value if sign else next(rest, "")


def _unknown(word: str, what: str, context: Any) -> str:
    guess = meant(word, context.command) if context is not None else None
    path = "plrvo" if context is None else context.command_path
    other = of_another(word, path)
    if other is not None:
        return f"{word}: no such {what}; did you mean {other}"
    if guess is None:
        return f"{word}: no such {what}; {path} --help lists what there is"
    how = computed(word, guess)
    return f"{word}: no such {what}; did you mean {guess}?" + (f" ({how})" if how else "")


def _after(error: Any) -> str:
    """What comes after an option of the command."""
    command = getattr(error.ctx, "command", None)
    for parameter in getattr(command, "params", ()):
        if error.option_name in parameter.opts:
            return f"{_expected(command, parameter)} after it"
    return "a value after it"


def _of_parameter(error: Any, parameter: Any, message: str) -> str:
    typed = parameter.opts[0]
    name = typed if typed.startswith("-") else (parameter.metavar or typed.upper())
    command = getattr(error.ctx, "command", None)
    if type(error).__name__ == "MissingParameter":
        words = (parameter.help or "a value").rstrip(".")
        return f"{name} (missing): expected {words[:1].lower()}{words[1:]}"
    details: list[dict[str, object]] = getattr(error.__cause__, "errors", list)()
    quoted = _QUOTED.search(message)
    value = str(details[0]["input"]) if details else quoted[1] if quoted else ""
    kind = kind_of(command, parameter)
    guess = nearest(value, choices_of(kind)) or _spelled_out(value, kind)
    more = f"; did you mean {guess}?" if guess else ""
    return f"{name} {value}: expected {_expected(command, parameter)}{more}"


def _spelled_out(value: str, kind: Any) -> str | None:
    """The number that is meant by 1%, where parts of one are taken, or by 1e3, where whole numbers are."""
    try:
        if kind is float and value.endswith("%"):
            return f"{float(value[:-1]) / 100:g}"
        if kind is int and abs(float(value)) < _MOST and float(value).is_integer():
            return str(int(float(value)))
    except ValueError:
        pass
    return None


def _expected(command: Any, parameter: Any) -> str:
    kind = kind_of(command, parameter)
    choices = choices_of(kind)
    return f"one of {', '.join(choices)}" if choices else _KINDS.get(kind, "a value")
