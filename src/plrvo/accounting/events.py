"""A bridge to dp-accounting: steps with any noise of this library, composed beside other events.

    accountant = PlrvoRdpAccountant()
    accountant.compose(NoisyStepsEvent(noise, work))
    accountant.compose(dp_accounting.GaussianDpEvent(noise_multiplier=4.0))
    accountant.get_epsilon(1e-5)

The moments are those of `Ledger.quick`; between integer orders alpha = lambda + 1 they are interpolated, which is valid
since A(lambda) is convex. A shared scale needs a share of delta for its tail, which this accountant cannot
give: such noises are refused.
"""

from __future__ import annotations

import math
from typing import Any

import attr
import dp_accounting
import numpy as np
from dp_accounting.rdp import RdpAccountant

from plrvo.accounting.moments import StepMoments
from plrvo.accounting.workload import Workload
from plrvo.noise.base import Noise


@attr.s(frozen=True, auto_attribs=True)
class NoisyStepsEvent(dp_accounting.DpEvent):  # type: ignore[misc]
    """`workload.steps` Poisson-sampled, l2-clipped sums released with `noise`. Adjacency: add or remove one example."""

    noise: Noise
    workload: Workload


class PlrvoRdpAccountant(RdpAccountant):  # type: ignore[misc]
    """dp-accounting's Renyi accountant, which also understands `NoisyStepsEvent`."""

    def _maybe_compose(self, event: Any, count: int, do_compose: bool) -> Any:
        if not isinstance(event, NoisyStepsEvent):
            return super()._maybe_compose(event, count, do_compose)
        if self.neighboring_relation is not dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE:
            return self._refusal(event, "the moments hold for adding or removing one example")
        if event.noise.shared:
            return self._refusal(event, "a shared scale needs a share of delta; use plrvo.Ledger")
        if do_compose:
            work = event.workload
            moments = StepMoments(event.noise, work.clip, work.dimension, work.sample_rate)
            self._rdp += count * work.steps * np.array([renyi_divergence(moments, order) for order in self._orders])
        return None

    def _refusal(self, event: NoisyStepsEvent, message: str) -> Any:
        return self.CompositionErrorDetails(invalid_event=event, error_message=message)


def renyi_divergence(moments: StepMoments, order: float) -> float:
    """A(lambda)/lambda at lambda = order - 1, with A on the chord between integers and A(0) = 0."""
    lambda_ = order - 1
    below, above = math.floor(lambda_), math.ceil(lambda_)
    at_below = moments(below) if below > 0 else 0.0
    if below == above:
        return at_below / lambda_
    share = lambda_ - below
    return ((1 - share) * at_below + share * moments(above)) / lambda_
