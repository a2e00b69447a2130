"""Clipped sums, noise and gradients in shares: the optimizer of a module that `fully_shard` shares out (`sharded`)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel, MixedPrecisionPolicy
from torch.distributed.tensor import DTensor, Partial, Shard

from plrvo.accounting import Clipping
from plrvo.training.clipping.module import direct_owners, recurrent_layers, unsupported_layers
from plrvo.training.sharded import is_sharded
from plrvo.validate import InvalidArgument

_Base: Any = object

_WHOLE = (
    "the whole module in every process, in opacus.distributed.DifferentiallyPrivateDistributedDataParallel "
    "(torch.distributed.optim.ZeroRedundancyOptimizer shares out the optimizer's state)"
)
MODES = ("auto", "bookkeeping", "ghost")


class ShardedMixin(_Base):
    """Goes in front of the noise: `sums` are the shares of the sums of all processes."""

    sums: Any

    def _total(self, p: Any, factor: Tensor, out: Tensor | None) -> Tensor:
        """What this process keeps of a parameter's sum; that of its own examples is whole, and let go at once."""
        total = super()._total(p, factor, out)
        partial = DTensor.from_local(total, p.device_mesh, [Partial()], run_check=False)
        return partial.redistribute(placements=p.placements).to_local().contiguous()

    def _nothing(self, p: Any) -> Tensor:
        return torch.zeros(p.shape, dtype=p.dtype, device=p.device)

    def add_noise(self) -> None:
        """p.grad = share of the clipped sum + its part of the noise; one draw, which all processes make together."""
        self.noise.add_parts_to(self.sums, [_part(p) for p in self.params], self.generator)
        self._hand_out()

    def _hand_out(self) -> None:
        for p, total in zip(self.params, self.sums, strict=True):
            p.grad = DTensor.from_local(
                total, p.device_mesh, p.placements, run_check=False, shape=p.shape, stride=p.stride()
            )

    def _here(self, gradient: Any) -> Any:
        return gradient.to_local()

    def _check_skip_next_step(self, pop_next: bool = True) -> bool:
        if super()._check_skip_next_step(pop_next):
            raise InvalidArgument(
                "BatchMemoryManager",
                "a batch in parts",
                "whole batches with fully_shard: processes whose batches have other numbers of parts would wait for "
                "each other for ever",
            )
        return False


def _part(p: Any) -> tuple[int, int]:
    """Where a share starts in its parameter, and how long that is, number by number."""
    rows = -(-p.shape[0] // p.device_mesh.size())
    first = min(p.device_mesh.get_local_rank() * rows, p.shape[0])
    own, row = p.to_local(), p.numel() // max(1, p.shape[0])
    if own.shape[0] != min(rows, p.shape[0] - first):
        raise InvalidArgument("module", f"a share of {own.shape[0]} of {p.shape[0]} rows", "fully_shard's own shares")
    return first * row, p.numel()


def check_shards(module: nn.Module, mode: str, clipping: str, batch_first: bool) -> None:
    """Refuse what is not shared out by FSDP2 along its first dimension, all of it, among all processes, as it is."""
    for name, m in module.named_modules():
        if isinstance(m, FullyShardedDataParallel):
            raise InvalidArgument("module", f"{name or type(m).__name__} (FSDP)", f"fully_shard (FSDP2), or {_WHOLE}")
        if isinstance(m, FSDPModule):
            policy = getattr(m._get_fsdp_state(), "_mp_policy", None)
            if policy != MixedPrecisionPolicy():
                raise InvalidArgument(
                    "module", f"{name or type(m).__name__} with {policy}", "no mp_policy (torch.autocast is taken)"
                )
    if not is_sharded(module) and not any(isinstance(p, DTensor) for p in module.parameters()):
        return
    processes = torch.distributed.get_world_size()
    for name, p in module.named_parameters():
        mesh = p.device_mesh if isinstance(p, DTensor) else None
        if mesh is None or p.placements != (Shard(0),) or mesh.size() != processes or p.device.type != mesh.device_type:  # type: ignore[attr-defined]
            raise InvalidArgument(
                "module",
                f"{name} ({'not shared out' if mesh is None else f'DTensor {p.placements} of {mesh.size()}'})",  # type: ignore[attr-defined]
                "fully_shard(module) on the module itself (and on blocks before it), among all processes, along the "
                f"first dimension, without offloading; or {_WHOLE}",
            )
    if not isinstance(module, FSDPModule):
        raise InvalidArgument("module", type(module).__name__, "fully_shard(module) also for the module itself")
    if mode not in MODES:
        raise InvalidArgument("grad_sample_mode", mode, f"bookkeeping, or auto, with fully_shard; or {_WHOLE}")
    if clipping == Clipping.l1 or not batch_first:
        name, value = ("clipping", clipping) if clipping == Clipping.l1 else ("batch_first", str(batch_first))
        raise InvalidArgument(name, value, f"what book-keeping can do, with fully_shard; or {_WHOLE}")


def check_layers(module: nn.Module, sharded: bool) -> None:
    """Refuse layers of a sharded module without a rule, which would be computed again when weights are elsewhere.

    Weights are whole and plain here.
    """
    if not sharded:
        return
    others = [f"{name} ({type(m).__name__})" for name, m in (*direct_owners(module), *recurrent_layers(module))]
    if found := unsupported_layers(module) + others:
        raise InvalidArgument(
            "module",
            f"{', '.join(found[:3])}{' and others' if len(found) > 3 else ''}",
            f"layers that have a rule for book-keeping, with fully_shard; or freeze them, or {_WHOLE}",
        )
