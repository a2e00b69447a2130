"""What an audit says: `refuted` or `consistent`, never `proved`."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plrvo import validate
from plrvo.accounting import Workload, epsilon
from plrvo.accounting.printed import rounded_up
from plrvo.audit.statistics import (
    Counts,
    choose_threshold,
    count_errors,
    epsilon_bound,
    epsilon_opt,
    trials_needed,
)
from plrvo.noise import Noise
from plrvo.validate import InvalidArgument, spelled_number

Array = NDArray[np.float64]


def told_claim(claim: str, epsilon: float, digits: int = 4) -> str:
    """A claimed epsilon in a few digits: what is certified is never printed smaller than it is; others are no bounds.

    >>> told_claim("certified", 2.00001), told_claim("receipt", 2.00001), told_claim("published", 2.00001)
    ('2.001', '2.001', '2')
    """
    return rounded_up(epsilon, digits) if claim in ("certified", "receipt") else f"{epsilon:.{digits}g}"


@dataclass(frozen=True)
class Audit(ABC):
    """An attack's result beside a claim.

    Attributes:
        epsilon_audited: with probability `confidence` over the audit's own randomness, the true epsilon at `delta` is
            at least this.
        epsilon_claimed: the claim that was put to the test.
        epsilon_certifiable: the most that an attack without a single error could have shown with so many runs or
            canaries; no larger claim could be refuted.
    """

    epsilon_audited: float
    epsilon_claimed: float
    epsilon_certifiable: float
    confidence: float
    delta: float

    @property
    def verdict(self) -> str:
        return "refuted" if self.epsilon_audited > self.epsilon_claimed else "consistent"

    @property
    @abstractmethod
    def found(self) -> str:
        """What the attack got right and wrong, in a sentence."""

    @abstractmethod
    def details(self) -> dict[str, Any]:
        """The counts that the audited epsilon follows from."""

    def to_dict(self) -> dict[str, Any]:
        return {
            "epsilon_audited": self.epsilon_audited,
            "epsilon_claimed": self.epsilon_claimed,
            "confidence": self.confidence,
            "verdict": self.verdict,
            "delta": self.delta,
            "epsilon_certifiable": self.epsilon_certifiable,
            **self.details(),
        }


@dataclass(frozen=True)
class TwoWorlds(Audit):
    """Many runs, with the example and without it.

    Attributes:
        counts: errors of the rule on the test runs.
        threshold: the rule says "with the example" where the score exceeds it; chosen on other runs.
        runs: how many runs there were in all, those that chose the threshold included.
    """

    counts: Counts
    threshold: float
    runs: int

    @property
    def found(self) -> str:
        counts = self.counts
        return (
            f"On {counts.negatives} test runs of each world the rule made {counts.false_positives} false alarms and "
            f"missed {counts.false_negatives}."
        )

    def details(self) -> dict[str, Any]:
        return {**asdict(self.counts), "threshold": self.threshold, "runs": self.runs}


def per_world(runs: int, name: str, confidence: float, delta: float) -> int:
    """Runs of each world; refused where the half of them that tests could not certify anything."""
    validate.positive_integer(**{name: runs})
    validate.probability(confidence=confidence, delta=delta)
    tests = runs // 4
    needed = trials_needed(1 - confidence, delta)
    if tests < needed:
        raise InvalidArgument(
            name,
            runs,
            f"at least {4 * needed}: a quarter of them tests each world, and {tests} perfect tests "
            f"certify at most epsilon 0 at confidence {confidence:g}",
        )
    return runs // 2


def judge(scores: Array, claim: float, delta: float, confidence: float, likelihood_ratios: bool = False) -> TwoWorlds:
    """The verdict on scores of shape (2, runs), without and with the example.

    The first half of the runs chooses the threshold, the other half tests it. `likelihood_ratios` says that the scores
    are exact log likelihood ratios, which helps the choice; the test does not rely on it.
    """
    check_claim(claim)
    half = scores.shape[1] // 2
    alpha = 1 - confidence
    threshold = choose_threshold(scores[0, :half], scores[1, :half], delta, alpha, likelihood_ratios)
    counts = count_errors(scores[0, half:], scores[1, half:], threshold)
    return TwoWorlds(
        epsilon_audited=epsilon_bound(counts, delta, alpha),
        epsilon_claimed=float(claim),
        epsilon_certifiable=epsilon_opt(scores.shape[1] - half, alpha, delta),
        confidence=confidence,
        delta=delta,
        counts=counts,
        threshold=threshold,
        runs=scores.size,
    )


def check_claim(claim: float) -> None:
    """A claim is a number of zero or above; infinity claims nothing and is never refuted."""
    validate.number("a number of zero or above", claim=claim)
    if claim < 0:
        raise InvalidArgument("claim", claim, "a number of zero or above")


def claimed_epsilon(claim: str, noise: Noise, work: Workload, delta: float) -> float:
    """The epsilon that a word or a number stands for: `certified`, `published` or a finite number.

    >>> from plrvo import Gaussian
    >>> claimed_epsilon("2.5", Gaussian(1.0), Workload(0.01, 300, 1.0, 10), 1e-5)
    2.5
    """
    if claim in ("certified", "published"):
        bracket = epsilon(noise, work, delta)
        value = bracket.certified if claim == "certified" else bracket.published
        if value is None:
            raise InvalidArgument("claim", claim, f"certified or a number: the paper has no formula for {noise.kind}")
        return value
    return claimed_number(claim)


def claimed_number(claim: str) -> float:
    """The epsilon of a claim that is a number."""
    try:
        value = spelled_number(float, claim)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise InvalidArgument("claim", claim, "certified, published or a number of zero or above")
    return value
