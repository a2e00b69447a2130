"""What `make_private` is given, and cannot make private: refused in one line, before anything is wrapped."""

from __future__ import annotations

import inspect
import os
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from opacus.grad_sample import AbstractGradSampleModule
from opacus.optimizers import DPOptimizer
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, SequentialSampler
from torch.utils.data.distributed import DistributedSampler

from plrvo.accounting import Plan
from plrvo.training.clipping.precision import check_matmul_precision
from plrvo.validate import InvalidArgument


def read_plan(plan: Any) -> Plan | None:
    """The plan, or the one in the file of this name."""
    if plan is None or isinstance(plan, Plan):
        return plan
    if not isinstance(plan, str | os.PathLike):
        raise InvalidArgument("plan", plan, "a Plan or the file of one (`Plan.fitted` makes one for a noise)")
    return Plan.load(Path(plan))


def told_budget(plan: Plan | None) -> str:
    """What all steps of a plan may cost."""
    return "" if plan is None or plan.epsilon is None else f", for epsilon {plan.epsilon:g} at delta {plan.delta:g}"


def plan_for(plan: Plan, dimension: int) -> Plan:
    """The plan; one of Gaussian noise, which costs the same in any number of coordinates, for as many as there are."""
    if plan.noise.gaussian_sigma is None or plan.covers(dimension):
        return plan
    return replace(plan, workload=replace(plan.workload, dimension=dimension))


def warn_of_delta(delta: float, size: int) -> None:
    """Say so where the guarantee would allow to publish an example at random."""
    if delta >= 1 / size:
        warnings.warn(
            f"delta {delta:g} is not below 1/N = {1 / size:.3g}: publishing an example picked at random would keep "
            "such a guarantee; take a delta well below it",
            stacklevel=3,
        )


def without_compile(module: nn.Module) -> nn.Module:
    """The module that torch.compile was given, to be called as it was written: compiled code leaves out its hooks."""
    eager: nn.Module = getattr(module, "_orig_mod", module)
    compiled = eager is not module
    for m in eager.modules():
        if getattr(m, "_compiled_call_impl", None) is not None:  # module.compile()
            m._compiled_call_impl = None
            compiled = True
    if compiled:
        warnings.warn(
            "module: torch.compile is put aside: compiled code has no place for hooks that see gradients by example. "
            "Steps and evaluation run without it (cleanup() removes the hooks; compile the module again after it)",
            stacklevel=3,
        )
    return eager


def refuse_wrapped(module: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Opacus's wrappers, and those that `make_private` has returned: it wraps by itself."""
    for name, m in module.named_modules():
        if isinstance(m, AbstractGradSampleModule):
            plain = ".".join(filter(None, ("module", name, "_module")))
            raise InvalidArgument(
                "module",
                type(m).__name__,
                f"the plain module, {plain}, and the plain optimizer: make_private puts its own wrappers around both",
            )
    if isinstance(optimizer, DPOptimizer):
        raise InvalidArgument(
            "optimizer",
            type(optimizer).__name__,
            "the plain optimizer, optimizer.original_optimizer, and the plain module: make_private puts its own "
            "wrappers around both",
        )


def check_module(module: nn.Module) -> None:
    """One module that computes outputs by its own layers, in enough bits."""
    for name, m in module.named_modules():
        if hasattr(m, "_orig_mod"):
            raise InvalidArgument(
                "module",
                f"{name} (compiled)",
                "the whole module in torch.compile, or none of its parts: that is put aside, and a part of it has "
                "another name",
            )
    if "forward" not in vars(module) and type(module).forward is nn.Module.forward:
        raise InvalidArgument(
            "module", type(module).__name__, "a module with a forward of its own, which is called with the whole batch"
        )
    _check_precision(module)


def _check_precision(module: nn.Module) -> None:
    """Clipping in fewer bits moves the sum by more than the clip."""
    for name, p in module.named_parameters():
        if p.requires_grad and p.dtype not in (torch.float32, torch.float64):
            raise InvalidArgument(
                "module",
                f"{name} in {str(p.dtype).removeprefix('torch.')}",
                "parameters in float32",
            )
    check_matmul_precision()


def check_optimizer(optimizer: torch.optim.Optimizer, module: nn.Module) -> None:
    """One that steps once for each gradient, and has the parameters that train, and no others."""
    kind = type(optimizer).__name__
    if not hasattr(optimizer, "_optimizer_step_pre_hooks"):  # a step of the one within would have no noise
        raise InvalidArgument(
            "optimizer", kind, "an optimizer of torch, and no wrapper of one (no prepare() of accelerate before it)"
        )
    if "closure" in _required(optimizer.step):
        raise InvalidArgument("optimizer", kind, "one that steps without a closure: a step takes one noisy gradient")
    if isinstance(optimizer, torch.optim.SparseAdam):
        raise InvalidArgument("optimizer", kind, "one of dense gradients (Adam): noise is on every row, used or not")
    known = set(module.parameters())
    owned = [p for group in optimizer.param_groups for p in group["params"]]
    if any(p not in known for p in owned):
        raise InvalidArgument("optimizer", kind, "one whose parameters all belong to the module")
    if {p for p in known if p.requires_grad} - set(owned):
        raise InvalidArgument("optimizer", kind, "one that owns every trainable parameter of the module")


def _required(function: Any) -> set[str]:
    return {n for n, p in inspect.signature(function).parameters.items() if p.default is inspect.Parameter.empty}


def check_whole(loader: DataLoader[Any]) -> None:
    """A loader of all its data set: batches are drawn anew, and what its own sampler leaves out would be in them."""
    batches = loader.batch_sampler
    own: Any = loader.sampler if batches is None else batches
    if type(batches) is BatchSampler:
        own = batches.sampler
    if isinstance(own, (SequentialSampler, RandomSampler)) and len(own) == len(loader.dataset):  # type: ignore[arg-type]
        return
    instead = "a part: torch.utils.data.Subset"
    if isinstance(own, DistributedSampler):
        instead = "no sampler: of each batch every process computes its share"
    raise InvalidArgument(
        "data_loader",
        type(own).__name__,
        f"a loader of all its data set, which the engine samples by itself ({instead})",
    )
