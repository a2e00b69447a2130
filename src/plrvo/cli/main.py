"""The entry point: commands, and one clear line for a user's mistake."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any, TextIO

import typer

from plrvo.cli.lazy import group_of
from plrvo.cli.listed import COMMANDS, Listed
from plrvo.cli.usage import usage_message
from plrvo.validate import InvalidArgument, installing, printable, shortened
from plrvo.version import __version__

_UNREAD = 128 + 13  # SIGPIPE, which Windows has no name for
_UsageError: Any = typer.BadParameter.__bases__[0]  # of click, which typer has a copy of, or uses

app = typer.Typer(
    name="plrvo",
    cls=group_of(COMMANDS),
    help="Choose, certify, train with and audit the noise of differentially private deep learning.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
# What a command may need beyond the light part.
_EXTRAS = {
    "train": ("torch", "opacus", "safetensors"),
    "text": ("transformers", "peft", "sacrebleu", "nltk", "defusedxml"),
    "report": ("matplotlib", "jinja2"),
    "explore": ("shiny", "starlette", "uvicorn"),
    "database": ("sqlalchemy", "psycopg"),
    "design": ("sklearn",),
    "vision": ("PIL",),
    "secure": ("mpmath",),
    "cluster": ("joblib", "distributed"),
}


def _version(wanted: bool) -> None:
    if wanted:
        print(f"plrvo {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
) -> None:
    """Choose, certify, train with and audit the noise of differentially private deep learning."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; 0 done, 1 the answer is no, 2 bad input (one line on stderr).

    141 where nobody read the answer to its end, as of a program that SIGPIPE ends: `plrvo verify RUN | head -1` has not
    said no.
    """
    _open_closed()
    try:
        code = _answered(arguments)
        sys.stdout.flush()  # or what is left would go, and fail, after the exit code has been chosen
        return code
    except BrokenPipeError:
        return _unread()
    except SystemExit as ended:  # typer and rich end so, with 1, where a pipe was closed
        if not _is_of_a_pipe(ended):
            raise
        return _unread()


def _open_closed() -> None:
    """Nowhere in the place of a closed stream: the next file opened would have its number, and what is printed."""
    for number, name in ((1, "stdout"), (2, "stderr")):
        if getattr(sys, name) is None:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            if nowhere != number:
                os.dup2(nowhere, number)
                os.close(nowhere)
            setattr(sys, name, os.fdopen(number, "w", encoding="utf-8"))


def _is_of_a_pipe(error: BaseException | None) -> bool:
    return error is not None and (isinstance(error, BrokenPipeError) or _is_of_a_pipe(error.__context__))


def _unread() -> int:
    """The pipe was closed: what is still in buffers goes nowhere, without a word."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.__stdout__, sys.__stderr__):
        if stream is not None and not stream.closed and _is_unread(stream):
            os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
    return _UNREAD


def _is_unread(stream: TextIO) -> bool:
    try:
        stream.flush()
    except BrokenPipeError:
        return True
    return False


def _answered(arguments: Sequence[str] | None) -> int:
    try:
        result = app(list(arguments) if arguments is not None else None, standalone_mode=False, prog_name="plrvo")
        return result if isinstance(result, int) else 0
    except InvalidArgument as error:
        from plrvo.cli.options import option_name, spelled  # which know every field of a job

        command = _command(sys.argv[1:] if arguments is None else arguments)
        expected = spelled(error.expected, command)
        return _refuse(f"{option_name(error.argument, command)} {_shown(error.value)}: expected {expected}")
    except _UsageError as error:
        if type(error).__name__ != "NoArgsIsHelpError":
            return _refuse(usage_message(error))
        print(error.ctx.get_help(), file=sys.stderr)
        return 2
    except ModuleNotFoundError as error:
        needed = str(error.name).partition(".")[0]
        command = _command(sys.argv[1:] if arguments is None else arguments)
        extra = next((extra for extra, names in _EXTRAS.items() if needed in names), None)
        if extra is None:
            raise
        return _refuse(f"{command}: expected {needed}, which is not installed: {installing(extra)}")
    except BrokenPipeError:
        raise
    except OSError as error:
        nameless = "standard output" if error.errno == errno.ENOSPC else "a file"  # ours name themselves
        return _refuse(f"{error.filename or nameless}: {error.strerror or error}")
    except (ArithmeticError, RecursionError, MemoryError) as error:
        # Whatever let it escape did not say which value it was: that much can be said, and no result was given.
        command = _command(sys.argv[1:] if arguments is None else arguments)
        return _refuse(f"{command}: a value is out of range ({shortened(error)})")
    except (typer.Abort, KeyboardInterrupt):
        return _refuse("stopped", 130)


def _command(arguments: Sequence[str]) -> str:
    """The command that was asked for, as far as it is one."""
    words: list[str] = []
    offered: Mapping[str, Listed] = COMMANDS
    for word in arguments[:2]:
        if word not in offered:
            break
        words.append(word)
        offered = offered[word].commands
    return " ".join(words) or "plrvo"


def _shown(value: object) -> str:
    if value is None:
        return "(missing)"
    return value if isinstance(value, str) else shortened(value)


def _refuse(message: str, code: int = 2) -> int:
    print(f"plrvo: {printable(' '.join(message.split()))}", file=sys.stderr)
    return code
