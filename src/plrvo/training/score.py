"""After the noise: free of privacy cost, since it looks at nothing but what was released (theory, section 9).

For a signal that is small against the noise the best use of an output y is the noise's score psi(y) = -p'(y)/p(y).
Divided by the Fisher information it is unbiased for small signals, so that learning rates keep their meaning:

    score:  y -> psi(y)/I          Gaussian: y itself. Laplace: b sign(y). Gamma-PLRV: redescending.
    clamp:  y -> clamp(y, -c, c)/P(|z| < c), c = 1/sqrt(I): nearly the score for small signals, linear for large ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from plrvo.noise import Noise
from plrvo.records.choices import Postprocess, check_postprocess


def postprocessor(kind: str | None, noise: Noise) -> Callable[[Any], Any] | None:
    """A function of a tensor at sum scale, or None where nothing is to be done."""
    if kind is None:
        return None
    check_postprocess(kind)
    # The information about one coordinate from its own output: the function looks at coordinates one by one.
    information = noise.fisher_information(1)
    if kind == Postprocess.score:
        return lambda y: noise.score(y) / information
    bound = 1 / math.sqrt(information)
    slope = 2 * float(noise.cdf(bound)) - 1
    return lambda y: y.clamp(-bound, bound) / slope
