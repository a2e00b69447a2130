"""From counts of right and wrong guesses to a lower bound on epsilon, with the confidence stated.

Two worlds, with and without one example, and a rule that guesses the world from what was released. If the mechanism
is (epsilon, delta)-private, every rule has 1 - delta - FNR <= e^epsilon FPR and the same with the two rates exchanged.
Each rate has an upper confidence limit (Clopper and Pearson 1934) that fails with probability alpha/2; hence

    epsilon >= max(0, log((1 - delta - FNR+)/FPR+), log((1 - delta - FPR+)/FNR+))

fails with probability at most alpha, for one rule that was chosen on other trials than those that test it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from plrvo import validate
from plrvo.noise import Noise

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Counts:
    """How a rule did: `false_positives` of `negatives` (runs without the example), `false_negatives` of `positives`."""

    false_positives: int
    negatives: int
    false_negatives: int
    positives: int

    def __post_init__(self) -> None:
        validate.positive_integer(negatives=self.negatives, positives=self.positives)
        for name, errors, trials in (
            ("false_positives", self.false_positives, self.negatives),
            ("false_negatives", self.false_negatives, self.positives),
        ):
            if not 0 <= errors <= trials:
                raise validate.InvalidArgument(name, errors, f"a count from 0 to {trials}")

    def limits(self, alpha: float) -> tuple[float, float]:
        """Upper limits of the false positive and the false negative rate, both right with probability 1 - alpha."""
        return (
            float(clopper_pearson_upper(self.false_positives, self.negatives, alpha / 2)),
            float(clopper_pearson_upper(self.false_negatives, self.positives, alpha / 2)),
        )


def clopper_pearson_upper(errors: ArrayLike, trials: ArrayLike, alpha: float) -> Array:
    """The rate above which so few errors have probability below alpha: BetaInv(1 - alpha; x + 1, n - x)."""
    x, n = np.asarray(errors, dtype=float), np.asarray(trials, dtype=float)
    return np.where(x < n, special.betaincinv(x + 1, np.maximum(n - x, 1.0), 1 - alpha), 1.0)


def epsilon_bound(counts: Counts, delta: float, alpha: float) -> float:
    """The lower bound of the module's formula, wrong with probability at most alpha.

    >>> round(epsilon_bound(Counts(0, 500, 0, 500), delta=0.0, alpha=0.01), 3)
    4.542
    """
    validate.number(delta=delta)
    validate.probability(alpha=alpha)
    return float(_bound(*counts.limits(alpha), delta))


def _bound(fpr: ArrayLike, fnr: ArrayLike, delta: float) -> Array:
    fpr, fnr = np.asarray(fpr, dtype=float), np.asarray(fnr, dtype=float)
    gain = np.maximum((1 - delta - fnr) / fpr, (1 - delta - fpr) / fnr)
    return np.log(np.maximum(gain, 1.0))


def epsilon_opt(trials: int, alpha: float, delta: float = 0.0) -> float:
    """The most that `trials` test runs of each world can certify: the bound of a rule that made no error.

    Without delta it is log(s/(1-s)), s = (alpha/2)^(1/trials).

    >>> [round(epsilon_opt(t, 0.01), 3) for t in (10, 20, 100, 500, 1000)]
    [0.359, 1.193, 2.911, 4.542, 5.238]
    """
    validate.positive_integer(trials=trials)
    validate.probability(alpha=alpha)
    log_right = math.log(alpha / 2) / trials
    gain = (math.exp(log_right) - delta) / -math.expm1(log_right)
    return math.log(max(gain, 1.0))


def trials_needed(alpha: float, delta: float = 0.0) -> int:
    """The fewest test runs of each world that can certify anything above zero."""
    most = 1
    while epsilon_opt(most, alpha, delta) == 0 and most < 1 << 40:
        most *= 2
    low, high = most // 2, most
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if epsilon_opt(middle, alpha, delta) == 0 else (low, middle)
    return high


def choose_threshold(
    without: Array, with_it: Array, delta: float, alpha: float, likelihood_ratios: bool = False
) -> float:
    """The threshold whose rule, score > threshold means "with", promises the best bound on other runs.

    Both ends of the curve are tried: few false positives at the top, few false negatives at the bottom. A few counts
    at the very end flatter a rule by chance, so they are judged at a tenth of alpha. Scores that are exact log
    likelihood ratios allow better: the rate of false positives above t is then the mean of e^-score over runs *with*
    the example that lie above t, where they are many, and so on at the other end.
    """
    zero, one = np.sort(without), np.sort(with_it)
    # Counts at either end grow by a few percent from one candidate to the next: the bound moves less than that.
    ends = [np.concatenate([values[-1 - _ranks(len(values))], values[_ranks(len(values))]]) for values in (zero, one)]
    candidates = np.concatenate([ends[0], ends[1], np.nextafter(ends[1], -np.inf)])
    above, below = np.searchsorted(zero, candidates, side="right"), np.searchsorted(one, candidates, side="right")
    false_positives, false_negatives = (len(zero) - above).astype(float), below.astype(float)
    if likelihood_ratios:
        from_top = np.append(np.cumsum(np.exp(-np.maximum(one, 0.0))[::-1])[::-1], 0.0)
        from_bottom = np.append(0.0, np.cumsum(np.exp(np.minimum(zero, 0.0))))
        false_positives = np.where(candidates > 0, from_top[below] * len(zero) / len(one), false_positives)
        false_negatives = np.where(candidates < 0, from_bottom[above] * len(one) / len(zero), false_negatives)
    level = alpha / 2 if likelihood_ratios else alpha / 20
    values = _bound(
        clopper_pearson_upper(false_positives, len(zero), level),
        clopper_pearson_upper(false_negatives, len(one), level),
        delta,
    )
    if values.max() > 0:
        return float(candidates[int(np.argmax(values))])
    # Nothing to be certified here; the most balanced rule is as good a guess as any.
    return float(candidates[int(np.argmin(false_positives / len(zero) + false_negatives / len(one)))])


def _ranks(count: int) -> NDArray[np.int64]:
    growth = np.geomspace(1, count, 400)
    return np.unique(np.concatenate([np.arange(min(count, 40)), growth.astype(np.int64) - 1]))


def count_errors(without: Array, with_it: Array, threshold: float) -> Counts:
    """How the rule `score > threshold` did on these scores."""
    return Counts(
        false_positives=int(np.sum(without > threshold)),
        negatives=len(without),
        false_negatives=int(np.sum(with_it <= threshold)),
        positives=len(with_it),
    )


def gaussian_dp_bound(counts: Counts, delta: float, alpha: float, noise: Noise, sample_rate: float) -> float:
    """A tighter bound for Gaussian noise without subsampling, whose trade-off curve is known up to one number mu.

    mu >= Phi^-1(1 - FPR+) - Phi^-1(FNR+), and epsilon solves delta = Phi(mu/2 - epsilon/mu) - e^epsilon
    Phi(-mu/2 - epsilon/mu) (Dong et al. 2022; Nasr et al. 2023). The curve of any other noise, and of a
    subsampled step, is another one: fitting this one to it would certify what was not shown.
    """
    if noise.gaussian_sigma is None:
        raise validate.InvalidArgument("noise", noise.kind, "gaussian: no other noise has a Gaussian trade-off curve")
    if sample_rate != 1:
        raise validate.InvalidArgument(
            "sample_rate", sample_rate, "1: a subsampled step has no Gaussian trade-off curve"
        )
    fpr, fnr = counts.limits(alpha)
    mu = float(special.ndtri(1 - fpr) - special.ndtri(fnr)) if fpr < 1 and fnr < 1 else 0.0
    return gaussian_dp_epsilon(mu, delta)


def gaussian_dp_epsilon(mu: float, delta: float) -> float:
    """Epsilon at delta of the Gaussian mechanism with signal to noise ratio mu."""
    validate.probability(delta=delta)

    def excess(epsilon: float) -> float:
        upper = float(special.log_ndtr(mu / 2 - epsilon / mu))
        lower = epsilon + float(special.log_ndtr(-mu / 2 - epsilon / mu))
        return math.exp(upper) - math.exp(lower) - delta

    if mu <= 0 or excess(0.0) <= 0:
        return 0.0
    from scipy import optimize  # here, so that importing plrvo does not wait for it

    high = mu * (mu / 2 - float(special.ndtri(delta)))  # where the first term alone is delta
    return float(optimize.brentq(excess, 0.0, high, xtol=1e-12))


def check_canaries(canaries: int, examples: int) -> None:
    """Canaries are examples of their own: a run cannot hold more of them than data."""
    validate.positive_integer(canaries=canaries, examples=examples)
    if canaries > examples:
        raise validate.InvalidArgument("canaries", canaries, f"at most the {examples} examples of the data")


@lru_cache(maxsize=1 << 14)  # audits of one size ask for the same few bounds again and again
def one_run_bound(canaries: int, guesses: int, correct: int, delta: float, alpha: float) -> float:
    """The bound of one training run with `canaries` independent coins (Steinke, Nasr and Jagielski 2023, Theorem 5.2).

    With v of r guesses right, p0 = e^epsilon/(1 + e^epsilon) and B ~ Binomial(r, p0), epsilon is refuted where

        P[B >= v] + 2 m delta max_{1<=i<=v} P[v - i <= B < v]/i < alpha.

    >>> round(one_run_bound(1000, 1000, 600, delta=1e-5, alpha=0.05), 3)
    0.297
    """
    validate.positive_integer(canaries=canaries, guesses=guesses)
    validate.probability(alpha=alpha)
    validate.number(delta=delta)
    if guesses > canaries:
        raise validate.InvalidArgument("guesses", guesses, f"at most one for each of the {canaries} canaries")
    if not 0 <= correct <= guesses:
        raise validate.InvalidArgument("correct", correct, f"a count from 0 to {guesses}")
    if correct == 0:
        return 0.0

    def surplus(epsilon: float) -> float:
        return _one_run_p_value(epsilon, canaries, guesses, correct, delta) - alpha

    # P[B >= v] alone reaches alpha here, so that a root lies at or below it.
    top = float(special.logit(special.betaincinv(correct, guesses - correct + 1, alpha)))
    if top <= 0 or surplus(0.0) >= 0:
        return 0.0
    # The second term need not be monotone: only what lies below the first crossing is refuted as a whole.
    grid = np.linspace(0.0, top, 257)
    first = next((i for i, value in enumerate(grid) if surplus(value) >= 0), len(grid) - 1)
    from scipy import optimize

    return float(optimize.brentq(surplus, grid[first - 1], grid[first] + 1e-12, xtol=1e-10))


def _one_run_p_value(epsilon: float, m: int, r: int, v: int, delta: float) -> float:
    p0 = float(special.expit(epsilon))
    tail = float(special.betainc(v, r - v + 1, p0))
    i = np.arange(1.0, v + 1)
    below = v - i
    log_binomial = special.gammaln(r + 1) - special.gammaln(below + 1) - special.gammaln(r - below + 1)
    mass = np.exp(log_binomial + below * math.log(p0) + (r - below) * math.log1p(-p0))
    return tail + 2 * m * delta * float(np.max(np.cumsum(mass) / i))
