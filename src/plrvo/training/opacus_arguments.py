"""What Opacus's arguments mean here. What they cannot mean is refused in a line that says what to write instead."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn
from torch.distributed.tensor import DTensor
from torch.utils.data import DataLoader

from plrvo.accounting import Clipping, Workload
from plrvo.noise import Gaussian, Noise, Specification
from plrvo.noise.specification import DESCRIBED
from plrvo.training.accountant import CertifiedAccountant
from plrvo.training.mechanism import Mechanism
from plrvo.validate import InvalidArgument, nearest, positive

_ALIKE = 1e-6  # relative, of clips by layer that are meant to be equal


def check_engine(accountant: str, secure_mode: bool) -> None:
    """Arguments of the engine."""
    if accountant != CertifiedAccountant.mechanism():
        raise InvalidArgument(
            "accountant", accountant, "no accountant: the engine's own certifies every noise; leave the argument out"
        )
    if secure_mode:
        raise InvalidArgument(
            "secure_mode",
            True,
            "False: Opacus's secure mode covers Gaussian noise only; exact=True covers others, and noise comes from "
            "a cipher in any case",
        )


def check_making(poisson_sampling: bool, rand_on_empty: bool, others: Mapping[str, Any]) -> None:
    """Arguments of `make_private` that have one value here, and those that nothing has."""
    if not poisson_sampling:
        raise InvalidArgument(
            "poisson_sampling",
            False,
            "True: no account here holds for shuffled batches; data in an order of its own has the correlated noise "
            "of a plan (docs: correlated noise)",
        )
    if rand_on_empty:
        raise InvalidArgument(
            "rand_on_empty", True, "False: an empty batch takes its step, and made-up examples would be one too many"
        )
    for name, value in others.items():
        raise InvalidArgument(name, value, "no such argument for this clipping (docs: coming from Opacus has them all)")


def refuse_beside_a_plan(**arguments: Any) -> None:
    """What a plan has said already."""
    for name, value in arguments.items():
        if value is not None:
            raise InvalidArgument(
                name, value, "no value beside a plan, which has it; or PrivacyEngine() without a plan"
            )


def counted(
    loader: DataLoader[Any],
    module: nn.Module,
    dimension: int,
    noise_multiplier: float | None,
    max_grad_norm: float | Sequence[float] | None,
    noise: Noise | str | None,
    clipping: str,
    exact: bool,
    grid: float | None,
) -> Mechanism:
    """The mechanism that they describe, whose steps are counted."""
    if max_grad_norm is None and noise_multiplier is None and not isinstance(noise, Noise):
        raise InvalidArgument(
            "noise_multiplier and max_grad_norm",
            None,
            "both: the standard deviation of the noise in clips, and the clip, such as noise_multiplier=1.1, "
            "max_grad_norm=1.0; or PrivacyEngine(plan), or make_private_with_epsilon",
        )
    clip = clip_of(max_grad_norm, clipping, module)
    wanted = noise_of(noise, noise_multiplier, clip)
    step = Workload(rate_of(loader), 1, clip, dimension)
    return Mechanism.counted(wanted, step, Clipping.named(clipping), exact, grid)


def rate_of(loader: DataLoader[Any]) -> float:
    """One over the number of the loader's batches."""
    batches = len(loader)
    if batches == 0:
        raise InvalidArgument("data_loader", "no batches", "a batch size of at most the number of examples")
    return 1 / batches


def divisor_of(loader: DataLoader[Any]) -> int:
    """What Opacus divides sums by, so that learning rates stay what they were."""
    return max(1, int(len(loader.dataset) * rate_of(loader)))  # type: ignore[arg-type]


