"""ROUGE-L: the longest common subsequence of words (Lin 2004), as `e2e-metrics` computes it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from plrvo.tasks.tables.metrics.base import Tokens, check_segments
from plrvo.tasks.tables.metrics.tokens import ptb_tokens

BETA = 1.2


@dataclass(frozen=True)
class RougeL:
    """The F-measure (1 + b^2) P R / (R + b^2 P), b = 1.2, of each segment; their mean.

    P is the common subsequence over the hypothesis' length, R over the reference's; each is the best over the
    references, so that the two may come from different ones.

    >>> RougeL()(["a b c d"], [["a b", "a b c d e f"]])  # P = 1 from the second, R = 1 from the first
    1.0
    """

    name: str = "rouge_l"
    what: str = "ROUGE-L: beta 1.2, best precision and best recall over references taken apart, mean over segments"

    def __call__(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> float:
        check_segments(hypotheses, references)
        scores = [
            _segment(ptb_tokens(hypothesis), [ptb_tokens(text) for text in those])
            for hypothesis, those in zip(hypotheses, references, strict=True)
        ]
        return sum(scores) / len(scores)


def _segment(hypothesis: Tokens, references: Sequence[Tokens]) -> float:
    common = [common_subsequence(hypothesis, reference) for reference in references]
    if not any(common):
        return 0.0
    precision = max(common) / len(hypothesis)
    recall = max(c / len(reference) for c, reference in zip(common, references, strict=True) if c)
    return (1 + BETA**2) * precision * recall / (recall + BETA**2 * precision)


def common_subsequence(first: Tokens, second: Tokens) -> int:
    """Length of the longest common subsequence.

    >>> common_subsequence("a b c d".split(), "a c b d".split())
    3
    """
    row = [0] * (len(second) + 1)
    for word in first:
        diagonal = 0
        for j, other in enumerate(second, start=1):
            above = row[j]
            row[j] = diagonal + 1 if word == other else max(above, row[j - 1])
            diagonal = above
    return row[-1]
