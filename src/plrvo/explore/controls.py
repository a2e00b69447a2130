"""The sliders and choices of the page, and where they stand for a question."""

from __future__ import annotations

import math
from dataclasses import dataclass

from plrvo.explore.question import KINDS, LIMITS, USUAL, Question

_STOPS = 1000  # of every slider; logarithmic, as everything that it sets


@dataclass(frozen=True)
class Control:
    """A slider with a field beside it, for one name of a question. `when` says which choice it belongs to."""

    name: str
    label: str
    whole: bool = False
    when: str = ""

    @property
    def low(self) -> float:
        return LIMITS[self.name][0]

    @property
    def high(self) -> float:
        return LIMITS[self.name][1]

    def stop(self, value: float) -> int:
        """Where the slider stands for a value."""
        return round(_STOPS * math.log(value / self.low) / math.log(self.high / self.low))


@dataclass(frozen=True)
class Set:
    """A control with the value that it shows, and whether the question has it."""

    control: Control
    value: float
    active: bool

    @property
    def text(self) -> str:
        return f"{self.value:.15g}"

    @property
    def stop(self) -> int:
        return self.control.stop(self.value)


@dataclass(frozen=True)
class Choice:
    """A name in a question's form: its value, what it says, and whether it is chosen."""

    value: str
    label: str
    chosen: bool


CONTROLS = (
    Control("width", "Noise, in clips", when="by-width"),
    Control("epsilon", "Budget epsilon", when="by-budget"),
    Control("k", "Shape k", when="gamma"),
    Control("sample_rate", "Sampling rate q", when="by-rate"),
    Control("steps", "Steps T", True, when="by-rate"),
    Control("examples", "Examples", True, when="by-data"),
    Control("batch", "Batch size", True, when="by-data"),
    Control("epochs", "Epochs", when="by-data"),
    Control("dimension", "Parameters n", True),
    Control("clip", "Clip"),
    Control("delta", "Delta"),
)
_BESIDE = {"width": 1.1, "epsilon": 2.0, "examples": 60_000, "batch": 600, "epochs": 30.0}  # where there is no value


def kinds(question: Question) -> list[Choice]:
    """The noises to choose from."""
    return [Choice(kind, kind, kind == question.noise) for kind in KINDS]


def set_to(question: Question) -> list[Set]:
    """Every control, at the value of the question or of the usual one."""
    active = {"", question.noise, "by-width" if question.epsilon is None else "by-budget"}
    active.add("by-data" if question.by_data else "by-rate")
    found = []
    for control in CONTROLS:
        value = getattr(question, control.name)
        usual = getattr(USUAL, control.name)
        shown = value if value is not None else usual if usual is not None else _BESIDE[control.name]
        found.append(Set(control, shown, control.when in active))
    return found
