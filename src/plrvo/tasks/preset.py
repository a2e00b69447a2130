"""What a family of tasks hands over: data, a loss, test metrics, a model, and settings that suit them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler

from plrvo.accounting import Plan
from plrvo.tasks.defaults import Defaults
from plrvo.training.loop import Metrics


class InMemory(Dataset[Any]):
    """Tensors that are indexed a batch at a time; what is kept in half precision comes out in single precision."""

    def __init__(self, *tensors: torch.Tensor) -> None:
        self.tensors = tensors

    def __len__(self) -> int:
        return len(self.tensors[0])

    def __getitem__(self, index: int) -> Any:
        return tuple(_single(t[index]) for t in self.tensors)

    def __getitems__(self, indices: list[int]) -> Any:
        chosen = torch.as_tensor(indices, dtype=torch.long)
        return tuple(_single(t.index_select(0, chosen)) for t in self.tensors)  # faster by rows than an index


def _single(values: torch.Tensor) -> torch.Tensor:
    return values.float() if values.dtype == torch.float16 else values


def whole_batches(data: Dataset[Any], sampler: Sampler[list[int]] | None = None) -> DataLoader[Any]:
    """A loader over data that gives whole batches; without a sampler, the engine draws them."""
    if sampler is None:
        return DataLoader(data, collate_fn=lambda batch: batch)
    return DataLoader(data, batch_sampler=sampler, collate_fn=lambda batch: batch)


@contextmanager
def initialised_from(generator: torch.Generator) -> Iterator[None]:
    """Weights made inside are a function of one draw from `generator`; torch's own state is left as it is."""
    seed = int(torch.randint(2**62, (1,), generator=generator, device=generator.device).item())
    with torch.random.fork_rng(devices=[]):
        # Not torch.manual_seed, which would seed every other device as well.
        torch.default_generator.manual_seed(seed)
        yield


class Observer(Protocol):
    """Watches a run and has something to say for its receipt: an audit."""

    def begin(self, optimizer: Any, plan: Plan, state: Any) -> None:
        """Before the first step; `state` is what `state` gave when a run that is resumed was saved, or None."""

    def state(self) -> Any:
        """Plain data to go on from."""

    def conclude(self, module: nn.Module, certified: float) -> dict[str, Any]:
        """After the last step, beside the epsilon that the run certifies."""


def itself(module: nn.Module) -> nn.Module:
    """The whole module."""
    return module


@dataclass(frozen=True)
class Task:
    """What is trained on what.

    `data.__getitems__(indices)` is a whole batch (inputs, targets): inputs are one tensor, or a mapping or tuple of
    several, as the module's forward takes them. `data.lengths`, if there is one, sorts batches to pad little.
    `loss(outputs, targets)` has a `reduction`, "mean" at first, and gives one number per example when that is "none".
    `evaluate` and `finish` look at public test data only; `finish` comes once, after the last step, and may write
    files into the run's folder. `warnings` are for the user's eyes; what is in `description` goes into the receipt.
    `size` is the public number of examples, from which the divisor follows; planted ones do not count in it.
    `released` is the part of the module whose weights are written; `public` are inputs like the data's that are not
    private, from which an audit makes its own. `unsafe` is known of the private examples, and written only where the
    user asks for `unsafe_diagnostics`. `base` says whose weights those are that are not trained, where anybody can have
    them again: they are not written.
    """

    data: Dataset[Any]
    size: int
    evaluate: Callable[[nn.Module], Metrics]
    description: dict[str, Any]
    loss: nn.Module
    metric: str = "accuracy"  # of those that `evaluate` gives, the one to show and to plot
    finish: Callable[[nn.Module, Path], Metrics] | None = None
    warnings: tuple[str, ...] = ()
    observer: Observer | None = None
    released: Callable[[Any], nn.Module] = itself
    public: torch.Tensor | None = None
    unsafe: dict[str, Any] = field(default_factory=dict)
    base: str | None = None


@dataclass(frozen=True)
class Preset:
    """A task, a freshly initialised model for it under the name that the user knows, and defaults."""

    task: Task
    module: nn.Module
    model: str
    defaults: Defaults = field(default_factory=Defaults)
