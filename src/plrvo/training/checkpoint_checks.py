"""What a checkpoint must say to be continued from, whoever packed it: all of it is checked before anything is loaded.

A digest shows that a file is as it was written, not by whom. A file that was packed again, with a digest that fits, can
hold anything; it must not end in a traceback, and it must not give a run more steps than its budget, nor a cheaper
account of those that were taken.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn

from plrvo.accounting.bracket import AnyLedger
from plrvo.accounting.correlated import read_ledger
from plrvo.noise import Keystream, Noise
from plrvo.records.compared import is_count, is_finite, same
from plrvo.training.mechanism import Mechanism
from plrvo.training.sampler import PoissonSampler
from plrvo.validate import counted, shortened

_KEYS = {"format", "plan", "ledger", "steps_taken", "remaining", "optimizer", "extra"}
_HOW = {"foreach", "fused"}  # how torch computes a step; the file's hold, so that a run goes on as it began
_MOST_EPOCHS = 1_000_000  # of a schedule, all of which are gone through


class Contradiction(ValueError):
    """What is wrong with a checkpoint, in words for the one who resumes."""


def check_record(record: dict[str, Any], mechanism: Mechanism, optimizer: Any, epoch: int | None) -> None:
    """Counts and ledger: those of a run of this mechanism, and no more steps left than its budget has."""
    missing = _KEYS - record.keys()
    if missing:
        raise Contradiction(f"it has no {min(missing)}")
    taken, remaining = record["steps_taken"], record["remaining"]
    if not is_count(taken) or (remaining is None) != (mechanism.steps is None) or not is_count(remaining or 0):
        raise Contradiction(f"{shortened(taken)} steps taken, {shortened(remaining)} remaining")
    into = record.get("into_epoch", 0)
    if not is_count(into) or into >= max(1, epoch or 0):
        raise Contradiction(f"{shortened(into)} steps into an epoch of {epoch}")
    if optimizer.most_steps is not None and taken > optimizer.most_steps:
        raise Contradiction(f"it has taken {taken} of {counted(optimizer.most_steps, 'step')}")
    if mechanism.steps is not None and remaining > max(0, mechanism.steps - taken):
        raise Contradiction(f"it has {counted(remaining, 'step')} left after {taken} of {mechanism.steps}")
    _check_schedules(record.get("schedules", {}), optimizer)
    _check_adaptive(record.get("adaptive"), optimizer)
    ledger = read_ledger(record["ledger"])
    if ledger.steps != taken:
        raise Contradiction(f"it has taken {counted(taken, 'step')}; its ledger has {ledger.steps}")
    _check_ledger(ledger, mechanism, optimizer, record.get("schedules", {}))
    correlated = record.get("correlated")
    if (correlated is None) != (mechanism.correlation is None):
        raise Contradiction("only one of the plan and the checkpoint is correlated")
    if correlated is not None:
        _check_correlated(correlated, remaining)


def _check_schedules(states: Any, optimizer: Any) -> None:
    """Those that this run has made, each with a number of steps that it has taken."""
    if not isinstance(states, dict) or states.keys() != optimizer.schedules.keys():
        raise Contradiction("its schedules of noise and clip are not those that were made before it was loaded")
    for name, schedule in optimizer.schedules.items():
        state = states[name]
        epoch = state.get("last_epoch") if isinstance(state, dict) else None
        if (
            epoch is None
            or not is_count(epoch)
            or epoch > _MOST_EPOCHS
            or state != {**schedule.described(), "last_epoch": epoch}
        ):
            raise Contradiction(f"its schedule of the {name} is {shortened(state)}")


def _check_adaptive(state: Any, optimizer: Any) -> None:
    """The settings of this run, and a clip that they allow."""
    own = optimizer.adapted
    if own is None or not isinstance(state, dict):
        if (own is None) != (state is None):
            raise Contradiction("only one of the run and the checkpoint has adaptive clipping")
        return
    clip, first = state.get("clip"), optimizer.first[1]
    if state != {**own, "clip": clip} or not is_finite(clip):
        raise Contradiction(f"its adaptive clipping is {shortened(state)}")
    if not own["min_clipbound"] <= clip <= own["max_clipbound"] and clip != first:
        raise Contradiction(f"its clip is {clip}, beyond its bounds")


def _check_ledger(ledger: AnyLedger, mechanism: Mechanism, optimizer: Any, schedules: dict[str, Any]) -> None:
    if ledger.correlation is not None or mechanism.correlation is not None:
        if ledger != mechanism.ledger(ledger.steps):
            raise Contradiction("its ledger is of another plan")
        return
    possible = _possible(optimizer, schedules) if schedules else None
    for noise, work in ledger.entries:
        if work.sample_rate != mechanism.step.sample_rate or (possible is None and noise != mechanism.noise):
            raise Contradiction("its ledger has another noise or sampling rate than the plan")
        if possible is not None and noise not in possible.get(work.clip, ()):
            raise Contradiction("its ledger has a noise or a clip that the schedule did not have")
        if (possible is None and not same(work.clip, mechanism.step.clip)) or work.dimension != optimizer.dimension:
            raise Contradiction(f"its ledger has clip {work.clip} and dimension {work.dimension}, and the run others")


def _possible(optimizer: Any, schedules: dict[str, Any]) -> dict[float, set[Noise]]:
    """The noises that may be in the ledger beside each clip: those of all steps that the schedules have taken.

    How many steps were taken with each of them is in the file alone: one that was packed again may have moved some.
    """
    factors = {name: [1.0] for name in ("noise", "clip")}
    for name, state in schedules.items():
        schedule = optimizer.schedules[name]
        factors[name] = [1.0, *(schedule.checked_factor(epoch) for epoch in range(state["last_epoch"] + 1))]
    found: dict[float, set[Noise]] = {}
    for clip in set(factors["clip"]):
        for noise in set(factors["noise"]):
            law, length = optimizer.rescaled(noise, clip)
            found.setdefault(length, set()).add(law)
    return found


def _check_correlated(state: dict[str, Any], remaining: int) -> None:
    key = int(state["key"])
    if not isinstance(state["key"], str) or not 0 <= key < 1 << 256 or (key == 0 and remaining):
        raise Contradiction("it has no key for the noise of the steps that are left")
    if "digest" in state and not (isinstance(state["digest"], str) and len(state["digest"]) == 64):
        raise Contradiction("it has no digest of the batches so far")


def check_weights(state: dict[str, torch.Tensor], module: nn.Module) -> None:
    """The names, shapes and types of this module."""
    own = module.state_dict()
    for name in own.keys() | state.keys():
        if name not in state or name not in own:
            raise Contradiction(f"weights for {name} are in only one of the two")
        if own[name].shape != state[name].shape or own[name].dtype != state[name].dtype:
            form, due = (f"{tuple(t.shape)} of {t.dtype}" for t in (state[name], own[name]))
            raise Contradiction(f"weights for {name} of shape {form}; the model has {due}")


def check_streams(tensors: dict[str, torch.Tensor], remaining: int | None, sampler: Any, optimizer: Any) -> None:
    """States of the generators that this run has, wherever steps are left."""
    due: dict[str, Any] = {"generator.global": None}
    if remaining != 0:
        due["generator.noise"] = optimizer.generator
        if isinstance(sampler, PoissonSampler):
            due["generator.sample"] = sampler.generator
    for name, generator in due.items():
        if name not in tensors:
            raise Contradiction(f"it has no {name}, and {'all' if remaining is None else remaining} steps left")
        like = torch.zeros(1, dtype=torch.int64)
        if not isinstance(generator, Keystream):
            like = torch.get_rng_state() if generator is None else generator.get_state()
        if tensors[name].shape != like.shape or tensors[name].dtype != like.dtype:
            raise Contradiction(f"{name} has the shape {tuple(tensors[name].shape)} of {tensors[name].dtype}")


def check_optimizer(state: Any, optimizer: Any) -> None:
    """Groups with the settings of this optimizer, and for each parameter numbers that a step can be taken with."""
    own = optimizer.state_dict()
    if not isinstance(state, dict) or state.keys() != own.keys():
        raise Contradiction("its optimizer is another one")
    groups = list(zip(state["param_groups"], own["param_groups"], strict=True))
    for saved, group in groups:
        # A schedule keeps numbers of its own beside the settings, and may be made after the checkpoint is loaded.
        foreign = [name for name in saved.keys() ^ group.keys() if not is_finite({**saved, **group}[name])]
        if foreign or saved.get("params") != group["params"]:
            raise Contradiction("its optimizer has other groups of parameters")
        for name, value in group.items():
            if name in _HOW and isinstance(saved.get(name), bool | None):
                continue
            if name in saved and not _alike(saved[name], value):
                raise Contradiction(f"its optimizer has {name} {shortened(saved[name])}")
    parameters = sum(len(group["params"]) for group in optimizer.param_groups)
    for index, kept in state["state"].items():
        if not is_count(index) or index >= parameters:
            raise Contradiction(f"its optimizer has a parameter {shortened(index)}")
        if not isinstance(kept, dict):
            raise Contradiction(f"its optimizer keeps {shortened(kept)} for parameter {index}")
    original = getattr(optimizer, "original_optimizer", optimizer)
    if not _can_step(original, state) and _can_step(original, None):
        raise Contradiction("its optimizer can take no step with what it keeps for its parameters")


def _can_step(optimizer: torch.optim.Optimizer, state: Any) -> bool:
    """Whether a copy takes a step with this state, of gradients that are zero: what it keeps is its own affair."""
    try:
        copied = copy.deepcopy(optimizer)
        if state is not None:
            copied.load_state_dict(copy.deepcopy(state))  # the step writes into the tensors that it is given
        for group in copied.param_groups:
            for p in group["params"]:
                p.grad = torch.zeros_like(p)
        with torch.random.fork_rng():
            copied.step()
    except Exception:
        return False
    return True


def _alike(saved: Any, own: Any) -> bool:
    if isinstance(own, list | tuple):
        return isinstance(saved, list | tuple) and len(saved) == len(own) and all(map(_alike, saved, own))
    numbers = (int, float)
    if type(own) in numbers:
        return type(saved) in numbers and same(saved, saved)  # finite
    return type(saved) is type(own)
