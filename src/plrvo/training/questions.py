"""What a loader's data set and collate function are asked beside the steps, where it does no harm.

Random generators are put back, as steps would differ from those of a run that asks elsewhere. With workers, the data
set in this process is not touched at all: one that opens its file at the first item would open it here, and workers
that are forked later would share the open file, each moving the others' place in it. A worker of its own is asked, as
others start: it hears `worker_init_fn`, its copy of the data set ends with it, and so does whatever that has drawn.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch.utils.data import DataLoader, get_worker_info

from plrvo.training.descendants import not_followed
from plrvo.training.own_generators import own_generators_aside
from plrvo.training.state import generators_aside

Answer = TypeVar("Answer")


class Failed(Exception):
    """The data set or the collate function has raised an error."""


def ask(loader: Any, question: Callable[[Any, Any], Answer]) -> Answer:
    """The answer of a function of (data set, collate function); with workers it is sent from process to process."""
    with generators_aside(torch.device("cpu")), not_followed():
        if not loader.num_workers:
            with own_generators_aside(loader.dataset, loader.collate_fn):
                return question(loader.dataset, loader.collate_fn)
        worker: DataLoader[Any] = DataLoader(
            loader.dataset,
            batch_sampler=[[0]],
            collate_fn=_InWorker(loader.collate_fn, question),
            num_workers=1,
            worker_init_fn=loader.worker_init_fn,
            multiprocessing_context=loader.multiprocessing_context,
            generator=torch.Generator(),
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of processes and threads: loaders with workers have said so already
            try:
                (answer,) = worker
            except Exception as error:
                raise Failed(f"{type(error).__name__}: {error}") from None
    return answer


class _InWorker:
    """Takes the place of a collate function. A loader has none for no examples: it fetches one, that nobody needs."""

    def __init__(self, collate: Callable[[Any], Any], question: Callable[[Any, Any], Any]) -> None:
        self._collate, self._question = collate, question

    def __call__(self, _: Any) -> Any:
        info: Any = get_worker_info()
        return self._question(info.dataset, self._collate)


def fetched(dataset: Any, indices: list[int]) -> list[Any]:
    """As a loader fetches them."""
    several = getattr(dataset, "__getitems__", None)
    return [dataset[i] for i in indices] if several is None else list(several(indices))
