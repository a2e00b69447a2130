"""Certified upper bounds: what a guarantee may rest on. The better of the valid bounds, and which one it was.

- `rdp`: moments at integer orders (theory, sections 3 to 5), converted; for any mixture of noises.
- `pure`: the likelihood ratio of a step is bounded by e^r, so T steps cost at most T log1p(q (e^r - 1)).
- `exact`: Gaussian steps without sampling. The loss of each is normal, so all of them together are one Gaussian release
  with the root of the sum of the squared signals, whose curve is known.
- `pld`: the loss distribution of Poisson-sampled Gaussian steps (`sampled_gaussian`), also on a grid, which is
  post-processing. Those without sampling enter as one step. An effective sigma of another noise is never used there:
  its domination holds for moments, not for loss distributions.
- `gdp`: steps of other noise replaced by Gaussian steps that show at least as much, at every level of the likelihood
  ratio (`domination`), and then `exact` or `pld`.
- `gift`: sampled steps of other noise replaced by Gaussian steps of no more than their energy, together with one more
  Gaussian step for the whole run (`gift`), and then `pld`.
- `profile`: Laplace and Gamma-PLRV steps, each of them a pair that dominates all gradients (`profile`; theory, section
  14), composed as in `pld`. It takes half a second for a noise and clip that are new, so that searches do without it.

`gift` and `profile` are proved for steps with fresh noise each, and never used for correlated noise.

**Rounded outwards.** What a noise says its numbers may err by is added before a step makes more of it: to the joint
moments of an `rdp` epsilon (`Noise.moment_margin`, in `moments`, where log-binomials carry a bound of their own) and
to the largest loss of a `pure` one (`Noise.pure_loss_margin`). Sums and logarithms that follow err by less than 1e-12
of a moment, for which 1e-10 is added, and by less than 2^-49 of a pure epsilon. `exact`, `pld`, `gdp`, `gift`
and `profile` say in their modules what they add.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from plrvo.accounting.convert import delta_from_moments, epsilon_at, epsilon_from_moments
from plrvo.accounting.domination import dominating_steps
from plrvo.accounting.gaussian_curve import gaussian_delta, gaussian_epsilon
from plrvo.accounting.gift import with_gift
from plrvo.accounting.loss_distribution import Step, composed_delta, composed_epsilon
from plrvo.accounting.moments import StepMoments
from plrvo.accounting.sampled_gaussian import Steps
from plrvo.accounting.sampled_profile import profile_steps
from plrvo.accounting.workload import Workload
from plrvo.noise.base import Noise
from plrvo.noise.gaussian import Gaussian

Entry = tuple[Noise, Workload]

# Shares of delta given to the event that a shared scale is very small; the best of these is used.
TAIL_SHARES = (1e-3, 0.1, 0.5)
RDP_MARGIN = 1e-10  # relative, on moments and on epsilons made of them
PURE_MARGIN = 2.0**-49  # relative, besides that of the noise
_LARGEST_PLD_EPSILON = 500.0
_GIFT_SHARE = 0.02  # of the next power of 2 above delta, for what a gift leaves
_MOST_KINDS = 32  # of sampled Gaussian steps in one loss distribution
_MOST_PROFILES = 8  # in one loss distribution


@dataclass(frozen=True)
class Certificate:
    """A certified value (epsilon or delta), the order that gave it (None unless by moments) and the method."""

    value: float
    order: int | None
    method: str


def certified_epsilon(
    entries: Sequence[Entry], delta: float, *, tight: bool = False, fresh: bool = True
) -> Certificate:
    """The smallest certified epsilon of all entries together, at the given delta.

    By what takes milliseconds; with `tight` by all methods, which may take seconds. `fresh` says that every entry is of
    steps with fresh noise each; a block of correlated noise, whose shifts are chosen one after the other, is not.
    """
    signals = _gaussian_signals(entries)
    if signals is not None and all(part.rate == 1 for part in signals):
        return checked(Certificate(gaussian_epsilon(_together(signals), delta), None, "exact"))
    candidates = [Certificate(pure_epsilon(entries), None, "pure"), moments_epsilon(entries, delta)]
    best = _least(candidates)
    if signals is not None:
        candidates.append(Certificate(_epsilon_by_loss(signals, delta, best.value), None, "pld"))
    elif tight and best.value > 0:
        candidates += _tight_epsilons(entries, delta, best.value, fresh)
    return checked(_least(candidates))


def _tight_epsilons(entries: Sequence[Entry], delta: float, quick: float, fresh: bool) -> list[Certificate]:
    """By `gdp`, and for fresh noise by `gift` and `profile`, where these apply."""
    found = []
    if (steps := dominating_steps(entries)) is not None:
        # The guess sets the grid: it is made of these steps alone, so that more of them never cost less.
        guess = moments_epsilon([(Gaussian(1.0), Workload(p.rate, p.count, p.signal, 1)) for p in steps], delta)
        for some in (steps, _without_sampling(entries)):
            if some is not None:
                found.append(Certificate(_epsilon_by_loss(some, delta, guess.value), None, "gdp"))
        budget = _gift_budget(delta)
        if fresh and (given := with_gift(entries, budget)) is not None:
            value = _epsilon_by_loss(given, math.nextafter(delta - budget, 0.0), guess.value)
            found.append(Certificate(value, None, "gift"))
    if fresh and quick < _LARGEST_PLD_EPSILON and (profiles := _profiles(entries)) is not None:
        # A profile is the same in every dimension, and so should be the grid: no digits of the other bounds.
        value = composed_epsilon(profiles, delta, 2.0 ** math.ceil(math.log2(quick)))
        found.append(Certificate(value, None, "profile"))
    return found


def _without_sampling(entries: Sequence[Entry]) -> list[Steps] | None:
    """One Gaussian step for all: at rates near 1 to pay the excess once is better than to be sampled."""
    return dominating_steps([(noise, replace(work, sample_rate=1.0)) for noise, work in entries])


def moments_epsilon(entries: Sequence[Entry], delta: float) -> Certificate:
    """The epsilon by moments alone: the best order, and the best share of delta for tails."""
    return _least([rdp_certificate(moment, rest, _largest_order(entries)) for moment, rest in _moments(entries, delta)])


def _least(candidates: Sequence[Certificate]) -> Certificate:
    """The smallest, the first of equals; of none, no bound."""
    return min(candidates, key=lambda candidate: candidate.value, default=Certificate(math.inf, None, "rdp"))


def _epsilon_by_loss(steps: Sequence[Steps], delta: float, guess: float) -> float:
    """Of Gaussian steps, from their loss distribution; `inf` where that would not fit into memory and be of no use."""
    if all(part.rate == 1 for part in steps):
        return gaussian_epsilon(_together(steps), delta)
    return composed_epsilon(_few_kinds(steps), delta, guess) if 0 < guess < _LARGEST_PLD_EPSILON else math.inf


def _delta_by_loss(steps: Sequence[Steps], epsilon: float) -> float:
    """As `_epsilon_by_loss`; 1 where there is none."""
    if all(part.rate == 1 for part in steps):
        return _upwards(gaussian_delta(_together(steps), epsilon) * (1 + RDP_MARGIN))
    return composed_delta(_few_kinds(steps), epsilon) if 0 < epsilon < _LARGEST_PLD_EPSILON else 1.0


def certified_delta(entries: Sequence[Entry], epsilon: float, *, tight: bool = False) -> Certificate:
    """The smallest certified delta of all entries together, at the given epsilon, for steps with fresh noise."""
    signals = _gaussian_signals(entries)
    if signals is not None and all(part.rate == 1 for part in signals):
        return checked(Certificate(_delta_by_loss(signals, epsilon), None, "exact"))
    if pure_epsilon(entries) <= epsilon:
        return Certificate(0.0, None, "pure")
    if any(noise.shared for noise, _ in entries):
        return _delta_with_tails(entries, epsilon)
    ((moment, _),) = _moments(entries, 1.0)
    value, order = delta_from_moments(moment, epsilon, _largest_order(entries))
    # The exponent is a difference of terms of this size.
    exponent = RDP_MARGIN * (moment(order) + 1) + 2.0**-49 * order * epsilon
    best = Certificate(_upwards(_upwards(value) * math.exp(min(exponent, 700.0))), order, "rdp")
    if signals is not None:
        return checked(_least([best, Certificate(_delta_by_loss(signals, epsilon), None, "pld")]))
    if not tight:
        return checked(best)
    if (steps := dominating_steps(entries)) is not None:
        for some in (steps, _without_sampling(entries)):
            best = _least([best, Certificate(_delta_by_loss(some, epsilon) if some else 1.0, None, "gdp")])
        best = _least([best, _delta_with_gift(entries, epsilon, best.value)])
    if 0 < epsilon < _LARGEST_PLD_EPSILON and (profiles := _profiles(entries)) is not None:
        best = _least([best, Certificate(composed_delta(profiles, epsilon), None, "profile")])
    return checked(best)


def _gift_budget(delta: float) -> float:
    """A share of delta that is the same for all deltas up to a power of 2: epsilon and delta then use the same gift."""
    return math.ldexp(_GIFT_SHARE, math.frexp(delta)[1])


def _delta_with_gift(entries: Sequence[Entry], epsilon: float, guess: float) -> Certificate:
    """Each budget gives a delta. The one that belongs to its own delta is sought, from above."""
    best, tried = math.inf, set[float]()
    while (budget := _gift_budget(min(best, guess))) not in tried and len(tried) < 6:
        tried.add(budget)
        given = with_gift(entries, budget)
        if given is None:
            break
        best = min(best, _upwards((_delta_by_loss(given, epsilon) + budget) * (1 + 2.0**-51)))
    return Certificate(best, None, "gift")


def _upwards(delta: float) -> float:
    """The next double, up to 1: below 1e-308 they have few digits, and 0 is the delta of a bounded loss alone."""
    return min(1.0, math.nextafter(delta, math.inf))


def rdp_certificate(moment: Callable[[int], float], delta: float, largest: int) -> Certificate:
    """The epsilon of the best order, rounded outwards."""
    _, order = epsilon_from_moments(moment, delta, largest)
    at = moment(order)
    # log delta and the penalty of the order are good to their last bits, and may cancel.
    slack = RDP_MARGIN * at + 2.0**-49 * (abs(math.log(delta)) + math.log1p(order) + 1)
    return checked(Certificate(max(0.0, epsilon_at(order, at, delta) + slack / order), order, "rdp"))


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


def _total(steps: Sequence[tuple[int, StepMoments]]) -> Callable[[int], float]:
    return lambda lambda_: math.fsum(count * moments(lambda_) for count, moments in steps)


def _delta_with_tails(entries: Sequence[Entry], epsilon: float) -> Certificate:
    """The tails are cut at a delta of their own, so search for the delta at which epsilon is certified."""
    low, high = -690.0, 0.0  # log delta
    if certified_epsilon(entries, 0.999999).value > epsilon:
        return Certificate(1.0, None, "rdp")
    for _ in range(40):
        middle = (low + high) / 2
        if certified_epsilon(entries, math.exp(middle)).value <= epsilon:
            high = middle
        else:
            low = middle
    return Certificate(math.exp(high), certified_epsilon(entries, math.exp(high)).order, "rdp")


def _largest_order(entries: Sequence[Entry]) -> int:
    return min(noise.largest_order for noise, _ in entries)


def _profiles(entries: Sequence[Entry]) -> list[Step] | None:
    """The steps as losses of pairs that dominate every gradient; None where a noise has none."""
    gaussian = [entry for entry in entries if entry[0].before_rounding.gaussian_sigma is not None]
    others = [entry for entry in entries if entry[0].before_rounding.gaussian_sigma is None]
    if len(others) > _MOST_PROFILES:
        return None
    steps: list[Step] = []
    for noise, work in others:
        found = profile_steps(noise, work)
        if found is None:
            return None
        steps.append(found)
    return steps + list(_few_kinds(_gaussian_signals(gaussian) or []))


def _gaussian_signals(entries: Sequence[Entry]) -> list[Steps] | None:
    """The steps as shifts in standard deviations, rounded up; None where a noise is not Gaussian."""
    steps = []
    for noise, work in entries:
        sigma = noise.before_rounding.gaussian_sigma
        if sigma is None:
            return None
        signal = noise.sensitivity(work.clip, work.dimension) / sigma * (1 + 2.0**-51)
        steps.append(Steps(math.nextafter(signal, math.inf), work.sample_rate, work.steps))  # never 0
    return steps


def _together(steps: Sequence[Steps]) -> float:
    """One signal for all steps without sampling."""
    # hypot, because the square of 1e-170 is 0.
    root = math.hypot(*(math.sqrt(part.count) * part.signal for part in steps if part.rate == 1))
    return math.nextafter(root * (1 + 2.0**-50), math.inf)


def _few_kinds(steps: Sequence[Steps]) -> list[Steps]:
    """At most a few kinds of step, at least as revealing: those without sampling as one, others rounded up.

    A larger shift is more revealing (adding noise is post-processing), and so is a larger rate: who passes on an output
    with probability q'/q, and else noise of his own, turns rate q into q'.
    """
    sampled = [part for part in steps if part.rate < 1]
    whole = [Steps(_together(steps), 1.0, 1)] if len(sampled) < len(steps) else []
    ratio = 1e-6
    while len(sampled) > _MOST_KINDS:
        counts: dict[tuple[int, int], list[Steps]] = {}
        for part in sampled:
            kind = (math.ceil(math.log(part.signal) / ratio), math.ceil(math.log(part.rate) / ratio))
            counts.setdefault(kind, []).append(part)
        sampled = [
            Steps(max(p.signal for p in group), max(p.rate for p in group), sum(p.count for p in group))
            for group in counts.values()
        ]
        ratio *= 4
    return whole + sampled
