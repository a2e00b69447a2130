"""CIDEr-D: agreement with the references in weighed n-grams (Vedantam et al. 2015)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from plrvo.tasks.tables.metrics.base import Ngrams, check_segments, ngrams
from plrvo.tasks.tables.metrics.tokens import ptb_tokens

LONGEST = 4
SIGMA = 6.0

Vector = Mapping[tuple[str, ...], float]


@dataclass(frozen=True)
class CiderD:
    """CIDEr-D, with its customary factor of ten.

    An n-gram weighs its count times ln(S / max(1, df)), with S segments, df of which have it in a reference. With h
    and r these weights for a hypothesis and a reference of lengths l_h and l_r, for each n in 1..4

        sim_n = exp(-(l_h - l_r)^2 / (2 * 6^2)) * sum_w min(h_w, r_w) r_w / (|h| |r|)

    and the score is ten times the mean of sim_n over n, references and segments. On one segment it is 0: an n-gram
    that every segment has carries no weight.
    """

    name: str = "cider"
    what: str = "CIDEr-D: 1- to 4-grams, clipped, length penalty sigma 6, times 10, frequencies from these references"

    def __call__(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> float:
        check_segments(hypotheses, references)
        words = [[ptb_tokens(text) for text in those] for those in references]
        counts = [[ngrams(text, LONGEST) for text in those] for those in words]
        frequency = Counter(gram for those in counts for gram in set().union(*those))
        segments = len(references)
        scores = []
        for hypothesis, those, in_those in zip(hypotheses, words, counts, strict=True):
            tokens = ptb_tokens(hypothesis)
            mine = _weights(ngrams(tokens, LONGEST), frequency, segments)
            parts = [
                math.exp(-((len(tokens) - len(text)) ** 2) / (2 * SIGMA**2))
                * _similarity(mine, _weights(count, frequency, segments))
                for text, count in zip(those, in_those, strict=True)
            ]
            scores.append(10 * sum(parts) / len(parts))
        return sum(scores) / segments


def _weights(counts: Ngrams, frequency: Mapping[tuple[str, ...], int], segments: int) -> list[Vector]:
    """One vector for each n."""
    vectors: list[dict[tuple[str, ...], float]] = [{} for _ in range(LONGEST)]
    for gram, count in counts.items():
        vectors[len(gram) - 1][gram] = count * math.log(segments / max(1, frequency.get(gram, 0)))
    return list(vectors)


def _similarity(mine: list[Vector], theirs: list[Vector]) -> float:
    """The mean over n of the clipped cosine; 0 for an n of which either has nothing."""
    total = 0.0
    for h, r in zip(mine, theirs, strict=True):
        norms = math.hypot(*h.values()) * math.hypot(*r.values())
        if norms:
            total += sum(min(weight, r[gram]) * r[gram] for gram, weight in h.items() if gram in r) / norms
    return total / LONGEST
