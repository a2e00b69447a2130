"""A METEOR variant that needs no word lists: exact and stem matches only. It is not the Java tool's default score."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from plrvo.tasks.tables.metrics.alignment import Matches, align
from plrvo.tasks.tables.metrics.base import check_segments
from plrvo.tasks.tables.metrics.tokens import ptb_tokens

# Denkowski and Lavie 2014 (METEOR 1.5), English, task "rank"; their fourth, for function words, needs a word list.
ALPHA, BETA, GAMMA = 0.85, 0.2, 0.6


@dataclass(frozen=True)
class MeteorExactStem:
    """METEOR 1.5's formula and English parameters, with exact and stem matches (weights 1 and 0.6).

    Of hypothesis and reference lengths h and r, weighed matches m, matched words n and chunks c (runs of matches that
    are adjacent in both),

        P = m/h,  R = m/r,  F = P R / (alpha P + (1 - alpha) R),  score = F (1 - gamma (c/n)^beta)

    with alpha 0.85, beta 0.2, gamma 0.6, and c = 0 where every word of both matches in one chunk. The score of the
    set comes from m, h, r, n and c summed over segments, each from the reference that scores best (of equals, from the
    shortest). There are no
    synonyms, no paraphrases and no function words: the Java tool gives this number for words cut as here and
    `-m 'exact stem' -w '1.0 0.6' -p '0.85 0.2 0.6 0.5'`, and another one without these options.

    >>> round(MeteorExactStem()(["one pubs"], [["pub one"]]), 4)  # m = 1.6 of 2, in 2 chunks of 2 words: 0.8 (1 - 0.6)
    0.32
    """

    name: str = "meteor_exact_stem"
    what: str = "METEOR 1.5's formula with exact and stem matches only (no synonyms, paraphrases or function words)"

    def __call__(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> float:
        check_segments(hypotheses, references)
        total = Matches()
        for hypothesis, those in zip(hypotheses, references, strict=True):
            tokens = ptb_tokens(hypothesis)
            found = [align(tokens, ptb_tokens(text), stem) for text in those]
            total = total + max(found, key=lambda matches: (score(matches), -matches.reference))
        return score(total)


def score(matches: Matches) -> float:
    """The formula above."""
    if not matches.words:
        return 0.0
    precision, recall = matches.weight / matches.hypothesis, matches.weight / matches.reference
    mean = precision * recall / (ALPHA * precision + (1 - ALPHA) * recall)
    return mean * (1 - GAMMA * (matches.chunks / matches.words) ** BETA)


@cache
def stem(word: str) -> str:
    """Porter's second stemmer for English, the one that METEOR uses."""
    return str(_stemmer().stem(word))


@cache
def _stemmer() -> Any:
    from nltk.stem.snowball import EnglishStemmer

    return EnglishStemmer()
