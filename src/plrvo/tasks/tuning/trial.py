"""One trial: a private run with settings that were drawn for it, and a noisy score. Nothing of it is shown."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from torch import nn

from plrvo.accounting import Plan
from plrvo.noise import GridNoise, Keystream, noise_from_dict
from plrvo.tasks.job import Job
from plrvo.tasks.tuning.held_out import Split
from plrvo.tasks.tuning.space import CHARGED
from plrvo.tasks.tuning.state import Done, State
from plrvo.tasks.tuning.tuning import Tuning
from plrvo.training.loop import Metrics
from plrvo.validate import InvalidArgument

_OF_THE_PLAN = ("epsilon", "delta", *CHARGED)


def trial_job(tuning: Tuning, settings: dict[str, Any], plan: Plan, seed: int | None) -> Job:
    """The job of a trial: the plan has its noise, clip, rate and steps."""
    learning = {name: value for name, value in settings.items() if name not in CHARGED}
    left_out: dict[str, Any] = dict.fromkeys((*_OF_THE_PLAN, "noise", "budget"))
    once = plan.workload.steps  # a trial that is interrupted begins anew
    job = replace(tuning.job, **left_out, noise_options={}, plan=plan, seed=seed, checkpoint_every=once)
    return replace(job, **learning)


def run_trial(out: str, number: int, kept: dict[tuple[Any, ...], Any] | None = None) -> int:
    """Train, score and write down that it is done; a trial that diverges is done too, and loses."""
    state = State.read(Path(out))
    tuning, drawn = state.tuning, state.document["trials"][number]
    seed = drawn["seed"]
    plan = Plan.from_dict(state.document["plans"][drawn["plan"]])
    job = trial_job(tuning, drawn["settings"], plan, seed)
    resolved = job.resolve(state.begin_trial(number), kept=kept)
    split = Split.of(resolved.task, tuning.held_out, Keystream(bytes.fromhex(state.document["coins"])))
    noise = noise_from_dict(state.document["score_noise"])
    keystream = Keystream() if seed is None else Keystream.from_seed(seed, "score")
    found: list[int] = []

    def score(module: nn.Module, folder: Path) -> Metrics:
        """After the last step, of the weights that would be released; what tests say has no part in it."""
        if noise.before_rounding is noise:
            raise InvalidArgument("resume", out, "a search with noise on its scores")
        found.append(split.noisy_right(module, cast("GridNoise", noise), keystream))
        return {} if resolved.task.finish is None else resolved.task.finish(module, folder)

    task = replace(split.training, finish=score)
    tag = int(keystream.words(1)[0])
    try:
        replace(resolved, task=task).train()
    except InvalidArgument as error:
        if error.argument != "lr":  # how the loop says that training diverges
            raise
        state.finish_trial(Done(number, True, 0, tag))
        return number
    state.finish_trial(Done(number, False, found[0], tag))
    return number
