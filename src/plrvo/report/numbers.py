"""How numbers, metrics and noises are written on the page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from plrvo.accounting.printed import rounded_down, rounded_up
from plrvo.paper.wording import told


@dataclass(frozen=True)
class Shown:
    """A number in few digits, rounded to the side on which it stays true; `exact` is all of it."""

    text: str
    exact: str
    quantity: str


def up(value: float | None, quantity: str) -> Shown | None:
    """An upper bound."""
    return None if value is None else Shown(rounded_up(value), repr(value), quantity)


def down(value: float | None, quantity: str) -> Shown | None:
    """A lower bound."""
    return None if value is None else Shown(rounded_down(value), repr(value), quantity)


def near(value: float | None, quantity: str, digits: int = 4) -> Shown | None:
    """For what is no bound: the nearest number of so many digits."""
    return None if value is None else Shown(f"{value:.{digits}g}", repr(value), quantity)


def measured(value: float | None, name: str) -> Shown | None:
    """A number of a reproduction's row, which may be a bound."""
    return None if value is None else Shown(told(name, value), repr(value), name)


def tell_metric(name: str, value: float) -> str:
    """Accuracies in per cent, everything else as it is."""
    return f"{100 * value:.2f} %" if name == "accuracy" and 0 <= value <= 1 else f"{value:.4g}"


def noise_words(given: Mapping[str, object]) -> str:
    """The noise with its parameters, in a line."""
    parts = [f"{name} {short(value)}" for name, value in given.items() if name not in ("noise", "shared")]
    if given.get("shared") is True:
        parts.append("one scale for all coordinates")
    return f"{given.get('noise')} noise" + (f" ({', '.join(parts)})" if parts else "")


def short(value: object) -> str:
    """A parameter in few digits; a whole number keeps all of its own.

    >>> short(40_000.0), short(0.00130488)
    ('40000', '0.001305')
    """
    if isinstance(value, float):
        return f"{value:.0f}" if value.is_integer() and abs(value) < 1e9 else f"{value:.4g}"
    return str(value)
