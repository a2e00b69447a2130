"""What a training run asks of its noise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from plrvo import validate

_SHORTEST_CLIP = 1e-150  # numbers not far below it have fewer digits, or none
_SMALLEST_RATE = 1e-30  # with far smaller ones, loss distributions leave what a double holds
_MOST = 1 << 63  # steps and coordinates: what a 64-bit integer counts, and a double comes near


@dataclass(frozen=True)
class Workload:
    """`steps` noisy sums of gradients of norm at most `clip` in `dimension` coordinates, from Poisson batches.

    The norm is l2, unless a plan says otherwise (`Clipping`). Every example joins a batch independently with
    probability `sample_rate`. None of the numbers may depend on the private data. `dimension` is the number of
    trainable parameters, or the number of coordinates that one example is guaranteed to touch where the model makes
    gradients sparse.

    >>> Workload(sample_rate=0.01, steps=300, clip=0.1, dimension=26_010).steps
    300
    """

    sample_rate: float
    steps: int
    clip: float
    dimension: int

    def __post_init__(self) -> None:
        validate.rate(sample_rate=self.sample_rate)
        if self.sample_rate < _SMALLEST_RATE:
            few = "at least 1e-30: below it the accountant's numbers leave the range of doubles"
            raise validate.InvalidArgument("sample_rate", self.sample_rate, few)
        validate.positive_integer(steps=self.steps, dimension=self.dimension)
        for name, value in (("steps", self.steps), ("dimension", self.dimension)):
            if value >= _MOST:
                raise validate.InvalidArgument(name, value, "a whole number below 2**63")
        validate.positive(clip=self.clip)
        if self.clip < _SHORTEST_CLIP:
            raise validate.InvalidArgument("clip", self.clip, "at least 1e-150: clip and noise in other units")
        validate.native(self)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_dict(description: Any) -> Workload:
        """The workload that `to_dict` described."""
        names = [field.name for field in fields(Workload)]
        known = set(description) if isinstance(description, Mapping) else None  # files hold anything
        if known != set(names):
            raise validate.InvalidArgument("workload", description, "the keys " + ", ".join(names))
        return Workload(**description)
