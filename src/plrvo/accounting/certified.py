"""Certified upper bounds: what a guarantee may rest on. The smallest of the valid bounds, and which one it was.

- `rdp`: moments at integer orders (theory, sections 3 to 5), converted; for any mixture of noises.
- `pure`: the likelihood ratio of a step is bounded by e^r, so T steps cost at most T log1p(q (e^r - 1)).
- `exact`, `pld`, `gdp`, `gift`, `profile`: by the loss of steps that show at least as much (`by_loss`). An effective
  sigma of another noise is never used there: its domination holds for moments, not for losses.

`quick_epsilon` does without what takes longer than milliseconds: searches run on it, and end on `certified_epsilon`.

**Rounded outwards.** What a noise says its numbers may err by is added before a step makes more of it: to the joint
moments of an `rdp` epsilon (`Noise.moment_margin`, in `moments`, where log-binomials carry a bound of their own) and
to the largest loss of a `pure` one (`Noise.pure_loss_margin`). Sums and logarithms that follow err by less than 1e-12
of a moment, for which 1e-10 is added, and by less than 2^-49 of a pure epsilon. The others say in their modules
what they add.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from plrvo.accounting import by_loss
from plrvo.accounting.by_loss import Entry
from plrvo.accounting.convert import delta_from_moments, epsilon_at, epsilon_from_moments
from plrvo.accounting.moments import StepMoments

# Shares of delta given to the event that a shared scale is very small; the best of these is used.
TAIL_SHARES = (1e-3, 0.1, 0.5)
RDP_MARGIN = 1e-10  # relative, on moments and on epsilons made of them
PURE_MARGIN = 2.0**-49  # relative, besides that of the noise


@dataclass(frozen=True)
class Certificate:
    """A certified value (epsilon or delta), the order that gave it (None unless by moments) and the method."""

    value: float
    order: int | None
    method: str


def certified_epsilon(
    entries: Sequence[Entry], delta: float, *, fresh: bool = True, only: str | None = None
) -> Certificate:
    """The smallest certified epsilon of all entries together, at the given delta.

    `fresh` says that every entry is of steps with fresh noise each; a block of correlated noise, whose shifts are
    chosen one after the other, is not. `only` is a method beside which no other one that takes long is tried: for
    searches, which know the method that was the best one nearby.
    """
    return _smallest(tuple(entries), delta, fresh, only)


@lru_cache(maxsize=1024)
def _smallest(entries: tuple[Entry, ...], delta: float, fresh: bool, only: str | None) -> Certificate:
    quick = quick_epsilon(entries, delta)
    if by_loss.gaussian_steps(entries) is not None or not quick.value > 0:
        return quick
    found = by_loss.dominated_epsilon(entries, delta, quick.value, fresh, only)
    return checked(_least([quick, *(Certificate(value, None, method) for method, value in found)]))


def quick_epsilon(entries: Sequence[Entry], delta: float) -> Certificate:
    """A certified epsilon in milliseconds, which for other noise than Gaussian may be a third larger."""
    steps = by_loss.gaussian_steps(entries)
    if steps is not None and all(part.rate == 1 for part in steps):
        return checked(Certificate(by_loss.epsilon(steps, delta), None, "exact"))
    candidates = [Certificate(pure_epsilon(entries), None, "pure"), moments_epsilon(entries, delta)]
    if steps is not None:
        guess = _least(candidates).value
        candidates.append(Certificate(by_loss.epsilon(steps, delta, guess), None, "pld"))
    return checked(_least(candidates))


def moments_epsilon(entries: Sequence[Entry], delta: float) -> Certificate:
    """The epsilon by moments alone: the best order, and the best share of delta for tails."""
    return _least([rdp_certificate(moment, rest, largest_order(entries)) for moment, rest in _moments(entries, delta)])


def _least(candidates: Sequence[Certificate]) -> Certificate:
    """The smallest, the first of equals; of none, no bound."""
    return min(candidates, key=lambda candidate: candidate.value, default=Certificate(math.inf, None, "rdp"))


def certified_delta(entries: Sequence[Entry], epsilon: float) -> Certificate:
    """The smallest certified delta of all entries together, at the given epsilon, for steps with fresh noise."""
    steps = by_loss.gaussian_steps(entries)
    if steps is not None and all(part.rate == 1 for part in steps):
        return checked(Certificate(by_loss.delta(steps, epsilon), None, "exact"))
    if pure_epsilon(entries) <= epsilon:
        return Certificate(0.0, None, "pure")
    shared = any(noise.shared for noise, _ in entries)
    best = (_delta_with_tails if shared else _delta_by_moments)(entries, epsilon)
    if steps is not None:
        return checked(_least([best, Certificate(by_loss.delta(steps, epsilon), None, "pld")]))
    found = by_loss.dominated_delta(entries, epsilon, best.value)
    return checked(_least([best, *(Certificate(value, None, method) for method, value in found)]))


def _delta_by_moments(entries: Sequence[Entry], epsilon: float) -> Certificate:
    ((moment, _),) = _moments(entries, 1.0)
    value, order = delta_from_moments(moment, epsilon, largest_order(entries))
    # The exponent is a difference of terms of this size.
    exponent = RDP_MARGIN * (moment(order) + 1) + 2.0**-49 * order * epsilon
    return Certificate(_upwards(_upwards(value) * math.exp(min(exponent, 700.0))), order, "rdp")


def _upwards(delta: float) -> float:
    """The next double, up to 1: below 1e-308 they have few digits, and 0 is the delta of a bounded loss alone."""
    return min(1.0, math.nextafter(delta, math.inf))


def rdp_certificate(moment: Callable[[int], float], delta: float, largest: int) -> Certificate:
    """The epsilon of the best order, rounded outwards."""
    _, order = epsilon_from_moments(moment, delta, largest)
    return rdp_certificate_at(order, moment(order), delta)


def rdp_certificate_at(order: int, moment: float, delta: float) -> Certificate:
    """The epsilon of this order, rounded outwards: every order gives a bound."""
    # log delta and the penalty of the order are good to their last bits, and may cancel.
    slack = RDP_MARGIN * moment + 2.0**-49 * (abs(math.log(delta)) + math.log1p(order) + 1)
    return checked(Certificate(max(0.0, epsilon_at(order, moment, delta) + slack / order), order, "rdp"))


def pure_epsilon(entries: Sequence[Entry]) -> float:
    """sum of T log1p(q expm1(r)), r the largest log likelihood ratio of a step; `inf` for unbounded losses."""
    terms = []
    for noise, work in entries:
        r = noise.pure_loss(work.clip, work.dimension)
        if not r > 0:
            raise ArithmeticError(f"a largest loss of {r} is impossible for noise; please report {noise}, {work}")
        r *= 1 + noise.pure_loss_margin
        if work.sample_rate == 1:
            terms.append(work.steps * r)
        elif r < 700:
            terms.append(work.steps * math.log1p(work.sample_rate * math.expm1(r)))
        else:  # e^r is beyond a double: log(1 - q + q e^r) in logarithms
            log_ratio = np.logaddexp(math.log1p(-work.sample_rate), math.log(work.sample_rate) + r)
            terms.append(work.steps * float(log_ratio))
    total = math.fsum(terms) if all(map(math.isfinite, terms)) else math.inf  # rounded once, however many there are
    return math.nextafter(total * (1 + PURE_MARGIN), math.inf)


def checked(certificate: Certificate) -> Certificate:
    """The certificate, unless its value cannot be one: then no number is better than a wrong one."""
    value = certificate.value
    if not value >= 0 or (value == 0 and certificate.method == "pure"):
        raise ArithmeticError(f"{value} by {certificate.method} is no bound; please report the noise and the workload")
    return certificate


def _moments(entries: Sequence[Entry], delta: float) -> list[tuple[Callable[[int], float], float]]:
    """The total moment, and the delta left for it: once, or once for each share of delta given to tails."""
    shared = sum(noise.shared for noise, _ in entries)
    choices = []
    for share in TAIL_SHARES if shared else (0.0,):
        steps = [
            (
                work.steps,
                StepMoments(
                    noise,
                    work.clip,
                    work.dimension,
                    work.sample_rate,
                    share * delta / (shared * work.steps) if noise.shared else 0.0,
                ),
            )
            for noise, work in entries
        ]
        choices.append((_total(steps), (1 - share) * delta))
    return [(moment, rest) for moment, rest in choices if rest > 0]  # half of 5e-324 is 0


def total_moment(entries: Sequence[Entry]) -> Callable[[int], float]:
    """The log moment of all entries together, which have no shared scale: its tail would take a share of delta."""
    ((moment, _),) = _moments(entries, 1.0)
    return moment


def _total(steps: Sequence[tuple[int, StepMoments]]) -> Callable[[int], float]:
    return lambda lambda_: math.fsum(count * moments(lambda_) for count, moments in steps)


def _delta_with_tails(entries: Sequence[Entry], epsilon: float) -> Certificate:
    """The tails are cut at a delta of their own, so search for the delta at which epsilon is certified."""
    low, high = -690.0, 0.0  # log delta
    if quick_epsilon(entries, 0.999999).value > epsilon:
        return Certificate(1.0, None, "rdp")
    for _ in range(40):
        middle = (low + high) / 2
        if quick_epsilon(entries, math.exp(middle)).value <= epsilon:
            high = middle
        else:
            low = middle
    return Certificate(math.exp(high), quick_epsilon(entries, math.exp(high)).order, "rdp")


def largest_order(entries: Sequence[Entry]) -> int:
    """The largest that every noise of the entries has moments for."""
    return min(noise.largest_order for noise, _ in entries)
