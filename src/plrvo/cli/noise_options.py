"""The options of every noise in the registry: in the place of a command's parameter `noise`, or of a job's."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from plrvo.cli.options import NOISE, option_name, spelled
from plrvo.noise.parameter import Parameter
from plrvo.noise.specification import AUTO, DESCRIBED, OPTIONS, Specification
from plrvo.records.described import blaming
from plrvo.tasks.job import NO_NOISE

NOT_GIVEN = Specification()
_make_enum: Any = StrEnum


def with_noise_options(*, widths: bool = True) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Let a command be given a noise; `widths=False` where a budget finds them."""

    def wrap(command: Callable[..., Any]) -> Callable[..., Any]:
        offered = noise_parameters(widths=widths)
        hints = get_type_hints(command, include_extras=True)
        parameters: list[inspect.Parameter] = []
        for known in inspect.signature(command).parameters.values():
            own = known.replace(annotation=hints[known.name], kind=inspect.Parameter.KEYWORD_ONLY)
            parameters += offered if known.name == "noise" else [own]

        @functools.wraps(command)
        def run(**values: Any) -> Any:
            given = {option.name: values.pop(option.name) for option in offered}
            kind, file = given.pop("noise"), given.pop("noise_file")
            described = Specification(None if kind is None else kind.value, given, file)
            with blaming(described):
                return command(noise=described, **values)

        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return run

    return wrap


def noise_parameters(
    *, widths: bool = True, files: bool = True, auto: bool = False, none: bool = False
) -> list[inspect.Parameter]:
    """What describes a noise, as parameters of a command; `auto` where it can choose, `none` where it needs none."""
    kinds = [*([AUTO] if auto else []), *DESCRIBED, *([NO_NOISE] if none else [])]
    text = (
        "Its kind; auto, the default, takes the one with the least error."
        if auto
        else "Its kind; not needed beside an option that only one kind has."
    ) + (" none trains WITHOUT privacy." if none else "")
    found = [_parameter("noise", _make_enum("NoiseKind", {name: name for name in kinds}), text)]
    for option, parameter in OPTIONS.items():
        same = [(name, p) for name, noise in DESCRIBED.items() for p in noise.parameters if p.option == option]
        if widths or not all(p.is_width for _, p in same):
            text = " ".join(f"{name}: {p.help}{_usual(p, widths, auto)}" for name, p in same)
            found.append(_parameter(option, bool if parameter.is_flag else float, text))
    if files:
        found.append(_parameter("noise_file", Path, "Any other noise, as the JSON that noise.to_dict() gives."))
    return found


def _usual(parameter: Parameter, widths: bool, fitted: bool) -> str:
    """What an option is where a budget finds the width beside it."""
    if parameter.usual is None or (widths and not fitted):
        return ""
    return f" By default {parameter.usual:g}" + (", where `epsilon` is given." if widths else ".")


def _parameter(name: str, kind: Any, text: str) -> inspect.Parameter:
    option = typer.Option(option_name(name), help=spelled(text), rich_help_panel=NOISE, show_default=False)
    keyword = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, keyword, default=None, annotation=Annotated[kind | None, option])
