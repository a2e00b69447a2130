"""The options of every noise in the registry, in the place of a command's parameter `noise: Specification`."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from plrvo.cli.options import NOISE
from plrvo.noise.specification import DESCRIBED, Specification

NO_NOISE = "none"
NOT_GIVEN = Specification()
_make_enum: Any = StrEnum


def with_noise_options(
    *, widths: bool = True, files: bool = True, none: bool = False
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Let a command be told a noise; `widths=False` where a budget finds them, `none` where it can do without."""

    def wrap(command: Callable[..., Any]) -> Callable[..., Any]:
        offered = list(_options(widths, files, none))
        hints = get_type_hints(command, include_extras=True)
        parameters: list[inspect.Parameter] = []
        for parameter in inspect.signature(command).parameters.values():
            parameters += (
                offered if parameter.name == "noise" else [parameter.replace(annotation=hints[parameter.name])]
            )

        @functools.wraps(command)
        def run(**values: Any) -> Any:
            given = {option.name: values.pop(option.name) for option in offered}
            kind, file = given.pop("noise"), given.pop("noise_file", None)
            return command(noise=Specification(None if kind is None else kind.value, given, file), **values)

        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return run

    return wrap


def _options(widths: bool, files: bool, none: bool) -> Iterator[inspect.Parameter]:
    kinds = [*DESCRIBED, *([NO_NOISE] if none else [])]
    kind = _make_enum("NoiseKind", {name: name for name in kinds})
    yield _option("noise", kind | None, "Its kind; " + ("none trains WITHOUT privacy." if none else "see its options."))
    declared = [(name, p) for name, noise in DESCRIBED.items() for p in noise.parameters if widths or not p.is_width]
    for option in dict.fromkeys(p.option for _, p in declared):
        same = [(name, p) for name, p in declared if p.option == option]
        text = " ".join(f"{name}: {p.help}" for name, p in same)
        yield _option(option, bool if same[0][1].is_flag else float | None, text)
    if files:
        yield _option("noise_file", Path | None, "Any other noise, as the JSON that noise.to_dict() gives.")


def _option(name: str, kind: Any, text: str) -> inspect.Parameter:
    annotation = Annotated[
        kind, typer.Option("--" + name.replace("_", "-"), help=text, rich_help_panel=NOISE, show_default=False)
    ]
    default = False if kind is bool else None
    return inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default, annotation=annotation)
