"""Poisson batches: every example joins a batch independently with probability q, and empty batches are batches."""

from __future__ import annotations

import copy
import hashlib
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from opacus.data_loader import DPDataLoader
from torch.utils.data import DataLoader, Sampler, get_worker_info

from plrvo.noise import Keystream
from plrvo.training.draws import Draws
from plrvo.training.own_generators import own_generators_aside
from plrvo.training.passes import Passes
from plrvo.training.questions import fetched
from plrvo.training.state import generators_aside
from plrvo.training.structure import map_leaves
from plrvo.validate import InvalidArgument, positive_integer, rate


class Share(list[int]):
    """What one of several processes has of a batch; `whole` tells the batch from others."""

    whole = ""


class PoissonSampler(Passes, Sampler[list[int]]):
    """`steps` batches of indices into a data set of `size` examples; any number of them if `steps` is None.

    With several processes every process draws the same batch from the same generator state and keeps its share of
    it, so that together they take exactly the batch that one process would take. Which process has an example is a
    matter of its own coin: by its place in the batch, one more example would move all later ones to other processes,
    whose modules may have drawn other masks, or hold other buffers. Opacus's distributed sampler skips empty local
    batches, which makes the processes disagree about the number of steps; this one never does.

    With `lengths`, one for each example, a batch comes sorted by them: cut into parts, it needs little padding. Which
    examples are in it stays a matter of their coins alone, and a sum over them has no order.

    `remaining` is part of a checkpoint together with the generator's state. `draws` keeps every batch until its step.
    """

    def __init__(
        self,
        *,
        size: int,
        sample_rate: float,
        steps: int | None,
        generator: torch.Generator | Keystream,
        rank: int = 0,
        processes: int = 1,
        lengths: torch.Tensor | None = None,
        draws: Draws | None = None,
    ) -> None:
        positive_integer(size=size, steps=1 if steps is None else steps, processes=processes)
        rate(sample_rate=sample_rate)
        if not 0 <= rank < processes:
            raise InvalidArgument("rank", rank, f"a number from 0 to {processes - 1}")
        self.size, self.sample_rate = size, sample_rate
        self.generator = generator
        self.rank, self.processes = rank, processes
        if lengths is not None and len(lengths) != size:
            raise InvalidArgument("lengths", len(lengths), f"{size}, one for each example")
        self.lengths = lengths
        self.remaining: int | None = steps
        self.draws = draws or Draws()
        self._is_sealed = True

    def __setattr__(self, name: str, value: Any) -> None:
        if getattr(self, "_is_sealed", False) and name in (
            "size",
            "sample_rate",
            "generator",
            "rank",
            "processes",
            "draws",
        ):
            raise InvalidArgument(name, value, "no change after make_private: the plan's account rests on it")
        super().__setattr__(name, value)

    def new(self) -> Iterator[list[int]]:
        while self.remaining is None or self.remaining > 0:
            batch, processes = self._next()
            whole = _digest(batch, processes) if self.processes > 1 else ""
            batch = batch[processes == self.rank]
            if self.lengths is not None:
                batch = batch[self.lengths[batch].argsort(stable=True)]
            self.forfeit(1)
            share = Share(batch.tolist())
            share.whole = whole
            yield share

    def forfeit(self, steps: int) -> None:
        """Have so many steps less to draw batches for."""
        if self.remaining is not None:
            self.remaining -= steps

    def _next(self) -> tuple[torch.Tensor, torch.Tensor]:
        """The examples of a batch, and the process that each belongs to."""
        return self._joining(torch.arange(self.size))

    def _joining(self, examples: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """A coin for each example; from a keystream with probability floor(2^64 q)/2^64, at most q.

        The last digits of a coin that has fallen on the right side are free, and say which process.
        """
        if isinstance(self.generator, Keystream):
            below = int(math.ldexp(self.sample_rate, 64))
            coins = self.generator.words(len(examples))
            joins = coins <= np.uint64(below - 1) if below else np.zeros(len(examples), dtype=bool)
            shares = (coins[joins] % np.uint64(self.processes)).astype(np.int64)
            return examples[torch.from_numpy(joins)], torch.from_numpy(shares)
        # Doubles, multiples of 2^-53: a single has too few values to hit a small rate exactly.
        uniform = torch.rand(len(examples), generator=self.generator, dtype=torch.float64)
        joining = uniform < self.sample_rate
        return examples[joining], (uniform[joining] * 2**53).long() % self.processes


def _digest(*parts: torch.Tensor) -> str:
    return hashlib.sha256(b"".join(part.numpy().tobytes() for part in parts)).hexdigest()


class CyclicSampler(PoissonSampler):
    """Step t draws from group t mod `groups` alone, example i being in group i mod `groups`."""

    def __init__(self, *, groups: int, steps: int, **kwargs: Any) -> None:
        super().__init__(steps=steps, **kwargs)
        positive_integer(groups=groups)
        self.groups, self.steps = groups, steps

    @property
    def given(self) -> int:
        """How many batches were drawn so far."""
        return self.steps - (self.remaining or 0)

    def _next(self) -> tuple[torch.Tensor, torch.Tensor]:
        return self._joining(torch.arange(self.given % self.groups, self.size, self.groups))


class CollateEmpty:
    """A collate function that has an answer for a batch of no examples: the first example's, without that one.

    It learns it where it collates its first batch: with workers that is in each of them, and nowhere else.
    """

    def __init__(self, collate: Callable[[list[Any]], Any], dataset: Any, dimension: int = 0) -> None:
        self.collate, self._dataset, self._dimension = collate, dataset, dimension
        self._empty: list[Any] = []  # of one

    def learn(self) -> None:
        """From here on an empty batch has the form of a full one."""
        if not self._empty:
            info = get_worker_info()
            dataset = self._dataset if info is None else info.dataset
            with generators_aside(torch.device("cpu")), own_generators_aside(dataset, self.collate):
                self._empty.append(no_examples(self.collate(fetched(dataset, [0])), self._dimension))

    def __call__(self, examples: list[Any]) -> Any:
        self.learn()
        if len(examples):
            return self.collate(examples)
        return copy.deepcopy(self._empty[0])  # whoever gets it may change it


def no_examples(batch: Any, dimension: int) -> Any:
    """A collated batch without its examples: the same containers of empty tensors, arrays and lists of texts.

    What has no examples (a number, a text by itself, None) stays as it is.
    """

    def emptied(leaf: Any) -> Any:
        if _are_texts(leaf):
            return type(leaf)()
        if isinstance(leaf, (torch.Tensor, np.ndarray)):
            where = (slice(None),) * (dimension if leaf.ndim > dimension else 0)
            return copy.deepcopy(leaf[*where, :0]) if leaf.ndim else leaf
        if leaf is None or isinstance(leaf, (int, float, complex, str, bytes, np.generic)):
            return leaf
        raise InvalidArgument(
            "data_loader", type(leaf).__name__, "batches of tensors, arrays, numbers and texts, in lists and dicts"
        )

    return map_leaves(batch, emptied, until=_are_texts)


def _are_texts(value: Any) -> bool:
    """Whether it has a text for each example, such as a file name."""
    return type(value) in (list, tuple) and len(value) > 0 and all(isinstance(text, (str, bytes)) for text in value)


def size_of(loader: DataLoader[Any]) -> int:
    """The number of examples."""
    if isinstance(loader, DPDataLoader):
        raise InvalidArgument(
            "data_loader",
            type(loader).__name__,
            "the DataLoader that it was made from: the engine draws Poisson batches by itself, at the rate of that one",
        )
    try:
        size = len(loader.dataset)  # type: ignore[arg-type]
    except TypeError:
        raise InvalidArgument("data_loader", type(loader.dataset).__name__, "a data set that has a length") from None
    if size == 0:
        raise InvalidArgument("data_loader", "no examples", "a data set with examples")
    return size


def lengths_of(dataset: Any, size: int) -> torch.Tensor | None:
    """The `lengths` of a data set, one for each example; a method of that name is something else."""
    lengths = getattr(dataset, "lengths", None)
    if lengths is None or callable(lengths):
        return None
    try:
        found = torch.as_tensor(lengths)
    except (TypeError, ValueError, RuntimeError):
        raise InvalidArgument("lengths", type(lengths).__name__, f"{size} numbers, one for each example") from None
    return found.cpu()
