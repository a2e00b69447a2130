"""Why the gradient of an example is taken to depend on that example alone, which every proof here starts from.

Clipping bounds what an example does to a sum if nothing of it reaches the gradients of others. Either that cannot
happen, or it was looked for and not found. A receipt says which, so that its epsilon is read with its premise. Steps of
several kinds, before and after a checkpoint or by several modules, stand as the weakest of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from plrvo.records.choices import GradSampleMode


class Isolation(StrEnum):
    """The strongest first."""

    construction = "construction"
    tried = "tried"
    vouched = "vouched"

    @property
    def sentence(self) -> str:
        return _SENTENCES[self]


_SENTENCES = {
    Isolation.construction: "by construction: module and loss were given one example at a time",
    Isolation.tried: "tried, not proved: they shared batches, and no try found one that reaches another's gradient",
    Isolation.vouched: "the caller's word for what weighs examples in the loss (public_loss_weights); the rest tried",
}
NOT_SAID = "not said: the receipt does not tell how gradients were formed"


def isolation_of(run: Mapping[str, Any]) -> Isolation | None:
    """What a receipt says of it; the first ones name no more than a mode, or nothing."""
    said, mode = run.get("isolation"), run.get("grad_sample_mode")
    if said in list(Isolation):
        return Isolation(said)
    return None if mode is None else by_mode(mode)


def by_mode(mode: str, vouched: bool = False) -> Isolation:
    """Of the steps of a mode, where the caller may have answered for the weights in the loss."""
    if mode == GradSampleMode.alone:
        return Isolation.construction
    return Isolation.vouched if vouched else Isolation.tried


def weakest(first: Isolation | None, second: Isolation) -> Isolation:
    """Of all steps, where None is for none yet."""
    order = list(Isolation)
    return second if first is None else max(first, second, key=order.index)
