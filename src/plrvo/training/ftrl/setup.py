"""What the engine and the checkpoint ask of this folder."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils.data import BatchSampler, DataLoader

from plrvo.accounting import Plan
from plrvo.accounting.correlated import CyclicPoisson
from plrvo.noise import Keystream
from plrvo.records.visits import OwnOrder
from plrvo.training.draws import Draws
from plrvo.training.ftrl.order import OrderedBatches
from plrvo.training.sampler import CyclicSampler, lengths_of, size_of
from plrvo.validate import InvalidArgument


def refuse_what_is_not_covered(plan: Plan | None, loader: DataLoader[Any], distributed: bool) -> None:
    """Correlated noise is for one process, which takes its steps one by one."""
    if plan is None or plan.correlation is None:
        return
    if distributed:
        raise InvalidArgument("module", "distributed", "one process: correlated noise does not run in several yet")
    if loader.num_workers:
        raise InvalidArgument(
            "data_loader", f"num_workers={loader.num_workers}", "num_workers=0: workers run ahead of the steps"
        )


def batches(
    plan: Plan,
    loader: DataLoader[Any],
    generator: torch.Generator | Keystream,
    draws: Draws,
) -> OrderedBatches | CyclicSampler:
    """The caller's own batch sampler, checked; or an order drawn from the generator where there is none; or coins."""
    if plan.correlation is None:
        raise InvalidArgument("plan", "without correlation", "a plan with a correlation")
    steps, given = plan.workload.steps, loader.batch_sampler
    size = size_of(loader)
    lengths = lengths_of(loader.dataset, size)
    cyclic = plan.correlation.participation
    if isinstance(cyclic, CyclicPoisson):
        if cyclic.groups > size:
            raise InvalidArgument("groups", cyclic.groups, f"at most {size}, the number of examples")
        return CyclicSampler(
            size=size,
            sample_rate=cyclic.sample_rate,
            groups=cyclic.groups,
            steps=steps,
            generator=generator,
            lengths=lengths,
            draws=draws,
        )
    participation = plan.correlation.order
    if given is not None and not isinstance(given, BatchSampler):
        return OrderedBatches(given, size, participation, steps, lengths, draws)
    order = OwnOrder(size, participation, steps, _integer(generator))
    return OrderedBatches(order, size, participation, steps, lengths, draws)


def noise_key(generator: torch.Generator | Keystream) -> int:
    """The 256 bits that all noise of a run is a function of."""
    return _integer(generator, 256)


def _integer(generator: torch.Generator | Keystream, bits: int = 128) -> int:
    if isinstance(generator, Keystream):
        return int.from_bytes(generator.words(bits // 64).tobytes(), "little")
    words = torch.randint(0, 1 << 32, (bits // 32,), generator=generator, dtype=torch.int64).tolist()
    return sum(word << 32 * i for i, word in enumerate(words))


def handed_out(sampler: Any) -> Callable[[], int]:
    """How many batches a sampler has given so far."""
    if isinstance(sampler, CyclicSampler):
        return lambda: sampler.given
    return lambda: int(sampler.visits.steps)


def save_state(sampler: Any, optimizer: Any, tensors: dict[str, torch.Tensor]) -> dict[str, Any] | None:
    """What a checkpoint keeps: the key and the digest of the order; arrays only where a stream holds private sums."""
    if not isinstance(sampler, (OrderedBatches, CyclicSampler)):
        return None
    if optimizer.keeps_private_sums and sampler.remaining:  # sums without noise, which no finished run keeps
        tensors.update({f"stream.{i:04}": array for i, array in enumerate(optimizer.noise_stream.state())})
    # A finished run needs no noise, and its file may get about.
    state: dict[str, Any] = {"key": str(optimizer.noise_key if sampler.remaining else 0)}
    if isinstance(sampler, CyclicSampler):
        return state
    seed = str(sampler.order.seed) if isinstance(sampler.order, OwnOrder) else None
    return {**state, "seed": seed, "digest": sampler.visits.to_dict()["digest"]}


def load_state(
    state: dict[str, Any] | None, steps: int, sampler: Any, optimizer: Any, tensors: dict[str, torch.Tensor]
) -> None:
    """Bring a freshly prepared run to the step of the checkpoint."""
    if state is None:
        return
    if isinstance(sampler, OrderedBatches):
        if isinstance(sampler.order, OwnOrder):
            sampler.order = OwnOrder(sampler.size, sampler.participation, sampler.steps, int(state["seed"]))
        sampler.return_to(steps, state["digest"])
    optimizer.start_stream(int(state["key"]))
    if optimizer.keeps_private_sums and sampler.remaining:
        arrays = [tensors[name].clone() for name in sorted(tensors) if name.startswith("stream.")]
        optimizer.noise_stream.restore(arrays, steps)
    else:
        optimizer.noise_stream.skip(steps)
