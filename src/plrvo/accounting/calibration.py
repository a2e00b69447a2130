"""The smallest noise of a given shape that certifies a budget. Conservative: it never returns one that misses it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol, TypeVar

from plrvo import validate
from plrvo.accounting.bracket import AnyLedger
from plrvo.accounting.certified import Certificate
from plrvo.accounting.correlated import Correlation, ledger_of
from plrvo.accounting.root import root_between
from plrvo.accounting.workload import Workload
from plrvo.noise.base import Noise
from plrvo.noise.specification import Specification

_TOLERANCE = 1e-6  # relative, on the width of the noise
_ENOUGH = 3e-4  # relative, of a budget that may be left over where every certificate takes a second
_AIM = 1e-4  # of the same, so that the last step of a search ends on the right side
_MOST_TRIES = 24
_FREE = -50.0  # a miss that says that nothing is spent
_CLIFF = 2e-3  # relative, on the width of the noise, where the next wider one spends nothing
_STEP = 0.1  # of the logarithm of a width, where nothing says how far to go
_WIDEST = 1e15

SomeNoise = TypeVar("SomeNoise", bound=Noise)


def calibrate(
    noise: SomeNoise, work: Workload, epsilon: float, delta: float, correlation: Correlation | None = None
) -> SomeNoise:
    """`noise` made as narrow as the budget allows; its own width is only where the search starts.

    With a `correlation` it is the noise of each row that is fitted, for all steps of the workload.

    >>> from plrvo import Laplace, Ledger
    >>> work = Workload(sample_rate=0.01, steps=300, clip=1.0, dimension=26_010)
    >>> fitted = calibrate(Laplace(1.0), work, epsilon=1.0, delta=1e-5)
    >>> certified = Ledger().plus(fitted, work).certified(1e-5).value
    >>> 0.9997 < certified <= 1.0
    True
    """
    return _scaled(_log_width, noise, work, epsilon, delta, correlation)


def calibrate_quickly(
    noise: SomeNoise, work: Workload, epsilon: float, delta: float, correlation: Correlation | None = None
) -> SomeNoise:
    """`noise` as narrow as the bound of searches allows, which is by moments unless it is Gaussian: often too wide.

    >>> from plrvo import Laplace
    >>> work = Workload(sample_rate=0.01, steps=300, clip=1.0, dimension=26_010)
    >>> wide, narrow = (fit(Laplace(1.0), work, 1.0, 1e-5) for fit in (calibrate_quickly, calibrate))
    >>> print(f"{narrow.b / wide.b:.2f}")
    0.89
    """
    return _scaled(_quick_width, noise, work, epsilon, delta, correlation)


_Width = Callable[[Noise, Workload, float, float, Correlation | None], float]


def _scaled(
    width: _Width, noise: SomeNoise, work: Workload, epsilon: float, delta: float, correlation: Correlation | None
) -> SomeNoise:
    validate.of_type(Noise, noise=noise)
    validate.of_type(Workload, work=work)
    validate.positive(epsilon=epsilon)
    validate.probability(delta=delta)
    return noise.scaled(math.exp(width(noise, work, epsilon, delta, correlation)))


@lru_cache(maxsize=256)
def _log_width(noise: Noise, work: Workload, epsilon: float, delta: float, correlation: Correlation | None) -> float:
    return narrowest_width(_ledgers(noise, work, correlation), epsilon, delta)


def _quick_width(noise: Noise, work: Workload, epsilon: float, delta: float, correlation: Correlation | None) -> float:
    return _by_quick_bound(_Misses(_ledgers(noise, work, correlation), epsilon, delta))[0]


def _ledgers(noise: Noise, work: Workload, correlation: Correlation | None) -> Callable[[float], AnyLedger]:
    """The ledger of each width."""
    return lambda log_width: ledger_of(noise.scaled(math.exp(log_width)), work, correlation, work.steps)


class Costed(Protocol):
    """Whatever has a price: a ledger, or a whole search."""

    def quick(self, delta: float) -> Certificate: ...
    def certified(self, delta: float) -> Certificate: ...
    def certified_by(self, method: str, delta: float) -> Certificate: ...
    def checked(self, delta: float) -> Certificate: ...


@dataclass(frozen=True)
class _Misses:
    """By how much widths miss the budget: log of certified / budget, positive where it is missed."""

    priced: Callable[[float], Costed]
    epsilon: float
    delta: float

    def quick(self, log_width: float) -> float:
        return self._of(self.priced(log_width).quick(self.delta).value)

    def certified(self, log_width: float) -> float:
        return self._of(self.priced(log_width).certified(self.delta).value)

    def by(self, method: str, log_width: float) -> float:
        return self._of(self.priced(log_width).certified_by(method, self.delta).value)

    def _of(self, value: float) -> float:
        """Clipped, since epsilon may be 0 or inf."""
        return min(50.0, max(_FREE, math.log(value / self.epsilon))) if value > 0 else _FREE


def narrowest_width(priced: Callable[[float], Costed], epsilon: float, delta: float) -> float:
    """The logarithm of the smallest width at which what is `priced` keeps the budget; wider costs less."""
    misses = _Misses(priced, epsilon, delta)
    found, every_width_does = _by_quick_bound(misses)
    if not every_width_does and not _is_all_there_is(misses, found):
        method = priced(found).certified(delta).method  # most likely the best one nearby too
        near = _narrower(misses.quick, lambda at: misses.by(method, at), found)
        found = _narrower(misses.quick, misses.certified, near)
    priced(found).checked(delta)  # once, at the end: the search itself is not compared with attacks
    return found


def _is_all_there_is(misses: _Misses, width: float) -> bool:
    """Whether noise of this width spends nothing, and only the quick bound can tell."""
    priced = misses.priced(width)
    return misses.quick(width) == _FREE and priced.certified(misses.delta) == priced.quick(misses.delta)


def _by_quick_bound(misses: _Misses) -> tuple[float, bool]:
    """The width at which the quick bound keeps the budget, and whether every width does."""
    narrow = wide = 0.0
    if misses.quick(0.0) > 0:
        while misses.quick(wide) > 0:
            narrow, wide = wide, wide + 1.0
            if wide > math.log(_WIDEST):
                expected = "a budget that some width of this noise can reach"
                raise validate.InvalidArgument("epsilon", misses.epsilon, expected)
    else:
        while misses.quick(narrow) <= 0 and narrow >= -math.log(_WIDEST):
            wide, narrow = narrow, narrow - 1.0
    if misses.quick(narrow) <= 0:
        return wide, True
    return _kept_root(misses.quick, narrow, wide), False


def _kept_root(miss: Callable[[float], float], narrow: float, wide: float) -> float:
    """A width at which the budget is kept, and just so.

    A budget far below delta is met by delta alone: epsilon falls from above it to 0 at once, where any two outcomes are
    within delta. That edge is not sought to the last digit, since near it an epsilon takes seconds.
    """
    while miss(wide) == _FREE:
        if wide - narrow < _CLIFF:
            return wide
        middle = (narrow + wide) / 2
        narrow, wide = (middle, wide) if miss(middle) > 0 else (narrow, middle)
    root = root_between(miss, narrow, wide, _TOLERANCE / 4)
    step = _TOLERANCE / 4
    while miss(root) > 0:
        root += step
        step *= 2
    return root


def _narrower(quick: Callable[[float], float], miss: Callable[[float], float], wide: float) -> float:
    """From a width at which the quick bound keeps the budget to the narrowest that does, in a few certificates.

    The first step goes to where the quick bound would keep the budget if it were below by as much as the certificate is
    here, the others by the secant method, inside a bracket. Whatever is returned keeps the budget.
    """
    kept = miss(wide)
    narrow, known = -math.inf, [(wide, kept)]
    for _ in range(_MOST_TRIES):
        if kept > -_ENOUGH:
            break
        at = _by_secant(*known[-2:]) if len(known) > 1 else _as_far_below(quick, kept, wide)
        if not narrow < at < wide:
            at = (narrow + wide) / 2 if narrow > -math.inf else 2 * wide - known[0][0] - _STEP
        if not narrow < at < wide:
            break
        known.append((at, miss(at)))
        if known[-1][1] > 0:
            narrow = at
        else:
            wide, kept = known[-1]
    return wide


def _as_far_below(quick: Callable[[float], float], kept: float, wide: float) -> float:
    here = quick(wide)
    if quick(wide - 1) - here + kept + _AIM <= 0:
        return wide - 1
    return root_between(lambda at: quick(at) - here + kept + _AIM, wide - 1, wide, 1e-6)


def _by_secant(one: tuple[float, float], other: tuple[float, float]) -> float:
    rise = other[1] - one[1]
    return other[0] - (other[1] + _AIM) * (other[0] - one[0]) / rise if rise else math.nan


def narrowest(
    shape: Specification | Noise | str,
    work: Workload,
    epsilon: float,
    delta: float,
    correlation: Correlation | None = None,
) -> Noise:
    """The narrowest noise of a specification, or of the shape of a noise, that certifies the budget.

    >>> work = Workload(sample_rate=0.01, steps=300, clip=1.0, dimension=26_010)
    >>> print(f"{narrowest(Specification('gaussian'), work, epsilon=1.0, delta=1e-5).variance:.3f}")
    1.056
    """
    if isinstance(shape, str):  # a kind
        shape = Specification(shape)
    if not isinstance(shape, Noise | Specification):
        raise validate.InvalidArgument("shape", shape, "a noise, a kind of noise, or a Specification")
    wide = shape if isinstance(shape, Noise) else shape.shape(work.clip)
    return calibrate(wide, work, epsilon, delta, correlation)
