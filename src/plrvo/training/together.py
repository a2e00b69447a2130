"""What processes that train one model together must agree on: before the first step, and before each one's noise.

Every process draws the same batch of indices and keeps its share of them, and their sums are added up parameter by
parameter. So index i must be the same example everywhere: with data that each process has shuffled for itself, an
example may be in one batch twice, at two clips, and one more example moves others from process to process, in or out
of a batch. No account covers that, nor clips or parameters that differ. A few examples are compared, not all of them.

Later on a schedule may be moved in one process and not in another, or one of them may refuse a step. So each says what
it has entered for a step, and none adds noise unless all have entered the same.
"""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
from opacus.distributed import DifferentiallyPrivateDistributedDataParallel
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

from plrvo.training.kept import tensor_bits
from plrvo.training.questions import ask, fetched
from plrvo.training.sharded import RefusedElsewhere, is_sharded
from plrvo.training.state import seed_all
from plrvo.training.structure import leaves
from plrvo.validate import InvalidArgument

_FEW = 8  # examples that are compared
_SEED = 20  # of what a data set or a collate function draws, the same everywhere


def is_distributed(module: nn.Module) -> bool:
    """Whether it is wrapped for several processes; without that, each of them would be a run of its own."""
    wrappers = (DifferentiallyPrivateDistributedDataParallel, DistributedDataParallel)
    if isinstance(module, wrappers) or is_sharded(module):
        return True
    joined = torch.distributed.is_initialized()
    if (torch.distributed.get_world_size() if joined else int(os.environ.get("WORLD_SIZE") or 1)) > 1:  # torchrun's
        warnings.warn(
            "several processes, and a module that is not wrapped for them: each trains a model of its own and "
            "spends a budget of its own (torch.distributed.init_process_group, and "
            "opacus.distributed.DifferentiallyPrivateDistributedDataParallel or torch.distributed.fsdp.fully_shard)",
            stacklevel=3,
        )
    return False


def check_together(
    module: nn.Module, optimizer: torch.optim.Optimizer, loader: DataLoader[Any], size: int, **settings: Any
) -> None:
    """Refuse, in every process, what is not the same in all of them."""
    own = {
        "data_loader": f"{size}",
        "module": _digest(_parameters(module, optimizer)),
        **{name: repr(value) for name, value in settings.items()},
    }
    found: list[Any] = [None] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(found, (own, _examples(loader, size)))
    for name in own:
        if len({others.get(name) for others, _ in found}) > 1:
            raise InvalidArgument(name, "not the same in all processes", "one run: the same in every process")
    # Of data that gives another example each time nothing can be said.
    if all(each is not None for _, each in found) and len({each for _, each in found}) > 1:
        raise InvalidArgument(
            "data_loader",
            "other examples in other processes",
            "the whole data set in every process, in the same order (a shuffle needs the same seed everywhere): each "
            "takes its share of a batch by index",
        )


@contextmanager
def agreed(optimizer: Any) -> Iterator[None]:
    """Around the entry of a step in the account: an error in one process, or another entry, is an error in all."""
    error = None
    try:
        yield
    except BaseException as refused:
        error = refused
    noise, clip = optimizer.charged
    own = None
    if error is None:
        whole = getattr(optimizer.draws.settled, "whole", "")
        summed = [(*p.shape,) for p in optimizer.params]
        own = (noise.to_dict(), clip, optimizer.steps_taken), whole, summed
    found: list[Any] = [None] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(found, own)
    if error is not None:
        raise error
    if None in found:
        raise RefusedElsewhere("another process has refused this step: see its own error; nothing was released")
    entries, batches, parameters = ([each[i] for each in found] for i in range(3))
    if any(each != entries[0] for each in entries):
        raise InvalidArgument(
            "step", "another noise, clip or number in another process", "schedules that are moved in every process"
        )
    if any(each != batches[0] for each in batches):
        raise InvalidArgument(
            "sample_generator",
            "another batch in another process",
            "one that nothing else draws from, neither the noise nor the loop: processes share out one batch, and an "
            "example of two that differ may be in both, at two clips",
        )
    if any(each != parameters[0] for each in parameters):
        raise InvalidArgument(
            "module", "other trainable parameters in another process", "parameters that are frozen in every process"
        )


def _parameters(module: nn.Module, optimizer: torch.optim.Optimizer) -> Iterable[bytes]:
    """Names and shapes, in the order in which their sums are added up."""
    names = {p: name for name, p in module.named_parameters()}
    owned = [p for group in optimizer.param_groups for p in group["params"]]
    return (f"{names[p]} {tuple(p.shape)} {p.requires_grad}".encode() for p in owned)


def _examples(loader: DataLoader[Any], size: int) -> str | None:
    """A digest of some examples as they are collated; None if they are others when they are fetched again."""
    return ask(loader, partial(_asked_twice, picked=sorted({i * (size - 1) // (_FEW - 1) for i in range(_FEW)})))


def _asked_twice(dataset: Any, collate: Callable[[list[Any]], Any], *, picked: list[int]) -> str | None:
    def once() -> str:
        seed_all(_SEED)
        return _digest(_content(leaf) for i in picked for leaf in leaves(collate(fetched(dataset, [i]))))

    first = once()
    return first if once() == first else None


def _content(leaf: Any) -> bytes:
    """Of numbers and texts; what else may be in a batch has none that processes could compare."""
    if isinstance(leaf, torch.Tensor):
        return f"{tuple(leaf.shape)} {leaf.dtype} {tensor_bits(leaf)!r}".encode()
    if isinstance(leaf, (np.ndarray, np.generic)):
        return f"{leaf.shape} {leaf.dtype} {leaf.tolist()}".encode()
    return repr(leaf).encode() if leaf is None or isinstance(leaf, (int, float, complex, str, bytes)) else b""


def _digest(parts: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.hexdigest()
