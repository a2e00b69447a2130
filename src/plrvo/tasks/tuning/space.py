"""What a search varies: settings of a job, each with the values that a trial may draw.

Every trial draws every setting anew and uniformly, from a list or from a range, whatever earlier trials drew or gave:
all trials are runs of one mechanism, which is what the bound for the best of them asks for. That holds for grids too: a
grid is a list, and its points are drawn with replacement.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from plrvo.noise import Keystream
from plrvo.validate import InvalidArgument, number, shortened, spelled_number

# Settings of the learning alone: what is made of noisy sums is free of privacy cost.
_LEARNING = ("learning_rate", "momentum", "weight_decay", "average")
_NAMED = ("optimizer", "schedule")
# Each value of these has a noise of its own, which is certified beforehand.
CHARGED = ("clip", "sample_rate", "steps")
VARIED = (*_LEARNING, *_NAMED, *CHARGED)
_WORDS = {"lr": "learning_rate"}
POINTS = 5  # of a range that is a grid
_MOST = 64  # values in a list


@dataclass(frozen=True)
class Listed:
    """One of these values."""

    values: tuple[Any, ...]

    def __post_init__(self) -> None:
        if not 1 <= len(self.values) <= _MOST or len({*self.values}) != len(self.values):
            raise InvalidArgument("vary", self.values, f"one to {_MOST} values, none of them twice")

    def draw(self, keystream: Keystream) -> Any:
        return self.values[_below(len(self.values), keystream)]

    @property
    def ends(self) -> tuple[Any, ...]:
        """Values by which to see whether all can be asked for."""
        return self.values

    def to_dict(self) -> dict[str, Any]:
        return {"values": list(self.values)}


@dataclass(frozen=True)
class Range:
    """A number from `low` to `high`, uniformly, or uniformly in its logarithm."""

    low: float
    high: float
    log: bool = False

    def __post_init__(self) -> None:
        number(vary=self.low)
        number(vary=self.high)
        if not -math.inf < self.low < self.high < math.inf or (self.log and self.low <= 0):
            kind = "two positive numbers, the smaller one first" if self.log else "two numbers, the smaller one first"
            raise InvalidArgument("vary", f"{self.low}:{self.high}", kind)

    def at(self, share: float) -> float:
        """The number so far on the way from low to high, and between them whatever is rounded."""
        if self.log:
            found = math.exp(math.log(self.low) + share * (math.log(self.high) - math.log(self.low)))
        else:
            found = self.low + share * (self.high - self.low)
        return min(self.high, max(self.low, found))

    def draw(self, keystream: Keystream) -> float:
        return self.at(int(keystream.words(1)[0] >> 11) / 2**53)

    def grid(self, points: int = POINTS) -> Listed:
        """Evenly spaced points of the range, with its ends, to six digits."""
        values = (float(f"{self.at(i / (points - 1)):.6g}") for i in range(points))
        return Listed(tuple(dict.fromkeys(values)))

    @property
    def ends(self) -> tuple[float, float]:
        return self.low, self.high

    def to_dict(self) -> dict[str, Any]:
        return {"low": self.low, "high": self.high, "log": self.log}


Values = Listed | Range


def read_vary(texts: Sequence[str], *, grid: bool = False) -> dict[str, Values]:
    """What `NAME=VALUE,VALUE` or `NAME=LOW:HIGH[:log]` says, by the names of a job; ranges are grids if asked for.

    >>> read_vary(["lr=0.1:10:log", "clip=0.1,1"])
    {'learning_rate': Range(low=0.1, high=10.0, log=True), 'clip': Listed(values=(0.1, 1.0))}
    >>> read_vary(["lr=0.1:10:log"], grid=True)
    {'learning_rate': Listed(values=(0.1, 0.316228, 1.0, 3.16228, 10.0))}
    """
    found: dict[str, Values] = {}
    for text in texts:
        name, equals, given = text.partition("=")
        name = name.strip().lstrip("-")
        name = _WORDS.get(name, name.replace("-", "_"))
        if not equals or name not in VARIED:
            known = ", ".join(["lr", *(other.replace("_", "-") for other in VARIED if other != "learning_rate")])
            raise InvalidArgument("vary", text, f"NAME=VALUE,VALUE,... or NAME=LOW:HIGH[:log], of {known}")
        if name in found:
            raise InvalidArgument("vary", text, "each setting once")
        found[name] = _values(name, given, text)
    return {name: v.grid() if grid and isinstance(v, Range) else v for name, v in found.items()}


def vary_from_dict(description: Any) -> dict[str, Values]:
    """What `to_dict` of each described."""
    if not isinstance(description, Mapping) or not description.keys() <= {*VARIED}:
        raise InvalidArgument("vary", description, "settings with their values")
    found: dict[str, Values] = {}
    for name, given in description.items():
        if not isinstance(given, Mapping) or set(given) not in ({"values"}, {"low", "high", "log"}):
            raise InvalidArgument("vary", given, "values, or low, high and log")
        found[name] = Listed(tuple(given["values"])) if "values" in given else Range(**given)
    return found


def _values(name: str, given: str, text: str) -> Values:
    if ":" not in given or name in _NAMED:
        return Listed(tuple(_value(name, part.strip(), text) for part in given.split(",")))
    low, high, *kind = given.split(":")
    if kind not in ([], ["log"]):
        raise InvalidArgument("vary", text, "NAME=LOW:HIGH or NAME=LOW:HIGH:log")
    if name in CHARGED:
        raise InvalidArgument("vary", text, f"a list for {name.replace('_', '-')}: each value has a noise of its own")
    return Range(_value(name, low, text), _value(name, high, text), bool(kind))


def _value(name: str, part: str, text: str) -> Any:
    if name in _NAMED:
        return part
    try:
        return spelled_number(int if name == "steps" else float, part)
    except ValueError:
        kind = "whole numbers" if name == "steps" else "numbers"
        raise InvalidArgument("vary", text, f"{kind}; {shortened(part)} is none") from None


def _below(count: int, keystream: Keystream) -> int:
    """A whole number below `count`, each as likely as the others."""
    while True:
        word = int(keystream.words(1)[0])
        if word < (1 << 64) // count * count:
            return word % count
