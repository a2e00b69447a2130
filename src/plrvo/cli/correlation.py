"""Options for correlated noise, and the correlation that they describe."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import typer

from plrvo.accounting.correlated import (
    Banded,
    Correlation,
    CyclicPoisson,
    Participation,
    SquareRoot,
    Strategy,
    Tree,
    Updates,
    fit_banded,
    fit_blt,
)
from plrvo.validate import InvalidArgument, positive_integer

_PANEL = "Correlated noise"
_NAMES = (
    "identity, tree, tree:completed, sqrt, banded:B (B bands), blt or blt:D (D buffers), or banded:B:cyclic, which "
    "samples within B groups by turns"
)
_CYCLIC = ":cyclic"
_IN_HELP = _NAMES.replace(_CYCLIC, f"[bold]{_CYCLIC}[/bold]")  # else :B: is an emoji to the printer of help

CorrelationOption = Annotated[
    str | None,
    typer.Option("--correlation", help=f"Correlated noise, data in a fixed order: {_IN_HELP}.", rich_help_panel=_PANEL),
]
EpochsOption = Annotated[
    int | None, typer.Option("--epochs", help="Passes over the data, with --correlation.", rich_help_panel=_PANEL)
]
BatchOption = Annotated[
    int | None,
    typer.Option(
        "--batch-size", help="Examples in a step, with --correlation; 250 by default.", rich_help_panel=_PANEL
    ),
]
RestartOption = Annotated[
    int | None, typer.Option("--restart-every", help="Epochs after which noise starts anew.", rich_help_panel=_PANEL)
]
SeparationOption = Annotated[
    int | None,
    typer.Option(
        "--separation",
        help="Steps between two visits of an example, at least; one epoch (a fixed order) by default. Fewer let "
        "examples be shuffled, and cost more.",
        rich_help_panel=_PANEL,
    ),
]

_BATCH, _BUFFERS = 250, 3


@dataclass(frozen=True)
class Asked:
    """What the options say."""

    name: str | None
    epochs: int | None
    batch_size: int | None
    restart_every: int | None
    separation: int | None

    def refuse_beside(self, clipping: str, plain: bool, **given: Any) -> None:
        """Options that mean nothing without --correlation, and others that mean nothing with it."""
        if self.name is None:
            for option in ("epochs", "batch_size", "restart_every", "separation"):
                if getattr(self, option) is not None:
                    raise InvalidArgument(option, getattr(self, option), "--correlation beside it")
            return
        for option, value in given.items():
            if value is not None:
                raise InvalidArgument(option, str(value), "no value beside --correlation, which has --epochs")
        if clipping == "l1":
            raise InvalidArgument("clipping", "l1", "flat or per_layer beside --correlation")
        if plain:
            raise InvalidArgument("correlation", self.name, "a noise to correlate")


def read_correlation(asked: Asked, size: int, momentum: float, decays: bool) -> tuple[Correlation, int]:
    """The correlation for data of that size, and the number of steps. Bands and buffers are fitted to the optimizer.

    `decays`: whether the learning rate falls linearly to zero.
    """
    if asked.epochs is None:
        raise InvalidArgument("epochs", None, "a value: how often --correlation may visit the data")
    batch = _BATCH if asked.batch_size is None else asked.batch_size
    positive_integer(batch_size=batch, epochs=asked.epochs)
    if batch > size:
        raise InvalidArgument("batch_size", batch, f"at most {size}, the number of examples")
    per_epoch = -(-size // batch)
    steps = per_epoch * asked.epochs
    restart = None
    if asked.restart_every is not None:
        positive_integer(restart_every=asked.restart_every)
        restart = min(steps, asked.restart_every * per_epoch)
    if asked.separation is not None:
        positive_integer(separation=asked.separation)
    if str(asked.name).endswith(_CYCLIC):
        return _cyclic(asked, batch / size, steps, Updates(momentum, _falling(steps) if decays else ())), steps
    participation = Participation(per_epoch, asked.epochs, asked.separation or 0)
    updates = Updates(momentum, _falling(steps) if decays else ())
    strategy = _strategy(str(asked.name), restart or steps, participation, updates)
    return Correlation(strategy, participation, restart), steps


def _falling(steps: int) -> tuple[float, ...]:
    return tuple(1 - step / steps for step in range(steps))


def _cyclic(asked: Asked, share: float, steps: int, updates: Updates) -> Correlation:
    """As many groups as bands: fewer are not allowed, and more are amplified less."""
    kind, _, argument = str(asked.name).removesuffix(_CYCLIC).partition(":")
    bands = int(argument) if kind == "banded" and argument.isdigit() else 0
    if not bands:
        raise InvalidArgument("correlation", asked.name, _NAMES)
    for option in ("separation", "restart_every"):
        if getattr(asked, option) is not None:
            raise InvalidArgument(option, getattr(asked, option), "no value beside cyclic sampling")
    if bands * share > 1:
        raise InvalidArgument("correlation", asked.name, f"at most {int(1 / share)} bands: a batch is all of a group")
    return Correlation(fit_banded(bands, steps, updates), CyclicPoisson(bands, bands * share))


def _strategy(name: str, length: int, participation: Participation, updates: Updates) -> Strategy:
    kind, _, argument = name.partition(":")
    plain: dict[str, Strategy] = {
        "identity": Banded(),
        "tree": Tree(),
        "tree:completed": Tree(completed=True),
        "sqrt": SquareRoot(),
    }
    if name in plain:
        return plain[name]
    count = int(argument) if argument.isdigit() else 0
    if kind == "banded" and count:
        if count > participation.separation:
            raise InvalidArgument("correlation", name, f"at most {participation.separation} bands, the separation")
        return fit_banded(count, length, updates)
    if kind == "blt" and (count or not argument):
        return fit_blt(count or _BUFFERS, length, participation, updates)
    raise InvalidArgument("correlation", name, _NAMES)
