"""An option by which a command describes a noise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from plrvo.validate import positive


@dataclass(frozen=True)
class Parameter:
    """One option of a noise, for example `Parameter("scale", "scale b of the noise.", field="b", is_width=True)`."""

    option: str  # `noise_multiplier` is --noise-multiplier
    help: str
    field: str = ""  # of the noise's class; of the option's name by default
    is_width: bool = False  # what a budget finds, if one is given instead
    is_flag: bool = False
    in_clips: bool = False  # the option is the field divided by the clip
    usual: float | None = None  # where a budget finds the width and the option is not given; None: it must be

    def read(self, value: Any, clip: float) -> Any:
        """The field's value."""
        if self.in_clips:
            positive(**{self.option: value, "clip": clip})
            return value * clip
        return value

    def written(self, noise: Any, clip: float) -> Any:
        """The option's value, for a noise that has the field."""
        value = getattr(noise, self.field or self.option)
        return value / clip if self.in_clips else value
