"""What a command says of itself: the gist and an example first, then every option in its group.

Plain text at any width: an example can be copied, and nothing in it is markup to anybody. The page about the command
line is made from the same description.
"""

from __future__ import annotations

import inspect
import re
import shutil
import sys
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from typer.core import TyperCommand, TyperGroup

from plrvo.validate import printable

NARROWEST, WIDEST = 60, 100
_COLUMN = 28  # where what an option does begins
_EXAMPLE = "Example:"
SPECIAL, _TYPED = "special_help", "plrvo.typed"
_WORDS = {float: "NUMBER", int: "COUNT", Path: "PATH", str: "TEXT"}


@dataclass(frozen=True)
class Row:
    """An option, an argument or a command: how it is typed, and what it does."""

    typed: str
    text: str


@dataclass(frozen=True)
class Help:
    """A command described; `groups` by their titles, in order."""

    usage: str
    summary: str
    details: tuple[str, ...]
    example: str | None
    groups: dict[str, tuple[Row, ...]]

    def text(self, width: int) -> str:
        """For a terminal of this width."""
        parts = [f"Usage: {self.usage}", *(_filled(part, width) for part in (self.summary, *self.details))]
        if self.example is not None:
            parts.insert(2, f"{_EXAMPLE}\n" + continued(self.example, width))
        parts += (f"{title}:\n" + "\n".join(_lines(row, width) for row in rows) for title, rows in self.groups.items())
        return "\n\n".join(parts)


def describe(command: Any, path: str) -> Help:
    """The description of a command of the app, which is called by `path`."""
    paragraphs = [" ".join(part.split()) for part in (command.help or "").split("\n\n")]
    example = next((part.removeprefix(_EXAMPLE).strip() for part in paragraphs if part.startswith(_EXAMPLE)), None)
    summary, *details = [part for part in paragraphs if not part.startswith(_EXAMPLE)]
    groups: dict[str, list[Row]] = {}
    words = []
    if isinstance(command, TyperGroup):
        groups["Commands"] = [Row(name, line) for name, line in summaries(command).items()]
        words.append("COMMAND ...")
    for parameter, typed, text in _parameters(command):
        argument = not parameter.opts[0].startswith("-")
        panel = "Arguments" if argument else parameter.rich_help_panel or "Options"
        groups.setdefault(panel, []).append(Row(typed, text))
        words += [_in_usage(parameter, typed)] if argument else []
    groups.setdefault("Options", []).append(Row("--help", "Show this."))
    usage = " ".join([path, *words, *(["[OPTIONS]"] if len(groups["Options"]) > 1 else [])])
    ordered = {title: tuple(rows) for title, rows in groups.items() if title in ("Arguments", "Commands", "Options")}
    return Help(usage, summary, tuple(details), example, ordered | {title: tuple(r) for title, r in groups.items()})


def commands(group: Any, path: str) -> Iterator[tuple[str, Any]]:
    """The group and every command below it, with what is typed to reach it."""
    yield path, group
    for name, command in getattr(group, "commands", {}).items():
        yield from commands(command, f"{path} {name}")


def summaries(group: Any) -> dict[str, str]:
    """What each command of a group says of itself in a line; a group that loads its commands late has it in a table."""
    told = getattr(group, "summaries", None)
    return told or {name: sentence(found.help) for name, found in group.commands.items()}


def continued(command: str, width: int) -> str:
    """A command on as many lines as it takes; it can be copied as it stands."""
    words = command.replace(" --", "\n--").split("\n")
    lines = [words[0]]
    for word in words[1:]:
        if len(lines[-1]) + len(word) + 1 <= width - 6:
            lines[-1] += f" {word}"
        else:
            lines.append(f"    {word}")
    return "  " + " \\\n  ".join(lines)


def _parameters(command: Any) -> Iterator[tuple[Any, str, str]]:
    for parameter in command.params:
        if not getattr(parameter, "hidden", False):
            named, kind = (", ".join(parameter.opts), *parameter.secondary_opts), kind_of(command, parameter)
            name = "/".join(named)
            argument, offered = not name.startswith("-"), choices_of(kind)
            word = parameter.metavar or ("KIND" if offered else _WORDS.get(kind, ""))
            typed = (parameter.metavar or name.upper()) if argument else f"{name} {word}".strip()
            explained = all(
                re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", parameter.help or "") for word in offered
            )
            choices = "" if explained else f"One of: {', '.join(offered)}."
            yield parameter, typed, " ".join(filter(None, (parameter.help, choices, _default(parameter))))


