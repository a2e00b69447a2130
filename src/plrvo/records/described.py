"""A noise that options describe, refused in the name of what was given: no kind is blamed that nobody named."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from plrvo.noise import Specification
from plrvo.noise.specification import DESCRIBED
from plrvo.validate import InvalidArgument


def check_described(kind: str | None, options: Mapping[str, Any], *, fitted: bool) -> None:
    """As `Specification.check`; a kind of None was not given, and follows from the options.

    >>> check_described(None, {"noise_multiplier": 1.0}, fitted=True)
    Traceback (most recent call last):
        ...
    plrvo.validate.InvalidArgument: noise_multiplier=1.0: expected no value beside `epsilon`, which finds it
    """
    described = Specification(kind, options)
    with blaming(described):
        found = described.named
        own = DESCRIBED[found].parameters if found in DESCRIBED else ()
        widths = [p.option for p in own if p.is_width and p.option in described.options]
        if fitted and widths:
            raise InvalidArgument(widths[0], described.options[widths[0]], "no value beside `epsilon`, which finds it")
        described.check(fitted=fitted)


@contextmanager
def blaming(described: Specification) -> Iterator[None]:
    """Name the first option that was given where a kind is refused that only follows from it."""
    try:
        yield
    except InvalidArgument as error:
        inferred = described.kind is None and described.file is None and described.options
        if error.argument != "noise" or error.value is None or not inferred:
            raise
        name, value = next(iter(described.options.items()))
        raise InvalidArgument(name, value, f"{error.expected}, for {error.value} noise") from None
