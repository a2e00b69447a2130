"""Adaptive clipping: the clip follows a quantile of the gradients' norms, which is released with noise in every step.

After Andrew et al. (2021), "Differentially private learning with adaptive clipping", and Opacus's arguments for it.
Let b be 1 for an example whose gradient is not longer than the clip C_t, else 0. A step releases, with the noisy sum,
a noisy count of such examples, and the clip of the next step is

    C_{t+1} = C_t exp(-eta (share - target)),   share = 1/2 + (sum over the batch of (b - 1/2) + noise) / m,

within its bounds; m is the expected batch size, a public number (the batch's own size is not).

**What is entered in the ledger.** Each example contributes +-1/2 to the centred count, so its sensitivity is 1/2 where
that of the plain count is 1. The count is one more coordinate of the gradient, in a unit in which it contributes
+-r C_t, and gets the same noise as all the others, in the same draw. Together an example contributes (g, +-r C_t) with

    ||(g, +-r C_t)||_2 <= s C_t,   s = sqrt(1 + r^2):

the joint release is one step of the plan's mechanism in n + 1 coordinates, on one Poisson sample, whatever its noise
is: no second mechanism has to be composed, and amplification by sampling is that of the joint release. The plan's noise
N is for a clip C_0; the noise that is added is N scaled by s C_t/C_0, so that divided by s C_t/C_0, which everybody
knows from earlier releases, a step is exactly N with vectors of norm at most C_0. Every step therefore is the same kind
of step, (N, C_0, n + 1), whatever clips came before: that is what the ledger has, and adaptivity costs nothing more.

With z = std(N)/C_0 the count has noise of standard deviation z s/(2 r). That is `unclipped_num_std` (sigma_u) if

    1/r^2 = (2 sigma_u/z)^2 - 1,   and the gradient's multiplier is z s = (z^-2 - (2 sigma_u)^-2)^(-1/2),

for Gaussian noise Theorem 1 of the paper, and Opacus's numbers. A lower bound is known for Gaussian noise only: others
have worst gradients that the fixed length of the count's coordinate may forbid.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from plrvo.noise import Noise
from plrvo.training.clipping import check_clip
from plrvo.validate import InvalidArgument, positive

_Base: Any = object  # Opacus's classes have no types
_LARGEST_RATIO = 1e9  # beyond it the count's coordinate is of no use, and soon no number
_OUTWARDS = 1e-12  # relative, for the rounding of r, s and a scaled noise
_NAMES = (
    *("target_unclipped_quantile", "clipbound_learning_rate", "max_clipbound", "min_clipbound"),
    "unclipped_num_std",
)


@dataclass(frozen=True)
class Adaptive:
    """Opacus's arguments of adaptive clipping."""

    target_unclipped_quantile: float
    clipbound_learning_rate: float
    max_clipbound: float
    min_clipbound: float
    unclipped_num_std: float

    def __post_init__(self) -> None:
        positive(**asdict(self))
        check_clip(self.min_clipbound)
        if self.target_unclipped_quantile >= 1:
            raise InvalidArgument("target_unclipped_quantile", self.target_unclipped_quantile, "between 0 and 1")
        if self.max_clipbound <= self.min_clipbound:
            raise InvalidArgument("max_clipbound", self.max_clipbound, f"above min_clipbound, {self.min_clipbound}")

    def weight(self, noise: Noise, clip: float) -> float:
        """r, what an example adds to the count's coordinate in clips; for a noise beside the first clip."""
        if not math.isfinite(noise.variance):
            raise InvalidArgument("noise", noise.kind, 'one with a standard deviation, for clipping="adaptive"')
        multiplier = math.sqrt(noise.variance) / clip
        ratio = 2 * self.unclipped_num_std / multiplier
        if not ratio > 1 + 1e-9:
            raise InvalidArgument(
                "unclipped_num_std", self.unclipped_num_std, f"above {multiplier / 2:.6g}, half of the noise multiplier"
            )
        if ratio > _LARGEST_RATIO:
            raise InvalidArgument(
                "unclipped_num_std",
                self.unclipped_num_std,
                f"at most {_LARGEST_RATIO * multiplier / 2:.3g}",
            )
        return (1 - _OUTWARDS) / math.sqrt(ratio * ratio - 1)

    def next_clip(self, clip: float, share: float) -> float:
        """The clip after a step in which so large a share of the batch was not clipped."""
        change = -self.clipbound_learning_rate * (share - self.target_unclipped_quantile)
        return min(max(clip * math.exp(min(change, 600.0)), self.min_clipbound), self.max_clipbound)


def asked_for(clipping: str, distributed: bool, others: dict[str, Any]) -> Adaptive | None:
    """The settings among `make_private`'s other arguments, which are taken from there; None for another clipping."""
    if clipping != "adaptive":
        return None
    if distributed:
        raise InvalidArgument("clipping", "adaptive", "flat or per_layer in several processes: each has its own count")
    for name in _NAMES:
        if others.get(name) is None:
            raise InvalidArgument(name, None, 'a number, for clipping="adaptive" (docs: coming from Opacus)')
    return Adaptive(**{name: others.pop(name) for name in _NAMES})


class AdaptiveMixin(_Base):
    """Goes in front of the noise: one more coordinate in the sums, and another clip after each step."""

    sums: Any

    def adapt(self, settings: Adaptive) -> None:
        """Begin with the first clip."""
        noise, clip = self.first
        self._settings, self._weight = settings, settings.weight(noise, clip)
        self.adapt_to(clip)

    def adapt_to(self, clip: float) -> None:
        """This clip from the next step on, and noise for it."""
        noise, first = self.first
        grown = math.sqrt(1 + self._weight**2) * (1 + _OUTWARDS)
        self._use(noise.scaled(grown * clip / first), clip)

    @property
    def adapted(self) -> dict[str, float] | None:
        return {**asdict(self._settings), "clip": self.clip}

    @property
    def charged(self) -> tuple[Noise, float]:
        noise: tuple[Noise, float] = self.first
        return noise

    def follow(self, schedule: Any) -> None:
        """Adaptive clipping has the only word on widths."""
        raise InvalidArgument("optimizer", type(schedule).__name__, 'another clipping than "adaptive", or no schedule')

    def draw_ahead(self) -> None:
        """No noise: the count is one more number of it."""

    def _factors(self, norms: list[Tensor]) -> tuple[list[Tensor], Tensor]:
        factors, out = super()._factors(norms)
        unclipped = factors[0] >= 1  # an example that is left out has the factor 0
        self._balance = 2 * int(unclipped.sum()) - len(unclipped)
        return factors, out

    def _add(self, totals: Any) -> None:
        balance = torch.tensor([self._balance * self._weight * self.clip], dtype=torch.float64)
        super()._add([*totals, balance])

    def _hand_out(self) -> None:
        *self.sums, self._released = self.sums
        self._balance = 0  # the count without its noise outlives no step
        super()._hand_out()

    def _use_released(self) -> None:
        super()._use_released()
        count = float(self._released) / (2 * self._weight * self.clip)
        share = count / self.expected_batch_size + 0.5
        self.adapt_to(self._settings.next_clip(self.clip, share))
