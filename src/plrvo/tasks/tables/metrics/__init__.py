"""The five metrics of the paper's table-to-text experiments, each with a sentence that says what it is."""

from __future__ import annotations

from collections.abc import Sequence

from plrvo.tasks.tables.metrics.base import Metric
from plrvo.tasks.tables.metrics.bleu import Bleu
from plrvo.tasks.tables.metrics.cider import CiderD
from plrvo.tasks.tables.metrics.meteor import MeteorExactStem
from plrvo.tasks.tables.metrics.nist import Nist
from plrvo.tasks.tables.metrics.rouge import RougeL

METRICS: tuple[Metric, ...] = (Bleu(), Nist(), MeteorExactStem(), RougeL(), CiderD())


def score_all(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> dict[str, float]:
    """Every metric by its name.

    >>> sorted(score_all(["a pub"], [["a pub"]]))
    ['bleu', 'cider', 'meteor_exact_stem', 'nist', 'rouge_l']
    """
    return {metric.name: metric(hypotheses, references) for metric in METRICS}


__all__ = ["METRICS", "Bleu", "CiderD", "MeteorExactStem", "Metric", "Nist", "RougeL", "score_all"]
