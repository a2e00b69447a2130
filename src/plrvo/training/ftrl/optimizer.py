"""The optimizer's part: one flat vector a step, released through the stream instead of with fresh noise."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from typing import Any

import torch

from plrvo.accounting.correlated import Correlation
from plrvo.records.visits import ScheduleViolated
from plrvo.training.ftrl.stream import NoiseStream, keyed_draws
from plrvo.validate import counted

_Base: Any = object  # Opacus's classes have no types


class CorrelatedMixin(_Base):
    """Goes in front of a noisy optimizer class, and replaces where its noise comes from.

    Post-processing (`score`, `clamp`) is a function of a released row. So it is applied to rows, before they are
    combined into the step's gradient.
    """

    noise_stream: NoiseStream
    noise_key: int
    _after_noise: Callable[[Any], Any] | None

    def correlate(self, correlation: Correlation, steps: int, key: int, handed_out: Callable[[], int]) -> None:
        """Start the stream; the noise, the post-processing and the parameters are the optimizer's own.

        `handed_out` says how many batches the loader has given: step t belongs to batch t and to no other.
        """
        self._correlation, self._steps, self._handed_out = correlation, steps, handed_out
        self._on_rows: Callable[[Any], Any] | None = self._after_noise
        self._after_noise = None
        self.start_stream(key)

    def start_stream(self, key: int) -> None:
        """A stream at its first step."""
        self.noise_key, self._process = key, os.getpid()
        like = self.params[0]
        count = sum(p.numel() for p in self.params)
        draw = keyed_draws(self.noise, key, count, like.detach())
        self.noise_stream = NoiseStream(self._correlation, self._steps, draw, count * like.element_size())

    @property
    def keeps_private_sums(self) -> bool:
        """Whether the stream holds sums without noise, and has to be stored as it is."""
        return self._on_rows is not None

    def pre_step(self, closure: Callable[[], float] | None = None) -> Any:
        if not self._check_skip_next_step(pop_next=False) and self._handed_out() != self.steps_taken + 1:
            raise ScheduleViolated(
                f"step {self.steps_taken} with {counted(self._handed_out(), 'batch')} handed out: expected one step "
                "for each batch of the engine's loader"
            )
        return super().pre_step(closure)

    def add_noise(self) -> None:
        """p.grad = the stream's estimate of the clipped sum, at sum scale."""
        if os.getpid() != self._process:
            raise RuntimeError("a forked process holds its parent's key of correlated noise: make one in each process")
        parameters: list[Any] = self.params
        x = torch.cat([total.reshape(-1).to(parameters[0].dtype) for total in self.sums])
        if self._on_rows is None:
            released = x + self.noise_stream.next_noise()
        else:
            released = torch.clone(self.noise_stream.release(x, self._on_rows))
        for p, part in zip(parameters, released.split([p.numel() for p in parameters]), strict=True):
            p.grad = part.view_as(p).to(p)


@cache
def correlated_class(noisy: type) -> type:
    """The noisy optimizer class with correlated noise."""
    return type(f"Correlated{noisy.__name__}", (CorrelatedMixin, noisy), {})
