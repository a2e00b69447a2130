"""Phase I of Algorithm 1: the range of clips, from the smallest one with which a model learns at all.

Phase I looks at data, which has a price. Run it on public data, or let its runs be charged to a ledger: then they train
with noise, and the guarantee of the whole is that of the ledger that comes back. The accuracy that a run reports must
be measured on data that the guarantee does not cover.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from plrvo.accounting import Ledger, Workload
from plrvo.noise import Noise
from plrvo.validate import InvalidArgument, counted, number, positive, positive_integer

TrainFewEpochs = Callable[[float], float]  # from a clip to the accuracy after a few epochs


@dataclass(frozen=True)
class PrivateRuns:
    """What one run of phase I releases, at clip 1: a run at clip C uses the noise C times wider.

    By that scaling every run costs the same whatever clip the earlier ones led to, so the costs simply add up.
    """

    noise: Noise
    workload: Workload
    ledger: Ledger = field(default_factory=Ledger)

    def __post_init__(self) -> None:
        if self.workload.clip != 1:
            raise InvalidArgument("workload.clip", self.workload.clip, "1: noise and workload are given at clip 1")

    def charged(self, runs: int) -> Ledger:
        """The ledger after so many runs: known before the first of them, whatever clips they will use."""
        return self.ledger.plus(self.noise, replace(self.workload, steps=runs * self.workload.steps))


@dataclass(frozen=True)
class ClipRange:
    """The range for c0, the runs that it took as (clip, accuracy), and what they cost.

    Attributes:
        data: "public", or "private" if the runs were charged.
        ledger: what the private runs released, on top of what was there before; empty for public data.
    """

    smallest: float
    largest: float
    runs: tuple[tuple[float, float], ...]
    data: str
    ledger: Ledger

    @property
    def statement(self) -> str:
        """One sentence on where the range came from."""
        runs, steps = counted(len(self.runs), "run"), counted(self.ledger.steps, "step")
        if self.data == "public":
            return f"Clip range from {runs} on public data: no privacy was spent."
        return f"Clip range from {runs} on private data; the ledger has {steps}."


def clip_range(
    train_few_epochs: TrainFewEpochs,
    chance: float,
    *,
    margin: float = 0.05,
    low: float = 1e-3,
    high: float = 10.0,
    runs: int = 4,
    ratio: float = 2.0,
    private: PrivateRuns | None = None,
) -> ClipRange:
    """The smallest clip on a logarithmic grid whose accuracy exceeds chance, and `ratio` times it.

    The grid has 2^runs - 1 clips from `low` to `high`, among which bisection needs exactly `runs` runs: their number,
    and so their cost, does not depend on the data. It takes for granted that a larger clip learns no less.

    Args:
        train_few_epochs: trains a fresh model with the clip it is given and returns its accuracy.
        chance: the accuracy of guessing.
        margin: how far above chance counts as learning.
        low: the smallest clip to consider.
        high: the largest clip to consider.
        runs: how many runs to make.
        ratio: the largest clip over the smallest in the result.
        private: what a run releases, if it trains on private data; None declares the data public. All `runs` runs are
            charged, also when the search then fails (`PrivateRuns.charged` gives the ledger for that case).

    >>> found = clip_range(lambda clip: 0.5 if clip > 0.05 else 0.1, chance=0.1)
    >>> 0.05 < found.smallest < 0.1 and found.data == "public"
    True
    """
    number(chance=chance, margin=margin)
    positive(low=low, ratio=ratio)
    positive_integer(runs=runs)
    if not low < high < math.inf:
        raise InvalidArgument("high", high, f"a finite number above low, {low:g}")
    if ratio < 1:
        raise InvalidArgument("ratio", ratio, "at least 1")
    if not 0 <= chance < chance + margin < 1:
        raise InvalidArgument("chance", chance, f"at least 0, and with the margin {margin:g} below 1")
    count = 2**runs - 1
    grid = [low * (high / low) ** (i / max(1, count - 1)) for i in range(count)]
    tried: list[tuple[float, float]] = []
    first, last = 0, count  # the answer is in grid[first:last], or, if last stays at count, perhaps nowhere
    while first < last:
        middle = (first + last) // 2
        clip = grid[middle]
        accuracy = train_few_epochs(clip)
        number(accuracy=accuracy)
        tried.append((clip, float(accuracy)))
        first, last = (first, middle) if accuracy > chance + margin else (middle + 1, last)
    if first == count:
        spent = f"; the {runs} private runs are spent all the same" if private else ""
        raise InvalidArgument(
            "high", high, f"a larger clip, since none up to it passed {chance + margin:g} accuracy{spent}"
        )
    data, ledger = ("private", private.charged(runs)) if private else ("public", Ledger())
    return ClipRange(grid[first], ratio * grid[first], tuple(tried), data, ledger)
