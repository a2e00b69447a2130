"""Which word of a hypothesis goes with which word of a reference, for METEOR."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from plrvo.tasks.tables.metrics.base import Tokens

STEM_WEIGHT = 0.6
BEAM = 40


@dataclass(frozen=True)
class Matches:
    """What an alignment amounts to; those of all segments add up."""

    weight: float = 0.0
    words: int = 0
    chunks: int = 0
    hypothesis: int = 0
    reference: int = 0

    def __add__(self, other: Matches) -> Matches:
        return Matches(
            self.weight + other.weight,
            self.words + other.words,
            self.chunks + other.chunks,
            self.hypothesis + other.hypothesis,
            self.reference + other.reference,
        )


# The first words of a hypothesis, aligned: minus the weight, chunks, crossing, words; then the reference words used, as
# bits, and the one that the latest word went with, or -2. In this order a smaller tuple is a better alignment.
_Partial = tuple[float, int, int, int, int, int]


def align(hypothesis: Tokens, reference: Tokens, stem: Callable[[str], str]) -> Matches:
    """The alignment with the largest weight; among those, with the fewest chunks, then the least crossing.

    A beam search over the hypothesis' words: of partial alignments that used the same reference words and end in the
    same place only the best is kept, so that the beam is full only for texts that repeat many words.
    """
    mine, theirs = [stem(word) for word in hypothesis], [stem(word) for word in reference]
    surplus = Counter(mine) - Counter(theirs)
    beam: list[_Partial] = [(0.0, 0, 0, 0, 0, -2)]
    for i, word in enumerate(hypothesis):
        options = [(j, 1.0 if word == reference[j] else STEM_WEIGHT) for j, s in enumerate(theirs) if s == mine[i]]
        # A word that has a partner for itself is never left out: that would lose weight.
        may_skip = not options or surplus[mine[i]] > 0
        best: dict[tuple[int, int], _Partial] = {}
        for partial in beam:
            loss, chunks, crossing, words, used, last = partial
            new = [(loss, chunks, crossing, words, used, -2)] if may_skip else []
            for j, weight in options:
                if not used >> j & 1:
                    split = last + 1 != j
                    new.append((loss - weight, chunks + split, crossing + abs(i - j), words + 1, used | 1 << j, j))
            for grown in new:
                key = grown[-2:]
                if key not in best or grown < best[key]:
                    best[key] = grown
        beam = heapq.nsmallest(BEAM, best.values())
    loss, chunks, _, words, _, _ = beam[0]
    if chunks == 1 and words == len(hypothesis) == len(reference):
        chunks = 0  # METEOR's rule: nothing is out of order, so nothing is a fragment
    return Matches(-loss, words, chunks, len(hypothesis), len(reference))