def clip_of(max_grad_norm: float | Sequence[float] | None, clipping: str, module: nn.Module) -> float:
    """The norm that no example's gradient exceeds; clips by layer are those of equal shares."""
    if max_grad_norm is None:
        raise InvalidArgument("max_grad_norm", None, "the norm that each example's gradient is clipped to")
    if not isinstance(max_grad_norm, Sequence):
        return max_grad_norm
    if clipping != "per_layer":
        raise InvalidArgument("max_grad_norm", max_grad_norm, 'one number; a list goes with clipping="per_layer"')
    trained = sum(p.requires_grad for p in module.parameters())
    if len(max_grad_norm) != trained:
        raise InvalidArgument(
            "max_grad_norm", list(max_grad_norm), f"{trained} clips, one for each trainable parameter; or one number"
        )
    for clip in max_grad_norm:
        positive(max_grad_norm=clip)
    if max(max_grad_norm) > min(max_grad_norm) * (1 + _ALIKE):
        raise InvalidArgument(
            "max_grad_norm", list(max_grad_norm), "equal clips for all parameters, or their total norm as one number"
        )
    return math.hypot(*max_grad_norm)


def noise_of(noise: Noise | str | None, noise_multiplier: float | None, clip: float) -> Noise:
    """Gaussian noise of that multiplier; another noise in its place, or another kind as wide as it.

    A kind is as wide if it has the same standard deviation.
    """
    if isinstance(noise, Noise):
        if noise_multiplier is not None:
            raise InvalidArgument(
                "noise_multiplier", noise_multiplier, "none beside a noise, which has its width; or the noise's name"
            )
        return noise
    if noise_multiplier is None:
        raise InvalidArgument(
            "noise_multiplier", None, "the standard deviation of the noise in clips; or a noise; or PrivacyEngine(plan)"
        )
    positive(noise_multiplier=noise_multiplier, max_grad_norm=clip)
    gaussian = Gaussian(noise_multiplier * clip)
    if noise is None:
        return gaussian
    shape = shape_of(noise, clip)
    if not math.isfinite(shape.variance):
        raise InvalidArgument("noise", noise, "a noise with its parameters: this kind has no standard deviation")
    return shape.scaled(math.sqrt(gaussian.variance / shape.variance))


def shape_of(noise: Noise | str | None, clip: float) -> Noise:
    """A noise whose width a budget will find; Gaussian unless told."""
    if isinstance(noise, Noise):
        return noise
    if noise is not None and not isinstance(noise, str):
        raise InvalidArgument("noise", noise, "a noise, such as plrvo.Laplace(1.0), or the name of one")
    if noise is not None and noise not in DESCRIBED:
        guess = nearest(noise, DESCRIBED)
        more = f"; did you mean {guess}?" if guess else ""
        known = ", ".join(DESCRIBED)
        raise InvalidArgument("noise", noise, f"one of {known}, or a noise such as plrvo.Laplace(1.0){more}")
    return Specification(noise or Gaussian.kind).shape(clip)


def kept_dict(extra: Any, checkpoint_dict: Any) -> Any:
    """What is kept beside a checkpoint, by either name."""
    if extra is not None and checkpoint_dict is not None:
        raise InvalidArgument("checkpoint_dict", checkpoint_dict, "none beside `extra`, which is the same")
    return extra if checkpoint_dict is None else checkpoint_dict


def check_checkpoint(optimizer: Any, schedulers: Mapping[str, Any], options: Mapping[str, Any]) -> None:
    """Arguments of checkpoints."""
    if optimizer is None:
        raise InvalidArgument("optimizer", None, "the private optimizer: its noise and its steps are part of the run")
    kinds = type(getattr(optimizer, "original_optimizer", optimizer)).__mro__
    if any(kind.__name__ == "ZeroRedundancyOptimizer" for kind in kinds):
        raise InvalidArgument(
            "optimizer", kinds[0].__name__, "one whose state is whole in every process: this one's is in several"
        )
    if any(isinstance(p, DTensor) for group in optimizer.param_groups for p in group["params"]):
        raise InvalidArgument(
            "module", "shared out by fully_shard", "a module that is whole in every process: no process has all of it"
        )
    for name, value in schedulers.items():
        if value is not None and value not in optimizer.schedules.values():
            raise InvalidArgument(
                name, type(value).__name__, "a schedule of this optimizer (plrvo.training.schedulers), or None"
            )
    for name, value in options.items():
        if value:
            raise InvalidArgument(name, value, "None: a checkpoint is one file of tensors and JSON, never a pickle")
