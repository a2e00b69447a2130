"""Options that mean the same thing in every command, and the objects they describe."""

from __future__ import annotations

import math
import re
from dataclasses import fields
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from plrvo.accounting import Workload
from plrvo.accounting.named import named_noise
from plrvo.files import read_json
from plrvo.noise import Noise, noise_from_dict
from plrvo.tasks.job import Job
from plrvo.validate import InvalidArgument, required


class NoiseKind(StrEnum):
    """The noises that have options of their own."""

    gaussian = "gaussian"
    laplace = "laplace"
    gamma = "gamma"


NOISE, WORK, BUDGET = "Noise", "Workload", "Budget"  # panels of --help

NoiseOption = Annotated[
    NoiseKind | None,
    typer.Option(
        "--noise",
        help="gaussian, laplace, or gamma: Laplace noise with a Gamma-random inverse scale.",
        rich_help_panel=NOISE,
    ),
]
MultiplierOption = Annotated[
    float | None,
    typer.Option("--noise-multiplier", help="gaussian: standard deviation divided by the clip.", rich_help_panel=NOISE),
]
ScaleOption = Annotated[
    float | None, typer.Option("--scale", help="laplace: scale b at sum scale.", rich_help_panel=NOISE)
]
KOption = Annotated[float | None, typer.Option("--k", help="gamma: shape of the inverse scale.", rich_help_panel=NOISE)]
ThetaOption = Annotated[
    float | None, typer.Option("--theta", help="gamma: scale (not rate) of the inverse scale.", rich_help_panel=NOISE)
]
SharedOption = Annotated[
    bool, typer.Option("--shared", help="gamma: one random scale per step for all coordinates.", rich_help_panel=NOISE)
]
NoiseFileOption = Annotated[
    Path | None,
    typer.Option(
        "--noise-file", help="Any other noise, as the JSON that noise.to_dict() gives.", rich_help_panel=NOISE
    ),
]
ClipOption = Annotated[
    float | None, typer.Option("--clip", help="l2 norm to which each gradient is clipped.", rich_help_panel=WORK)
]
RateOption = Annotated[
    float | None,
    typer.Option("--sample-rate", help="Probability with which an example joins a batch.", rich_help_panel=WORK),
]
StepsOption = Annotated[int | None, typer.Option("--steps", help="Number of noisy steps.", rich_help_panel=WORK)]
DimensionOption = Annotated[
    int | None, typer.Option("--dimension", help="Number of trainable parameters.", rich_help_panel=WORK)
]
EpsilonOption = Annotated[float | None, typer.Option("--epsilon", help="Privacy budget.", rich_help_panel=BUDGET)]
DeltaOption = Annotated[
    float, typer.Option("--delta", help="Failure probability of the guarantee.", rich_help_panel=BUDGET)
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout and nothing else.")]

OPTION_OF_ARGUMENT = {
    "entry": "NAME",
    "b": "--scale",
    "sigma": "--noise-multiplier",
    "name": "TASK",
    "task": "TASK",
    "receipt": "RECEIPT",
    "runs": "RUN",
    "audited_receipt": "--receipt",
}


OF_ONE_COMMAND = {
    "train": {"learning_rate": "--lr"},
    "audit one-run": {"learning_rate": "--lr", "audit": "--canaries"},
}


def option_name(argument: str, command: str = "") -> str:
    """The option through which a library argument came in."""
    known = OPTION_OF_ARGUMENT | OF_ONE_COMMAND.get(command, {})
    return known.get(argument, "--" + argument.replace("_", "-"))


def spelled(message: str, command: str = "") -> str:
    """A message of the library, where arguments of a job stand in backticks, with the options of the command.

    >>> spelled("no value beside `sample_rate`, as `design` has it")
    'no value beside --sample-rate, as `design` has it'
    """
    arguments = "|".join([*(field.name for field in fields(Job)), "out", "resume"])
    return re.sub(f"`({arguments})`", lambda found: option_name(found[1], command), message)


def read_workload(clip: float | None, sample_rate: float | None, steps: int | None, dimension: int | None) -> Workload:
    """The workload that the options describe."""
    required(clip=clip, sample_rate=sample_rate, steps=steps, dimension=dimension)
    return Workload(sample_rate=sample_rate, steps=steps, clip=clip, dimension=dimension)  # type: ignore[arg-type]


def read_noise(
    kind: NoiseKind | None,
    clip: float,
    noise_multiplier: float | None,
    scale: float | None,
    k: float | None,
    theta: float | None,
    shared: bool,
    noise_file: Path | None,
) -> Noise:
    """The noise that the options describe; exactly one of --noise and --noise-file."""
    named = read_kind(kind, noise_file)
    return named_noise(named, clip, noise_multiplier, scale, k, theta, shared) if isinstance(named, str) else named


def read_kind(kind: str | None, noise_file: Path | None) -> str | Noise:
    """The name of a noise, or the noise in a file."""
    if noise_file is None:
        required(noise=kind)
        return str(kind)
    if kind is not None:
        raise InvalidArgument("noise_file", str(noise_file), "no --noise beside it")
    return _noise_from_file(noise_file)


def _noise_from_file(path: Path) -> Noise:
    description = read_json(path, "noise_file", "a JSON object as noise.to_dict() gives")
    try:
        return noise_from_dict(description)
    except InvalidArgument as error:
        raise InvalidArgument("noise_file", str(path), f"a valid noise ({error})") from None


def plain(value: Any) -> Any:
    """The value with infinities written as the string "inf", since JSON has none."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, (list, tuple)) else value
