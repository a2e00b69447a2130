"""A noise as options describe it: a kind with its parameters, or a file.

Each noise declares its options (`Noise.parameters`), so that one specification serves every command. What is missing
and what does not belong is said at once, in one error.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from plrvo.files import read_json
from plrvo.noise.base import Noise
from plrvo.noise.registry import NOISES
from plrvo.noise.serial import noise_from_dict
from plrvo.validate import InvalidArgument

DESCRIBED = {kind: noise for kind, noise in NOISES.items() if noise.parameters}  # the others are read from files
OPTIONS = {p.option: p for noise in DESCRIBED.values() for p in noise.parameters}
USUAL = "gamma"  # of records that name no kind, and where any noise will do
AUTO = "auto"  # in the place of a kind: the one that suits the workload and the budget


@dataclass(frozen=True)
class Specification:
    """A kind of noise and the options that were given for it. Those that are None or False were not given.

    >>> Specification("gaussian", {"noise_multiplier": 1.5, "scale": None}).noise(clip=2.0)
    Gaussian(sigma=3.0)
    >>> Specification("laplace", {"k": 3.0}).noise(clip=2.0)
    Traceback (most recent call last):
        ...
    plrvo.validate.InvalidArgument: noise='laplace': expected `scale` (missing); no `k` 3.0, which is for gamma
    """

    kind: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    file: Path | None = None

    def __post_init__(self) -> None:
        given = {name: value for name, value in self.options.items() if value is not None and value is not False}
        object.__setattr__(self, "options", given)

    @property
    def given(self) -> dict[str, Any]:
        """Everything that was given, by the names of the options."""
        named = {"noise": self.kind, "noise_file": self.file}
        return {name: value for name, value in named.items() if value is not None} | dict(self.options)

    @property
    def named(self) -> str | None:
        """The kind that was given, or the only one that has the options."""
        return self.kind if self.kind is not None or self.file is not None else kind_with(self.options)

    def noise(self, clip: float) -> Noise:
        """The noise that is described in full."""
        self.check(fitted=False)
        return self._from_file() if self.file is not None else self._built(clip, self.options)

    def shape(self, clip: float) -> Noise:
        """The noise but for its width, which a budget will find: about as wide as the clip, or as its file says."""
        self.check(fitted=True)
        if self.file is not None:
            return self._from_file()
        usual = {p.option: 1.0 if p.is_width else p.usual for p in DESCRIBED[str(self.named)].parameters}
        narrow = self._built(
            1.0, {**{name: value for name, value in usual.items() if value is not None}, **self.options}
        )
        return narrow.scaled(clip * math.sqrt(narrow.fisher_information()))

    def check(self, *, fitted: bool) -> None:
        """Refuse what is missing and what does not belong; `fitted` if a budget finds the width."""
        if self.file is not None:
            if len(self.given) > 1:
                beside = ", ".join(f"`{name}`" for name in self.given if name != "noise_file")
                raise InvalidArgument("noise_file", str(self.file), f"no {beside} beside it")
            return
        kind = self.named
        if kind not in DESCRIBED:
            raise InvalidArgument("noise", kind, f"one of {', '.join(DESCRIBED)}, or a `noise_file`")
        own = {p.option: p for p in DESCRIBED[kind].parameters}
        needed = [p for p in own.values() if not (p.is_flag or (fitted and (p.is_width or p.usual is not None)))]
        wrong = [f"`{p.option}` (missing)" for p in needed if p.option not in self.options]
        for name, value in self.options.items():
            if name not in own:
                wrong.append(f"no `{name}` {value}, which is for {' and '.join(_owners(name)) or 'no noise'}")
            elif fitted and own[name].is_width:
                wrong.append(f"no `{name}` {value} beside `epsilon`, which finds it")
        if wrong:
            raise InvalidArgument("noise", kind, "; ".join(wrong))

    def _built(self, clip: float, options: Mapping[str, Any]) -> Noise:
        parameters = DESCRIBED[str(self.named)].parameters
        fields = {p.field or p.option: p.read(options[p.option], clip) for p in parameters if p.option in options}
        try:
            return DESCRIBED[str(self.named)](**fields)
        except InvalidArgument as error:
            name = next((p.option for p in parameters if error.argument in (p.field, p.option)), error.argument)
            if name not in self.options and self.options:  # what was given made a usual value wrong
                name = next(iter(self.options))
                raise InvalidArgument(name, options[name], f"another value: beside it, {error}") from None
            raise InvalidArgument(name, options.get(name, error.value), error.expected) from None

    def _from_file(self) -> Noise:
        description = read_json(Path(str(self.file)), "noise_file", "a JSON object as noise.to_dict() gives")
        try:
            return noise_from_dict(description)
        except InvalidArgument as error:
            raise InvalidArgument("noise_file", str(self.file), f"a valid noise ({error})") from None


def kind_with(options: Mapping[str, Any]) -> str | None:
    """The only kind of noise that has all of these options; None without options.

    >>> kind_with({"noise_multiplier": 1.1}), kind_with({"k": 40_000, "theta": 6e-5}), kind_with({})
    ('gaussian', 'gamma', None)
    """
    given = Specification(None, options).options
    kinds = [kind for kind in DESCRIBED if all(kind in _owners(name) for name in given)]
    if given and len(kinds) != 1:
        named = " and ".join(f"`{name}`" for name in given)
        raise InvalidArgument("noise", None, f"a kind, one of {', '.join(kinds or DESCRIBED)}, beside {named}")
    return kinds[0] if given else None


def _owners(option: str) -> list[str]:
    return [kind for kind, noise in DESCRIBED.items() if any(p.option == option for p in noise.parameters)]
