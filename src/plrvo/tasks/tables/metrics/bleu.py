"""BLEU, by sacrebleu."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from plrvo.tasks.tables.metrics.base import check_segments


@dataclass(frozen=True)
class Bleu:
    """Geometric mean of the clipped precisions of 1- to 4-grams over the whole set, times the brevity penalty.

    The penalty compares with the closest reference length of each segment. Smoothing touches only orders without
    any match. Between 0 and 1, as `e2e-metrics` writes it; sacrebleu's own scale is a hundred times that.

    >>> Bleu()(["the cat sat on the mat"], [["The cat sat on a mat.", "The cat sat on the mat"]])
    1.0
    """

    name: str = "bleu"
    what: str = "BLEU-4 as mteval-v13a: tokenisation 13a, case ignored, closest reference length (sacrebleu), 0 to 1"

    def __call__(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> float:
        from sacrebleu.metrics.bleu import BLEU

        check_segments(hypotheses, references)
        # sacrebleu wants the first reference of every segment, then the second, ...; None where there is none.
        most = max(map(len, references))
        streams: list[list[Any]] = [[those[i] if i < len(those) else None for those in references] for i in range(most)]
        score = BLEU(lowercase=True, tokenize="13a").corpus_score(list(hypotheses), streams).score
        return min(1.0, float(score) / 100)  # its logarithms give a perfect score back as 100.00000000000004