def _in_usage(parameter: Any, typed: str) -> str:
    """An argument that may be left out is in brackets; dots follow one that may come again."""
    word = typed if parameter.required else f"[{typed}]"
    return f"{word}..." if parameter.nargs == -1 else word


def kind_of(command: Any, parameter: Any) -> Any:
    """The class that values of an option or argument have: float, Path, bool, a StrEnum."""
    # The annotations of the function: what typer makes of them has another form in every version.
    callback = getattr(command, "callback", None)
    known = _signature(callback) if callback else {}
    return _kind(known[parameter.name].annotation if parameter.name in known else bool)


@cache
def _signature(callback: Any) -> Any:
    return inspect.signature(callback, eval_str=True).parameters


def choices_of(kind: Any) -> tuple[str, ...]:
    """The words that an option may have; none where it is no choice."""
    return tuple(choice.value for choice in kind) if isinstance(kind, type) and issubclass(kind, Enum) else ()


def _kind(hint: Any) -> Any:
    if get_origin(hint) is Annotated:
        return _kind(get_args(hint)[0])
    if get_origin(hint) in (Union, UnionType):
        return _kind(next(kind for kind in get_args(hint) if kind is not type(None)))
    return _kind(get_args(hint)[0]) if get_origin(hint) is list else hint


def _default(parameter: Any) -> str:
    shown, value = getattr(parameter, "show_default", False), parameter.default
    if parameter.secondary_opts and value is not None:
        return f"[{(parameter.opts if value else parameter.secondary_opts)[0]}]"
    if isinstance(shown, str):
        return f"[{shown}]"
    if not shown or value in (None, False, (), []):
        return ""
    return f"[{value:g}]" if isinstance(value, float) else f"[{getattr(value, 'value', value)}]"


def sentence(text: str | None) -> str:
    """The first paragraph, on one line."""
    return " ".join((text or "").split("\n\n")[0].split())


def _lines(row: Row, width: int) -> str:
    typed, gap = f"  {row.typed}", " " * _COLUMN
    if len(typed) >= _COLUMN - 1 and row.text:
        return f"{typed}\n" + _filled(gap + row.text, width, gap)
    return _filled(f"{typed:<{_COLUMN}}{row.text}", width, gap)


def _filled(text: str, width: int, indent: str = "") -> str:
    """Lines that end between words: an option is never torn at its hyphens."""
    return textwrap.fill(text, width, subsequent_indent=indent, break_on_hyphens=False, break_long_words=False)


def typed_values(command: Any, words: Sequence[str]) -> dict[str, str]:
    """What is given by name among the words of a command, as its parser would read them; "" for a flag.

    Whatever is wrong with them is left out: help never fails.
    """
    by_option = {word: each for each in command.params for word in (*each.opts, *each.secondary_opts)}
    arguments = iter([each for each in command.params if not each.opts[0].startswith("-")])
    found, rest = {}, iter(words)
    for word in rest:
        option, given, value = word.partition("=")
        known = by_option.get(option) if word.startswith("-") else next(arguments, None)
        if not word.startswith("-"):
            value = word
        elif known is not None and not given:
            value = "" if getattr(known, "is_flag", False) else next(rest, "")
        if known is not None:
            found[known.name] = value
    return found


class _Described:
    """Says of itself what `describe` says, in place of typer's boxes."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        width = min(WIDEST, max(NARROWEST, shutil.get_terminal_size().columns))
        told, words = describe(self, ctx.command_path), ctx.meta.get(_TYPED, ())
        special = getattr(getattr(self, "callback", None), SPECIAL, None)
        formatter.write((special(told, typed_values(self, words)) if special else told).text(width))


class Command(_Described, TyperCommand):
    """A command with this help; what its function has as `SPECIAL` fits it to the words that were typed."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.meta[_TYPED] = tuple(args)
        from plrvo.cli.usage import dropped, misread  # which are about the words of commands, and so of this one

        if (problem := next(misread(self, args), None)) is not None:
            ctx.fail(problem)
        for line in dropped(self, args):
            print(f"plrvo: warning: {printable(line)}", file=sys.stderr)
        parsed: list[str] = super().parse_args(ctx, args)
        return parsed

    def invoke(self, ctx: Any) -> Any:
        """Ctrl-C is told, by the command itself or here: typer would end without a word."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            print("plrvo: stopped", file=sys.stderr)
            ctx.exit(130)


class Group(_Described, TyperGroup):
    """A group of commands with this help."""
