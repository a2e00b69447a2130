"""The audit of one training run (Steinke, Nasr and Jagielski 2023).

m canaries, examples that are made up without a look at the data, join the training set by a fair coin each. Training
happens once. The attacker scores every canary from what the run released, says "in" for the highest scores, "out" for
as many of the lowest, and abstains in between. `one_run_bound` turns the number of right guesses into a bound.

How many guesses are made is fixed in advance: one number at the full confidence, or a few (`FRACTIONS` of the canaries)
that share the permitted error equally, of which the best counts. All of them hold together with the stated confidence.

What it costs the other examples: nothing. Canaries and coins are independent of the data, so that the run with any
choice of canaries has the same guarantee, and the number of right guesses is computed from coins and from what was
released. The sum of gradients is divided by a constant that does not count the canaries.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from plrvo import validate
from plrvo.audit.statistics import check_canaries, one_run_bound
from plrvo.audit.verdict import Audit, check_claim
from plrvo.validate import InvalidArgument, counted


class CanaryKind(StrEnum):
    """What is planted: `gradient` (white box, `gradient_canaries`) or `example` (black box, `example_canaries`)."""

    gradient = "gradient"
    example = "example"


_MOST_CANARIES = 10_000_000  # in a file: the bound takes a few words for each
FRACTIONS = (1.0, 0.5, 0.2, 0.1, 0.05)


@dataclass(frozen=True)
class OneRun(Audit):
    """What one run says.

    Attributes:
        canaries: how many coins were tossed.
        guesses: for how many of them the attacker made a guess.
        correct: how many guesses were right.
        tried: among how many numbers of guesses this one is the best; each has its share of the permitted error.
    """

    canaries: int
    guesses: int
    correct: int
    tried: int

    @property
    def found(self) -> str:
        return (
            f"Of {counted(self.guesses, 'guess')} about {counted(self.canaries, 'canary')} {self.correct} were right."
        )

    def details(self) -> dict[str, Any]:
        return {"canaries": self.canaries, "guesses": self.guesses, "correct": self.correct, "tried": self.tried}


def check_guesses(canaries: int, confidence: float, guesses: int | None) -> None:
    """Refuse what is no rule at any delta."""
    validate.positive_integer(canaries=canaries)
    validate.probability(confidence=confidence)
    if guesses is not None:
        validate.positive_integer(guesses=guesses)
        if guesses > canaries:
            raise InvalidArgument("guesses", guesses, f"at most one for each of the {canaries} canaries")


@dataclass(frozen=True)
class Rule:
    """How many canaries there are, how many guesses may be made, and at which confidence and delta.

    Refused where right guesses alone could not certify anything.
    """

    canaries: int
    confidence: float
    delta: float
    guesses: int | None = None

    def __post_init__(self) -> None:
        check_guesses(self.canaries, self.confidence, self.guesses)
        validate.probability(delta=self.delta)
        if self.certifiable == 0:
            name, value = ("canaries", self.canaries) if self.guesses is None else ("guesses", self.guesses)
            raise InvalidArgument(
                name,
                value,
                f"more of them, or a lower confidence: {max(self.numbers)} right guesses out of {max(self.numbers)} "
                f"certify at most epsilon 0 at confidence {self.confidence:g} and delta {self.delta:g}",
            )

    @property
    def numbers(self) -> tuple[int, ...]:
        """The numbers of guesses that are tried."""
        if self.guesses is not None:
            return (self.guesses,)
        return tuple(sorted({max(1, round(fraction * self.canaries)) for fraction in FRACTIONS}))

    @property
    def alpha(self) -> float:
        """The probability with which the bound of one number of guesses may fail."""
        return (1 - self.confidence) / len(self.numbers)

    @cached_property
    def certifiable(self) -> float:
        """The bound of right guesses only."""
        return max(one_run_bound(self.canaries, r, r, self.delta, self.alpha) for r in self.numbers)

    def fits(self, examples: int) -> None:
        """Refuse more canaries than there is data."""
        check_canaries(self.canaries, examples)


def judge_one_run(scores: ArrayLike, included: ArrayLike, claim: float, rule: Rule) -> OneRun:
    """The verdict on one score per canary; `included` says which of them were trained on.

    >>> included = np.arange(200) % 2 == 1
    >>> result = judge_one_run(included + 0.0, included, 1.0, Rule(200, confidence=0.99, delta=1e-5))
    >>> result.verdict, result.guesses, result.correct
    ('refuted', 200, 200)
    """
    check_claim(claim)
    values, coins = np.asarray(scores, dtype=float), np.asarray(included, dtype=bool)
    if values.shape != (rule.canaries,) or coins.shape != values.shape or np.isnan(values).any():
        raise InvalidArgument("scores", f"{values.shape}", f"a number for each of the {rule.canaries} canaries")
    order = np.argsort(values, kind="stable")
    best = max(
        (_bound(coins[order], guesses, rule) for guesses in rule.numbers), key=lambda result: (result[0], result[1])
    )
    return OneRun(
        epsilon_audited=best[0],
        epsilon_claimed=float(claim),
        epsilon_certifiable=rule.certifiable,
        confidence=rule.confidence,
        delta=rule.delta,
        canaries=rule.canaries,
        guesses=best[1],
        correct=best[2],
        tried=len(rule.numbers),
    )


def _bound(sorted_coins: NDArray[np.bool_], guesses: int, rule: Rule) -> tuple[float, int, int]:
    out = guesses // 2
    right = int(np.sum(~sorted_coins[:out])) + int(np.sum(sorted_coins[len(sorted_coins) - (guesses - out) :]))
    return one_run_bound(rule.canaries, guesses, right, rule.delta, rule.alpha), guesses, right


def differences(section: Mapping[str, Any], certified: float, delta: float) -> list[str]:
    """Where the audit in a receipt of this epsilon and delta differs from what its own counts give; a sentence each."""
    try:
        claimed, audited, verdict = section["epsilon_claimed"], section["epsilon_audited"], section["verdict"]
        tried, most = section["tried"], section.get("epsilon_certifiable", 0.0)
        validate.positive_integer(canaries=section["canaries"], guesses=section["guesses"], tried=tried)
        validate.number(correct=section["correct"])
        if section["canaries"] > _MOST_CANARIES:
            raise InvalidArgument("canaries", section["canaries"], f"at most {_MOST_CANARIES}")
        check_claim(claimed)
        # Either the numbers of guesses that every rule tries, or one that was fixed in advance.
        rule = Rule(
            section["canaries"], section["confidence"], section["delta"], None if tried > 1 else section["guesses"]
        )
        fixed = tried == len(rule.numbers) and section["guesses"] in rule.numbers
        bound = one_run_bound(section["canaries"], section["guesses"], section["correct"], section["delta"], rule.alpha)
        verdict_due = "refuted" if bound > claimed else "consistent"
        off = not abs(audited - bound) <= 1e-9 * (1 + bound)
        beyond = "epsilon_certifiable" in section and not abs(most - rule.certifiable) <= 1e-9 * (1 + rule.certifiable)
    except (KeyError, TypeError, ValueError, ArithmeticError) as error:
        return [f"a part of the audit is missing or has the wrong form ({error!r})"]
    found = []
    if claimed != certified or section["delta"] != delta:
        found.append(f"its audit tried epsilon {claimed} at delta {section['delta']}, not the receipt's own claim")
    if not fixed:
        found.append(f"its audit made {section['guesses']} guesses, the best of {tried} numbers: no rule has these")
    if off:
        found.append(f"it says that the audit reached epsilon {audited}; recomputed, it is {bound}")
    if beyond:
        found.append(f"it says that the audit could show epsilon {most}; recomputed, it is {rule.certifiable}")
    if verdict != verdict_due:
        found.append(f"it says that the audit's verdict is {verdict}; recomputed, it is {verdict_due}")
    return found
