"""The plan of a private trainer that is told a budget: batch, epochs and clip are those of its `TrainingArguments`.

A batch has as many examples, on average, as a Trainer's would: those of a process, times processes, times the passes
that are accumulated. What goes through the model at once stays `per_device_train_batch_size`.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from plrvo.accounting import Clipping, Plan, Workload
from plrvo.noise import Noise
from plrvo.training.given import read_plan
from plrvo.training.opacus_arguments import shape_of
from plrvo.training.unwrap import trained_parameters
from plrvo.validate import InvalidArgument, positive, positive_integer, refuse_beside


@dataclass(frozen=True)
class Target:
    """What a plan is made for: an epsilon at a delta, by default 1/(2N), with noise of a shape, by default Gaussian."""

    target_epsilon: float | None = None
    target_delta: float | None = None
    noise: Noise | str | None = None

    def plan(self, model: nn.Module, args: Any, examples: Any, clipping: str | None) -> Plan:
        """For the batches, the epochs (or steps) and the clip of these arguments."""
        if self.target_epsilon is None:
            raise InvalidArgument(
                "target_epsilon", None, "the epsilon that training may cost, such as 3; or `plan`, or the file of one"
            )
        if examples is None:
            raise InvalidArgument("train_dataset", None, "the examples: how many there are says how often one is drawn")
        at_once, passes = args.per_device_train_batch_size, args.gradient_accumulation_steps
        positive_integer(per_device_train_batch_size=at_once, gradient_accumulation_steps=passes)
        positive(max_grad_norm=args.max_grad_norm)
        rate = min(1.0, at_once * args.world_size * passes / len(examples))
        steps = args.max_steps if args.max_steps > 0 else math.ceil(args.num_train_epochs / rate - 1e-9)
        work = Workload(rate, steps, float(args.max_grad_norm), trained_parameters(model))
        delta = 1 / (2 * len(examples)) if self.target_delta is None else self.target_delta
        shape = shape_of(self.noise, work.clip)
        return Plan.fitted(shape, work, delta, self.target_epsilon, clipping=clipping or Clipping.flat)


def planned(
    plan: Plan | Path | str | None, target: Target, model: nn.Module, args: Any, examples: Any, clipping: str | None
) -> tuple[Plan, Any]:
    """The plan that is given, or the target's; and the arguments, without accumulation where it is in the batch."""
    found = read_plan(plan)
    if found is not None:
        refuse_beside("`plan`, which brings its own", vars(target))
        return found, args
    made, args = target.plan(model, args, examples, clipping), copy.copy(args)
    args.gradient_accumulation_steps = 1
    return made, args
