"""Epsilon and delta by the law of the loss: of Gaussian steps, and of steps that show at least as much as others.

- `exact`: Gaussian steps without sampling. The loss of each is normal, so all of them together are one Gaussian release
  with the root of the sum of the squared signals, whose curve is known.
- `pld`: the loss distribution of Poisson-sampled Gaussian steps (`sampled_gaussian`), also on a grid, which is
  post-processing. Those without sampling enter as one step.
- `gdp`: steps of other noise replaced by Gaussian steps that show at least as much, at every level of the likelihood
  ratio (`domination`), and then `exact` or `pld`.
- `gift`: sampled steps of other noise replaced by Gaussian steps of no more than their energy, together with one more
  Gaussian step for the whole run (`gift`), and then `pld`.
- `profile`: Laplace and Gamma-PLRV steps, each of them a pair that dominates all gradients (`profile`; theory, section
  14), composed as in `pld`.

`gift` and `profile` are proved for steps with fresh noise each; of correlated noise, for visits that share no row. Each
of them is a bound; an estimate of what they give says which are worth the composition.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TypeGuard

from plrvo.accounting.domination import dominating_steps
from plrvo.accounting.gaussian_curve import gaussian_delta, gaussian_epsilon
from plrvo.accounting.gift import with_gift, without_gift
from plrvo.accounting.loss_distribution import coarse_deltas as composed_coarsely
from plrvo.accounting.loss_distribution import composed_delta, composed_epsilon, estimate
from plrvo.accounting.losses import Step
from plrvo.accounting.profile import FEW, worth_while
from plrvo.accounting.sampled_gaussian import Steps
from plrvo.accounting.step_profile import profile_steps
from plrvo.accounting.window import Estimate
from plrvo.accounting.workload import Workload
from plrvo.noise.base import Noise

Entry = tuple[Noise, Workload]

_LARGEST_EPSILON = 500.0
_CURVE_MARGIN = 1e-10  # relative, on a delta of the Gaussian curve
_GIFT_SHARE = 0.02  # of the next power of 2 above delta, for what a gift leaves
_MOST_KINDS = 32  # of sampled Gaussian steps in one loss distribution
_MOST_PROFILES = 8  # in one loss distribution
_WORTH = 2.0  # times the smallest: an estimate may be too large, by 6 % at delta = 1e-5 and by half at delta = 0.03
_ALIKE, _WORTH_IF_ALIKE = 0.06, 1.06  # where the smallest estimate was as good as this, the others are too
_WORTH_A_GIFT = 1.1  # whose search takes longest


def dominated_epsilon(
    entries: Sequence[Entry], delta: float, quick: float, fresh: bool, only: str | None = None
) -> Iterator[tuple[str, float]]:
    """Methods with their epsilons; `quick` is a bound already. Only those that may be the smallest are computed.

    `only` is a method beside which no other one that takes long is tried.
    """
    if not quick < _LARGEST_EPSILON and not any(noise.shared for noise, _ in entries):
        return
    # A profile is the same in every dimension, and so should be the grid: no digits of another bound.
    guess, best = 2.0 ** math.ceil(math.log2(min(quick, _LARGEST_EPSILON))), quick
    estimates: list[tuple[float, str, tuple[Step, ...], float]] = []
    profiles = fresh and only in (None, "profile") and _within_reach(entries, delta, guess, quick)
    for method, steps in _candidates(entries, profiles):
        if _unsampled(steps):
            value = epsilon(steps, delta)
            best = min(best, value)
            yield method, value
        else:
            estimates.append((estimate(steps, delta, guess).epsilon, method, steps, delta))
    budget = _gift_budget(delta)
    if fresh and only in (None, "gift") and (limit := without_gift(entries, budget)) is not None:
        most = _largest_gift(
            estimate(tuple(_few_kinds(limit)), delta, guess),
            min([_WORTH_A_GIFT * best, *(found[0] for found in estimates)]),
        )
        if (given := with_gift(entries, budget, most)) is not None:
            steps, rest = tuple(_few_kinds(given)), math.nextafter(delta - budget, 0.0)
            estimates.append((estimate(steps, rest, guess).epsilon, "gift", steps, rest))
    most = min(_WORTH * best, _LARGEST_EPSILON)
    for about, method, steps, rest in sorted(estimates, key=lambda found: found[0]):
        if about <= most:
            value = composed_epsilon(steps, rest, guess)
            best = min(best, value)
            most = min(most, (_WORTH_IF_ALIKE if abs(value - about) <= _ALIKE * about else _WORTH) * about)
            yield method, value


def _within_reach(entries: Sequence[Entry], delta: float, guess: float, known: float) -> bool:
    """Whether profiles can be smaller than a bound that is known.

    They are above Gaussian steps of the same information, which is what gradients in many small shifts come to. A
    single coordinate has no such limit, and a pair that is found at once.
    """
    limit = []
    for noise, work in entries:
        law = noise.before_rounding.lomax
        if law is None or noise.shared or work.dimension == 1:
            return True
        shift = noise.sensitivity(work.clip, work.dimension) / law[1]
        if not worth_while(law[0], shift, work.steps <= FEW):
            return False
        limit.append(Steps(shift * math.sqrt(law[0].information), work.sample_rate, work.steps))
    return estimate(tuple(_few_kinds(limit)), delta, guess).epsilon <= _WORTH * known


def _largest_gift(limit: Estimate, known: float) -> float:
    """About the largest signal of a gift that can be worth it, its search being what takes longest; rounded up.

    A small gift m adds m^2 (theta + 1)/2 to epsilon, theta the saddle point, and a large one less than that.
    """
    room = 2 * max(0.0, known - limit.epsilon) / (limit.theta + 1)
    return min(1.0, 1.1 ** math.ceil(math.log(1.5 * math.sqrt(room)) / math.log(1.1))) if room > 0 else 0.0


def dominated_delta(entries: Sequence[Entry], epsilon: float, quick: float) -> Iterator[tuple[str, float]]:
    """Methods with their deltas, for steps with fresh noise; `quick` is a bound already."""
    best, tried = quick, set[float]()
    for method, steps in _candidates(entries):
        value = _delta(steps, epsilon)
        best = min(best, value)
        yield method, value
    # Each budget gives a delta. The one that belongs to its own delta is sought, from above.
    while (budget := _gift_budget(best)) not in tried and len(tried) < 6:
        tried.add(budget)
        given = with_gift(entries, budget)
        if given is None:
            break
        value = min(1.0, math.nextafter((delta(given, epsilon) + budget) * (1 + 2.0**-51), math.inf))
        best = min(best, value)
        yield "gift", value


def coarse_deltas(entries: Sequence[Entry], epsilons: Sequence[float]) -> list[float]:
    """Bounds on the deltas of all entries at several epsilons, for large deltas: in a moment, and nearly as tight."""
    steps = gaussian_steps(entries)
    best = [1.0] * len(epsilons)
    for some in [steps] if steps is not None else [list(found) for _, found in _candidates(entries)]:
        if _unsampled(some):
            found = [_delta(some, epsilon) for epsilon in epsilons]
        else:
            found = composed_coarsely(_few_kinds(some), epsilons)
        best = [min(pair) for pair in zip(best, found, strict=True)]
    return best


def _candidates(entries: Sequence[Entry], with_profiles: bool = True) -> Iterator[tuple[str, tuple[Step, ...]]]:
    """Methods with steps that show at least as much as all entries; profiles are for steps with fresh noise."""
    for some in (
        dominating_steps(entries),
        # One Gaussian step for all: at rates near 1 to pay the excess once is better than to be sampled.
        dominating_steps([(noise, replace(work, sample_rate=1.0)) for noise, work in entries]),
    ):
        if some is not None:
            yield "gdp", tuple(_few_kinds(some))
    if with_profiles and (profiles := _profiles(entries)) is not None:
        yield "profile", tuple(profiles)


def epsilon(steps: Sequence[Steps], delta: float, guess: float = math.inf) -> float:
    """Of Gaussian steps; `inf` where their losses would not fit into memory and be of no use. `guess` is a bound."""
    if _unsampled(steps):
        return gaussian_epsilon(_together(steps), delta)
    return composed_epsilon(tuple(_few_kinds(steps)), delta, guess) if 0 < guess < _LARGEST_EPSILON else math.inf


def delta(steps: Sequence[Step], epsilon: float) -> float:
    """As `epsilon`; 1 where there is none."""
    return _delta(tuple(steps if _unsampled(steps) else _few_kinds(steps)), epsilon)


def _delta(steps: Sequence[Step], epsilon: float) -> float:
    if _unsampled(steps):
        shown = gaussian_delta(_together(steps), epsilon) * (1 + _CURVE_MARGIN)
        return min(1.0, math.nextafter(shown, math.inf))
    return composed_delta(steps, epsilon) if 0 < epsilon < _LARGEST_EPSILON else 1.0


def _unsampled(steps: Sequence[Step]) -> TypeGuard[Sequence[Steps]]:
    """Whether all of them are Gaussian steps without sampling, whose curve is known."""
    return all(isinstance(part, Steps) and part.rate == 1 for part in steps)


def gaussian_steps(entries: Sequence[Entry]) -> list[Steps] | None:
    """The steps as shifts in standard deviations, rounded up; None where a noise is not Gaussian."""
    steps = []
    for noise, work in entries:
        sigma = noise.before_rounding.gaussian_sigma
        if sigma is None:
            return None
        signal = noise.sensitivity(work.clip, work.dimension) / sigma * (1 + 2.0**-51)
        steps.append(Steps(math.nextafter(signal, math.inf), work.sample_rate, work.steps))  # never 0
    return steps


def _gift_budget(delta: float) -> float:
    """A share of delta that is the same for all deltas up to a power of 2: epsilon and delta then use the same gift."""
    return math.ldexp(_GIFT_SHARE, math.frexp(delta)[1])


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
    return steps + list(_few_kinds(gaussian_steps(gaussian) or []))


def _together(steps: Sequence[Steps]) -> float:
    """One signal for all steps without sampling."""
    # hypot, because the square of 1e-170 is 0.
    root = math.hypot(*(math.sqrt(part.count) * part.signal for part in steps if part.rate == 1))
    return math.nextafter(root * (1 + 2.0**-50), math.inf)


def _few_kinds(steps: Sequence[Step]) -> list[Step]:
    """At most a few kinds of Gaussian step, at least as revealing: those without sampling as one, others rounded up.

    A larger shift is more revealing (adding noise is post-processing), and so is a larger rate: who passes on an output
    with probability q'/q, and else noise of his own, turns rate q into q'.
    """
    gaussian = [part for part in steps if isinstance(part, Steps)]
    others = [part for part in steps if not isinstance(part, Steps)]
    sampled = [part for part in gaussian if part.rate < 1]
    whole = [Steps(_together(gaussian), 1.0, 1)] if len(sampled) < len(gaussian) else []
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
    return [*whole, *sampled, *others]
