"""What every metric is: a name, a sentence that says exactly what it computes, and a score for a whole test set."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Protocol

from plrvo.validate import InvalidArgument

Tokens = Sequence[str]
Ngrams = Counter[tuple[str, ...]]


class Metric(Protocol):
    """Higher is better. `what` stands beside the number wherever it is shown."""

    @property
    def name(self) -> str: ...

    @property
    def what(self) -> str: ...

    def __call__(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> float:
        """The score of one hypothesis per segment against all references of that segment."""
        ...


def check_segments(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> None:
    """At least one segment, as many hypotheses as segments, at least one reference each; an empty string is text."""
    for name, value in {"hypotheses": hypotheses, "references": references}.items():
        if isinstance(value, str) or not len(value):
            raise InvalidArgument(name, value, "one for each segment, and at least one segment")
    if len(hypotheses) != len(references):
        raise InvalidArgument("hypotheses", len(hypotheses), f"as many as there are segments, {len(references)}")
    for index, those in enumerate(references):
        if isinstance(those, str) or not len(those):
            raise InvalidArgument(f"references[{index}]", those, "a list of at least one reference")


def ngrams(tokens: Tokens, longest: int) -> Ngrams:
    """How often each run of 1 to `longest` words occurs.

    >>> sorted(ngrams(["a", "b", "a"], 2).items())
    [(('a',), 2), (('a', 'b'), 1), (('b',), 1), (('b', 'a'), 1)]
    """
    return Counter(
        tuple(tokens[start : start + length])
        for length in range(1, longest + 1)
        for start in range(len(tokens) - length + 1)
    )
