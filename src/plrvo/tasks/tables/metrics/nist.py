"""NIST: n-gram matches weighed by the information they carry (Doddington 2002), as mteval-v13a computes it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from plrvo.tasks.tables.metrics.base import Ngrams, check_segments, ngrams
from plrvo.tasks.tables.metrics.tokens import mteval_tokens

LONGEST = 5
# The penalty is one half for a text of two thirds of the references' length.
_BETA = math.log(2) / math.log(1.5) ** 2


@dataclass(frozen=True)
class Nist:
    """NIST-5.

    An n-gram w of n words, v its first n - 1, carries info(w) = log2(count(v) / count(w)) bits, counted over all
    references of all segments; for one word count(v) is the number of words in all of them. With matches clipped to
    the largest count in one reference, L the length of all hypotheses, L_ref the mean reference length summed over
    segments, and N_n the number of n-grams in all hypotheses,

        NIST = exp(-beta ln(min(1, L / L_ref))^2) * sum_{n=1}^{5} (sum_{matched w} info(w)) / N_n

    >>> Nist()(["a b"], [["a b"]])  # each word log2(2/1) bits, twice over two; the pair nothing
    1.0
    """

    name: str = "nist"
    what: str = "NIST-5 as mteval-v13a: tokenisation 13a, case ignored, information from all references"

    def __call__(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> float:
        check_segments(hypotheses, references)
        words = [[mteval_tokens(text) for text in those] for those in references]
        counts = [[ngrams(text, LONGEST) for text in those] for those in words]
        info = _information(counts)
        matched, possible = [0.0] * LONGEST, [0] * LONGEST
        length, reference_length = 0, 0.0
        for hypothesis, those, in_those in zip(hypotheses, words, counts, strict=True):
            tokens = mteval_tokens(hypothesis)
            length += len(tokens)
            reference_length += sum(map(len, those)) / len(those)
            for gram, count in ngrams(tokens, LONGEST).items():
                possible[len(gram) - 1] += count
                clipped = min(count, max(reference[gram] for reference in in_those))
                if clipped:
                    matched[len(gram) - 1] += clipped * info[gram]
        score = sum(m / p for m, p in zip(matched, possible, strict=True) if p)
        return score * length_penalty(length, reference_length)


def length_penalty(length: float, reference_length: float) -> float:
    """exp(-beta ln(min(1, length / reference_length))^2).

    >>> round(length_penalty(2, 3), 12), length_penalty(5, 3), length_penalty(0, 3)
    (0.5, 1.0, 0.0)
    """
    if length >= reference_length:
        return 1.0
    return math.exp(-_BETA * math.log(length / reference_length) ** 2) if length else 0.0


def _information(counts: Sequence[Sequence[Ngrams]]) -> Mapping[tuple[str, ...], float]:
    total: Ngrams = Counter()
    for those in counts:
        for reference in those:
            total.update(reference)
    words = sum(count for gram, count in total.items() if len(gram) == 1)
    return {gram: math.log2((total[gram[:-1]] if len(gram) > 1 else words) / count) for gram, count in total.items()}
