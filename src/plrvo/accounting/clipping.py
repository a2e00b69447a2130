"""How an example's gradient is clipped, and for how many coordinates the worst one is charged."""

from __future__ import annotations

from enum import StrEnum

from plrvo.validate import InvalidArgument


class Clipping(StrEnum):
    """Which norm of an example's gradient is bounded by the clip.

    | clipping | what is bounded | the worst gradient |
    |---|---|---|
    | flat | the l2 norm of all parameters together | that of an l2 ball, which the noise bounds (theory, section 4) |
    | per_layer | the l2 norm of each parameter, by its share of the clip | likewise: the shares add up to the clip |
    | automatic | the l2 norm, by g C/(||g|| + gamma): nearly all gradients have nearly the clip | as flat |
    | l1 | the l1 norm of all parameters together | one-hot, for Laplace noise only (theory, section 14) |
    | adaptive | the l2 norm of all parameters and a count of the unclipped, one more coordinate | that of an l2 ball |

    Under adaptive clipping the clip that is charged is the first one, and the unit of all others: noise and clip change
    together (`plrvo.training.adaptive`).
    """

    flat = "flat"
    per_layer = "per_layer"
    automatic = "automatic"
    l1 = "l1"
    adaptive = "adaptive"

    @staticmethod
    def named(name: str) -> Clipping:
        """The clipping of that name."""
        if name not in list(Clipping):
            raise InvalidArgument("clipping", name, "one of " + ", ".join(Clipping))
        return Clipping(name)

    @property
    def layered(self) -> bool:
        """Whether parts have clips of their own, within the one that is charged: layers, or gradient and count."""
        return self in (Clipping.per_layer, Clipping.adaptive)

    def coordinates(self, dimension: int) -> int:
        """For how many coordinates a gradient of `dimension` of them is charged, as if its l2 norm were clipped."""
        if self is Clipping.l1:
            return 1
        return dimension + 1 if self is Clipping.adaptive else dimension
