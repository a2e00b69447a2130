"""The smallest noise of a given shape that certifies a budget. Conservative: it never returns one that misses it."""

from __future__ import annotations

import math
from typing import TypeVar

from plrvo import validate
from plrvo.accounting.bracket import AnyLedger
from plrvo.accounting.correlated import Correlation, ledger_of
from plrvo.accounting.workload import Workload
from plrvo.noise.base import Noise
from plrvo.noise.specification import Specification

_TOLERANCE = 1e-6  # relative, on the width of the noise
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
    >>> 0.9999 < certified <= 1.0
    True
    """
    validate.of_type(Noise, noise=noise)
    validate.of_type(Workload, work=work)
    validate.positive(epsilon=epsilon)
    validate.probability(delta=delta)

    def ledger(wider: Noise) -> AnyLedger:
        return ledger_of(wider, work, correlation, work.steps)

    def fitted(log_width: float) -> SomeNoise:
        found = noise.scaled(math.exp(log_width))
        ledger(found).checked(delta)  # once, at the end: the search itself is not compared with attacks
        return found

    def miss(log_width: float) -> float:
        """log of certified / budget: positive where the budget is missed. Clipped, since epsilon may be 0 or inf."""
        value = ledger(noise.scaled(math.exp(log_width))).certified(delta).value
        return min(50.0, max(-50.0, math.log(value / epsilon))) if value > 0 else -50.0

    narrow = wide = 0.0
    if miss(0.0) > 0:
        while miss(wide) > 0:
            narrow, wide = wide, wide + 1.0
            if wide > math.log(_WIDEST):
                raise validate.InvalidArgument("epsilon", epsilon, "a budget that some width of this noise can reach")
    else:
        while miss(narrow) <= 0:
            wide, narrow = narrow, narrow - 1.0
            if narrow < -math.log(_WIDEST):
                return fitted(narrow)
    from scipy import optimize  # here, so that importing plrvo does not wait for it

    root = optimize.toms748(miss, narrow, wide, xtol=_TOLERANCE / 4, rtol=1e-12)
    step = _TOLERANCE / 4
    while miss(root) > 0:
        root += step
        step *= 2
    return fitted(root)


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
