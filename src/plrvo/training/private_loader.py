"""The loader that `make_private` returns: batches that the engine draws, collated as the caller's loader does."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset, default_collate

from plrvo.noise import Keystream
from plrvo.training.alone import CollateAlone, FetchAlone
from plrvo.training.descendants import not_followed
from plrvo.training.draws import Draws, WorkersLoader
from plrvo.training.ftrl.order import OrderedBatches
from plrvo.training.mechanism import Mechanism
from plrvo.training.randomness import same_in_all_processes
from plrvo.training.sampler import CollateEmpty, PoissonSampler, lengths_of, size_of

AnySampler = PoissonSampler | OrderedBatches
_FOLLOWED = 8  # batches of a pass
_AGAIN = 64  # one in so many later ones, at random
_NO_MORE = object()


def poisson_sampler(
    mechanism: Mechanism,
    loader: DataLoader[Any],
    generator: torch.Generator | Keystream,
    distributed: bool,
    draws: Draws,
) -> PoissonSampler:
    """Coins for every example of the loader's data set, at the mechanism's rate."""
    size = size_of(loader)
    return PoissonSampler(
        size=size,
        sample_rate=mechanism.step.sample_rate,
        steps=mechanism.steps,
        generator=same_in_all_processes(generator) if distributed else generator,
        rank=torch.distributed.get_rank() if distributed else 0,
        processes=torch.distributed.get_world_size() if distributed else 1,
        lengths=lengths_of(loader.dataset, size),
        draws=draws,
    )


class _OwnLoader(DataLoader[Any]):
    """Fetches batches in this process; of tensors in memory by one index for all examples.

    A data set may make them of outputs that a loop has kept. To follow every operation of a transform takes longer than
    the transform, so that the first batches of a pass are followed, and later ones now and then.
    """

    by_index = False

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        batches = self._indexed() if self.by_index else super().__iter__()
        for number in itertools.count():
            is_followed = number < _FOLLOWED or not secrets.randbelow(_AGAIN)
            with nullcontext() if is_followed else not_followed():
                batch = next(batches, _NO_MORE)
            if batch is _NO_MORE:
                return
            yield batch

    def _indexed(self) -> Iterator[Any]:
        dataset: Any = self.dataset
        sampler: Any = self.batch_sampler
        for indices in sampler:
            yield [t[indices] for t in dataset.tensors] if indices else self.collate_fn([])


def _is_by_index(loader: DataLoader[Any]) -> bool:
    """Whether rows of tensors are what the loader would make of single examples."""
    dataset: Any = loader.dataset
    rows = type(dataset) is TensorDataset and "__getitem__" not in vars(dataset)
    plain = rows and all(type(t) is Tensor and t.layout == torch.strided for t in dataset.tensors)
    return plain and loader.collate_fn is default_collate and not loader.pin_memory


def private_loader(
    loader: DataLoader[Any], sampler: AnySampler, batch_first: bool, *, alone: bool = False, seeded: bool = False
) -> DataLoader[Any]:
    """The caller's loader with another sampler, which has an answer for a batch of no examples."""
    with_empty = CollateEmpty(loader.collate_fn, loader.dataset, dimension=0 if batch_first else 1)
    collate = CollateAlone(loader.collate_fn, seeded) if alone else with_empty
    dataset: Any = FetchAlone(loader.dataset, seeded) if alone else loader.dataset
    if not loader.num_workers:
        if not alone:
            with_empty.learn()
        own = _OwnLoader(
            dataset,
            batch_sampler=sampler,
            collate_fn=collate,
            pin_memory=loader.pin_memory,
            # A loader draws a seed for its workers; where it has none, not from the stream that dropout draws
            # from: a resumed run starts its loader once more, and must repeat its steps all the same.
            generator=torch.Generator(),
        )
        own.by_index = not alone and _is_by_index(loader)
        return own
    return WorkersLoader(
        dataset,
        batch_sampler=sampler,
        collate_fn=collate,
        num_workers=loader.num_workers,
        generator=loader.generator,
        pin_memory=loader.pin_memory,
        worker_init_fn=loader.worker_init_fn,
        persistent_workers=loader.persistent_workers,
        multiprocessing_context=loader.multiprocessing_context,
    )
