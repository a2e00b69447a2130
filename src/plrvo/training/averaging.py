"""Exponential averaging of weights: noise of single steps averages out, and privacy is not touched.

After step t the average is a <- d a + (1 - d) w with d = min(decay, (1 + t) / (10 + t)): early weights, far from where
training ends, are soon forgotten. Every w was released with its noise, and a is a function of these: post-processing,
which costs nothing, whatever the decay. What is trained is w, as without averaging.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from plrvo.validate import InvalidArgument, probability

_AVERAGE, _STEPS = "average", "averaged_steps"  # in the optimizer's state, so that checkpoints hold them


class WeightAverage:
    """The average of the weights that an optimizer trains, kept in its state from its next step on."""

    def __init__(
        self, optimizer: torch.optim.Optimizer, decay: float, on_change: Callable[[], None] = lambda: None
    ) -> None:
        probability(average=decay)
        self.decay, self._on_change = decay, on_change  # where what was made of the weights before is let go of
        self.is_in_place = False
        self._optimizer = optimizer
        optimizer.register_step_post_hook(self._update)

    def refuse_in_place(self, what: str) -> None:
        """What is for the weights that are trained, while the average is in their place: it would be taken for them."""
        if self.is_in_place:
            raise InvalidArgument(
                what, "within engine.averaged()", "outside of it, where the weights are those trained"
            )

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """The parameters are the average meanwhile; before the first step they stay as they are."""
        trained = {p: p.detach().clone() for p in self._parameters() if _AVERAGE in self._optimizer.state[p]}
        with torch.no_grad():
            for p in trained:
                p.copy_(self._optimizer.state[p][_AVERAGE])
        self._on_change()
        before, self.is_in_place = self.is_in_place, True
        try:
            yield
        finally:
            self.is_in_place = before
            with torch.no_grad():
                for p, values in trained.items():
                    p.copy_(values)
            self._on_change()

    def _parameters(self) -> Iterator[torch.Tensor]:
        for group in self._optimizer.param_groups:
            yield from group["params"]

    @torch.no_grad()
    def _update(self, *_: Any) -> None:
        for p in self._parameters():
            state = self._optimizer.state[p]
            taken = state.get(_STEPS, 0)
            if taken == 0:
                state[_AVERAGE] = p.detach().clone()
            else:
                state[_AVERAGE].lerp_(p, 1 - min(self.decay, (1 + taken) / (10 + taken)))
            state[_STEPS] = taken + 1
