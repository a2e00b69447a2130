"""Correlations by name, for data of a given size: bands and buffers are fitted to the optimizer."""

from __future__ import annotations

from plrvo.accounting.correlated.correlation import Correlation
from plrvo.accounting.correlated.fitting import Updates, fit_banded, fit_blt
from plrvo.accounting.correlated.participation import CyclicPoisson, Participation
from plrvo.accounting.correlated.strategy import Strategy
from plrvo.accounting.correlated.toeplitz import Banded, SquareRoot
from plrvo.accounting.correlated.tree import Tree
from plrvo.validate import InvalidArgument, positive_integer

CYCLIC = ":cyclic"
NAMES = (
    "identity, tree, tree:completed, sqrt, banded:B (B bands), blt or blt:D (D buffers), or banded:B:cyclic, which "
    "samples within B groups by turns"
)
BATCH, _BUFFERS = 250, 3
_PLAIN: dict[str, Strategy] = {
    "identity": Banded(),
    "tree": Tree(),
    "tree:completed": Tree(completed=True),
    "sqrt": SquareRoot(),
}


def check_named(
    name: str,
    epochs: int | None,
    batch_size: int | None = None,
    restart_every: int | None = None,
    separation: int | None = None,
) -> tuple[int, int]:
    """Refuse what names no correlation, whatever the data is; returns the epochs and the batch size."""
    if epochs is None:
        raise InvalidArgument("epochs", None, "a value: how often a correlation may visit the data")
    batch = BATCH if batch_size is None else batch_size
    positive_integer(batch_size=batch, epochs=epochs)
    kind, _, argument = name.removesuffix(CYCLIC).partition(":")
    counted = argument.isdecimal() and len(argument) < 10 and int(argument) > 0
    known = name in _PLAIN or (kind == "banded" and counted)
    known |= kind == "blt" and not name.endswith(CYCLIC) and (counted or not argument)
    if not known:
        raise InvalidArgument("correlation", name, NAMES)
    for option, value in (("restart_every", restart_every), ("separation", separation)):
        if value is not None:
            positive_integer(**{option: value})
            if name.endswith(CYCLIC):
                raise InvalidArgument(option, value, "no value beside cyclic sampling")
    return epochs, batch


def named_correlation(
    name: str,
    size: int,
    epochs: int | None,
    batch_size: int | None = None,
    restart_every: int | None = None,
    separation: int | None = None,
    momentum: float = 0.0,
    decays: bool = False,
) -> tuple[Correlation, int]:
    """The correlation of that name for `size` examples, and the number of steps.

    `decays`: whether the learning rate falls linearly to zero.
    """
    epochs, batch = check_named(name, epochs, batch_size, restart_every, separation)
    if batch > size:
        raise InvalidArgument("batch_size", batch, f"at most {size}, the number of examples")
    per_epoch = -(-size // batch)
    steps = per_epoch * epochs
    updates = Updates(momentum, tuple(1 - step / steps for step in range(steps)) if decays else ())
    if name.endswith(CYCLIC):
        return _cyclic(name, batch / size, steps, updates), steps
    restart = None if restart_every is None else min(steps, restart_every * per_epoch)
    participation = Participation(per_epoch, epochs, separation or 0)
    return Correlation(_strategy(name, restart or steps, participation, updates), participation, restart), steps


def _cyclic(name: str, share: float, steps: int, updates: Updates) -> Correlation:
    """As many groups as bands: fewer are not allowed, and more are amplified less."""
    kind, _, argument = name.removesuffix(CYCLIC).partition(":")
    bands = int(argument) if kind == "banded" and argument.isdigit() else 0
    if not bands:
        raise InvalidArgument("correlation", name, NAMES)
    if bands * share > 1:
        raise InvalidArgument("correlation", name, f"at most {int(1 / share)} bands: a batch is all of a group")
    return Correlation(fit_banded(bands, steps, updates), CyclicPoisson(bands, bands * share))


def _strategy(name: str, length: int, participation: Participation, updates: Updates) -> Strategy:
    kind, _, argument = name.partition(":")
    if name in _PLAIN:
        return _PLAIN[name]
    count = int(argument) if argument.isdigit() else 0
    if kind == "banded" and count:
        if count > participation.separation:
            raise InvalidArgument("correlation", name, f"at most {participation.separation} bands, the separation")
        return fit_banded(count, length, updates)
    if kind == "blt" and (count or not argument):
        return fit_blt(count or _BUFFERS, length, participation, updates)
    raise InvalidArgument("correlation", name, NAMES)
