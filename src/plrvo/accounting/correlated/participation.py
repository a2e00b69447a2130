"""Who takes part when: an order of visits in the place of sampling, or coins that are tossed group by group."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from plrvo import validate


@dataclass(frozen=True)
class Participation:
    """At most `epochs` visits of one example, any two of them at least `separation` steps apart.

    With `separation == steps_per_epoch` (the default) the order is *fixed*: an example that is in step s is in steps
    s + steps_per_epoch, s + 2 steps_per_epoch, ... and in no other. Otherwise any pattern that keeps the separation is
    allowed, and has to be paid for.

    >>> Participation(steps_per_epoch=100, epochs=20).fixed
    True
    """

    steps_per_epoch: int
    epochs: int = 1
    separation: int = 0  # 0 stands for steps_per_epoch, and is replaced by it

    def __post_init__(self) -> None:
        validate.positive_integer(steps_per_epoch=self.steps_per_epoch, epochs=self.epochs)
        if self.separation == 0 and not isinstance(self.separation, bool):
            object.__setattr__(self, "separation", self.steps_per_epoch)
        validate.positive_integer(separation=self.separation)
        if self.separation > self.steps_per_epoch:
            raise validate.InvalidArgument(
                "separation", self.separation, f"at most steps_per_epoch, {self.steps_per_epoch}"
            )

    @property
    def fixed(self) -> bool:
        return self.separation == self.steps_per_epoch

    @property
    def most_steps(self) -> int:
        """The steps that so many epochs have; one more could bring an example once too often."""
        return self.steps_per_epoch * self.epochs

    def visits(self, steps: int) -> int:
        """How often one example can take part in so many steps."""
        return min(self.epochs, -(-steps // self.separation))

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class CyclicPoisson:
    """The examples are cut into `groups`; step t tosses a coin for each example of group t mod groups, and no other.

    With at most as many bands as groups, the rows that one visit enters hold no other visit of that example. So a visit
    is one Poisson-sampled step of DP-SGD, and is amplified like one (theory, section 11). The coins are secret; the
    group of an example must not depend on any data.
    """

    groups: int
    sample_rate: float  # of an example whose group has its turn

    def __post_init__(self) -> None:
        validate.positive_integer(groups=self.groups)
        validate.rate(sample_rate=self.sample_rate)

    def visits(self, steps: int) -> int:
        """How often the turn of one group can have come."""
        return -(-steps // self.groups)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)
