"""Options that mean the same thing in every command, and the objects they describe."""

from __future__ import annotations

import math
import re
from dataclasses import fields
from typing import Annotated, Any

import typer

from plrvo.accounting import Workload
from plrvo.noise import Gaussian, Specification
from plrvo.noise.specification import OPTIONS
from plrvo.tasks.job import Job
from plrvo.validate import InvalidArgument, required, spelled_number

NOISE, WORK, BUDGET = "Noise", "Workload", "Budget"  # panels of --help


def read_rate(text: str) -> float:
    """A number, or a fraction of two.

    >>> read_rate("0.01"), read_rate("256/60000")
    (0.01, 0.004266666666666667)
    """
    above, _, below = str(text).partition("/")
    try:
        return float(spelled_number(float, above) / spelled_number(float, below or "1"))
    except (ValueError, ZeroDivisionError):
        raise typer.BadParameter(f"'{text}' is not a number") from None  # which names the option


ClipOption = Annotated[
    float | None,
    typer.Option(
        "--clip", help="l2 norm to which each gradient is clipped; not needed for gaussian.", rich_help_panel=WORK
    ),
]
RateOption = Annotated[
    float | None,
    typer.Option(
        "--sample-rate",
        help="Probability with which an example joins a batch; also as a fraction, 256/60000.",
        rich_help_panel=WORK,
        parser=read_rate,
    ),
]
StepsOption = Annotated[int | None, typer.Option("--steps", help="Number of noisy steps.", rich_help_panel=WORK)]
DimensionOption = Annotated[
    int | None, typer.Option("--dimension", help="Number of trainable parameters.", rich_help_panel=WORK)
]
EpsilonOption = Annotated[float | None, typer.Option("--epsilon", help="Privacy budget.", rich_help_panel=BUDGET)]
DeltaOption = Annotated[
    float, typer.Option("--delta", help="Failure probability of the guarantee.", rich_help_panel=BUDGET)
]
DeltaOrDefaultOption = Annotated[  # where it matters whether it was given
    float | None,
    typer.Option("--delta", help="Failure probability of the guarantee; 1e-5 by default.", rich_help_panel=BUDGET),
]
DEFAULT_DELTA = 1e-5
VerboseOption = Annotated[bool, typer.Option("--verbose", "-v", help="Say more.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout and nothing else.")]

OPTION_OF_ARGUMENT = {
    "entry": "NAME",
    "name": "TASK",
    "task": "TASK",
    "receipt": "RECEIPT",
    "runs": "RUN",
    "audited_receipt": "--receipt",
}


_ACCOUNT = {"budget": "FILE", "name": "--name", "entry": "ENTRY"}
OF_ONE_COMMAND = {
    **{f"budget {command}": _ACCOUNT for command in ("create", "show", "history", "settle", "close")},
    "train": {"learning_rate": "--lr"},
    "tune": {"learning_rate": "--lr"},
    "audit one-run": {"learning_rate": "--lr", "audit": "--canaries"},
}


def option_name(argument: str, command: str = "") -> str:
    """The option through which a library argument came in."""
    known = OPTION_OF_ARGUMENT | OF_ONE_COMMAND.get(command, {})
    return known.get(argument, "--" + argument.replace("_", "-"))


def as_typed(argument: str, value: Any) -> str:
    """An option with its value, as it can be typed; a flag has none.

    >>> as_typed("noise_multiplier", 1.1), as_typed("shared", True)
    ('--noise-multiplier 1.1', '--shared')
    """
    return option_name(argument) if value is True else f"{option_name(argument)} {value!r}"


def spelled(message: str, command: str = "") -> str:
    """A message of the library, where arguments stand in backticks, with the options of the command.

    >>> spelled("no value beside `sample_rate`, as `design` has it")
    'no value beside --sample-rate, as `design` has it'
    """
    others = (*OPTIONS, "noise_file", "dimension", "out", "resume", "whole", "vary", "distribution")
    others += ("clip_min", "clip_max", "k_max", "minutes", "speed", "dataset_size")
    arguments = "|".join([*(field.name for field in fields(Job)), *others])
    return re.sub(f"`({arguments})`", lambda found: option_name(found[1], command), message)


def check_complete(noise: Specification, fitted: bool, example: str, /, **amounts: Any) -> None:
    """Refuse what is missing of a noise and a workload, all of it at once, beside an example."""
    described = noise.named is not None or noise.file is not None
    shown = ""
    if not described or noise.named == Gaussian.kind:  # no clip, and no dimension
        shown = f"; for example: {example}"
        amounts = {name: value for name, value in amounts.items() if name not in ("clip", "dimension")}
    missing = [f"`{name}`" for name, value in amounts.items() if value is None]
    try:
        if not described:
            raise InvalidArgument("noise", None, "a kind of noise, or an option of one, such as `noise_multiplier`")
        noise.check(fitted=fitted)
    except InvalidArgument as error:
        also = f"; {', '.join(missing)} (missing as well)" if missing else ""
        raise InvalidArgument(
            error.argument, error.value, f"{error.expected}{also}{shown if missing else ''}"
        ) from None
    try:
        required(**amounts)
    except InvalidArgument as error:
        raise InvalidArgument(error.argument, None, f"{error.expected}{shown}") from None


def read_workload(
    clip: float | None,
    sample_rate: float | None,
    steps: int | None,
    dimension: int | None,
    noise: Specification | None = None,
) -> Workload:
    """The workload that the options describe; Gaussian `noise` costs the same in every dimension and unit."""
    if noise is not None and noise.named == Gaussian.kind:
        clip, dimension = 1.0 if clip is None else clip, 1 if dimension is None else dimension
    required(clip=clip, sample_rate=sample_rate, steps=steps, dimension=dimension)
    return Workload(sample_rate=sample_rate, steps=steps, clip=clip, dimension=dimension)  # type: ignore[arg-type]


def plain(value: Any) -> Any:
    """The value with infinities written as the string "inf", since JSON has none."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, (list, tuple)) else value
