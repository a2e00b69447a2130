"""The user's own module under the wrappers of Opacus and of distributed training, and what of it is trained."""

from __future__ import annotations

from opacus.distributed import DifferentiallyPrivateDistributedDataParallel
from opacus.grad_sample import AbstractGradSampleModule
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def unwrapped(module: nn.Module) -> nn.Module:
    """The module that the user wrote."""
    while isinstance(
        module, (AbstractGradSampleModule, DistributedDataParallel, DifferentiallyPrivateDistributedDataParallel)
    ):
        module = module._module if isinstance(module, AbstractGradSampleModule) else module.module
    return module


def trained_parameters(module: nn.Module) -> int:
    """The number of parameters that are trained."""
    return sum(p.numel() for p in module.parameters() if p.requires_grad)
