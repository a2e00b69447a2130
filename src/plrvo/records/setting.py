"""How a run was carried out, and on what: words and choices, each of the right form and fit for the rest."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from plrvo.accounting import Clipping
from plrvo.records import derived, seeding, unit
from plrvo.records.choices import GradSampleMode
from plrvo.records.compared import is_count, is_finite, same
from plrvo.records.folder import DIAGNOSTICS
from plrvo.records.isolation import Isolation
from plrvo.records.opened import Opened, mapping
from plrvo.validate import counted, shortened

_SINGLE = (None, "hooks", "functorch", "alone")  # modes with the gradients of single examples
_RUN_SINCE_2 = ("clipping", "grad_sample_mode", "expected_batch_size", "processes", "seeded")


def of_task(read: Opened) -> Iterator[str]:
    """What was trained on what."""
    task = read.task
    for name in ("trainable_parameters", "examples", "group_size"):
        if name in task and not (is_count(task[name]) and task[name] > 0):
            yield f"task.{name} is {shortened(task[name])}, and not a number of them"
    for name in ("name", "model"):
        if not isinstance(task.get(name, ""), str):
            yield f"task.{name} is {shortened(task[name])}, and not a text"
    public = task.get("treated_as_public", [])
    if (
        not isinstance(public, list)
        or (not public and "treated_as_public" in task)
        or not all(isinstance(name, str) and name for name in public)
    ):
        yield f"task.treated_as_public is {shortened(public)}"
    yield from unit.differences(task, read.receipt.get("job"))
    if read.revision > 1 and "trainable_parameters" not in task:
        yield "task.trainable_parameters is missing"
    examples, visits = task.get("examples"), read.receipt.get("visits")
    if examples is None:
        return
    for what, count in (
        ("group_size", task.get("group_size")),
        ("canaries", (task.get("canaries") or {}).get("count")),
    ):
        if count is not None and count > examples:
            yield f"task.{what} has {count} of the {counted(examples, 'example')}"
    if visits is not None and visits["size"] != examples:
        yield f"it visited {shortened(visits['size'])} examples; the task has {examples}"


def of_run(read: Opened) -> Iterator[str]:
    """How gradients were formed, where the noise came from, and what was done with what was released."""
    run, plan = read.run, read.plan
    if read.revision > 1:
        for name in _RUN_SINCE_2:
            if run.get(name) is None and (name != "seeded" or name not in run):
                yield f"run.{name} is missing"
    if ("isolation" in run) != (read.revision > 4):
        yield f"run.isolation is {shortened(run.get('isolation'))} in a receipt of revision {read.revision}"
    mode, processes = run.get("grad_sample_mode"), run.get("processes")
    exact, alone = plan.noise.cell > 0, plan.correlation is not None or read.task.get("canaries")
    if mode is not None and mode not in list(GradSampleMode):
        yield f"run.grad_sample_mode is {shortened(mode)}, and none of {', '.join(GradSampleMode)}"
    isolation = run.get("isolation")
    if read.revision > 4 and isolation not in list(Isolation):
        yield f"run.isolation is {shortened(isolation)}, and none of {', '.join(Isolation)}"
    elif isolation == Isolation.construction and mode != GradSampleMode.alone:
        yield f"its examples were apart by construction; with grad_sample_mode {shortened(mode)} they were in a batch"
    if mode == GradSampleMode.alone and processes not in (None, 1):
        yield f"it ran in {counted(processes, 'process')}; one example at a time takes one"
    if read.receipt.get("job") is not None:
        yield from _of_a_job(read, mode, isolation)
    if plan.clipping is Clipping.l1 and mode not in _SINGLE:
        yield f"it clipped to an l1 norm by {mode}, which knows l2 norms only"
    adaptive = run.get("adaptive")
    if (adaptive is not None) != (plan.clipping is Clipping.adaptive):
        yield f"run.adaptive is {shortened(adaptive)}; the plan's clipping is {plan.clipping}"
    if adaptive is not None and not (isinstance(adaptive, dict) and all(map(is_finite, adaptive.values()))):
        yield f"run.adaptive is {shortened(adaptive)}, and not numbers"
    if adaptive is not None and processes not in (None, 1):
        yield f"it ran in {counted(processes, 'process')}; adaptive clipping has one"
    if exact and (mode not in _SINGLE or processes not in (None, 1)):
        yield "its noise is exact; that takes single gradients in one process"
    if processes is not None and not (is_count(processes) and processes > 0):
        yield f"run.processes is {shortened(processes)}"
    if alone and processes not in (None, 1):
        yield f"it ran in {counted(processes, 'process')}; correlated and audited runs have one"
    yield from _seed_and_settings(read, run)


def _of_a_job(read: Opened, mode: Any, isolation: Any) -> Iterator[str]:
    """Jobs train on batches, and nobody answers for the weights in their losses: examples that meet were looked for."""
    if mode == GradSampleMode.alone:
        yield f"run.grad_sample_mode is {shortened(mode)}, which takes a loop of one's own; it was the run of a job"
    if read.revision > 4 and isolation != Isolation.tried:
        yield f"run.isolation is {shortened(isolation)}; that of a job is {Isolation.tried}"


def _seed_and_settings(read: Opened, run: dict[str, Any]) -> Iterator[str]:
    seeded, sentence = run.get("seeded"), run.get("randomness")
    if not isinstance(seeded, bool | None) or not isinstance(sentence, str | None):
        yield f"it says seeded {shortened(seeded)}, randomness {shortened(sentence)}"
    elif read.revision > 1 and seeded is not seeding.is_seeded({"randomness": sentence}):
        yield f"it says seeded={seeded}; its noise came from {shortened(sentence)}"
    batch, examples = run.get("expected_batch_size", 1), read.task.get("examples")
    if not is_finite(batch) or batch <= 0:
        yield f"run.expected_batch_size is {shortened(batch)}"
    elif read.receipt.get("job") is not None and examples is not None:  # a loop of one's own may divide by another
        due = derived.expected_batch_size(read.plan, examples)
        if not same(float(batch), float(due)):
            yield f"run.expected_batch_size is {batch}; {due} is that of the plan and {counted(examples, 'example')}"
    for name in ("learning_rate", "momentum", "weight_decay"):
        if not is_finite(run.get(name, 0)):
            yield f"run.{name} is {shortened(run[name])}"
    average = run.get("average")
    if average is not None and not (is_finite(average) and 0 < average < 1):
        yield f"run.average is {shortened(average)}"
    for name in ("optimizer", "schedule"):
        if not isinstance(run.get(name, ""), str):
            yield f"run.{name} is {shortened(run[name])}"
    versions = mapping(read.receipt["versions"], "versions")
    if read.revision > 1 and "plrvo_code" not in versions:
        yield "versions.plrvo_code is missing"
    if not all(isinstance(version, str) for version in versions.values()):
        yield "a version is not a text"
    unsafe = run.get("unsafe_diagnostics", False)
    if not isinstance(unsafe, bool):
        yield f"run.unsafe_diagnostics is {shortened(unsafe)}"
    elif not unsafe and (read.folder / DIAGNOSTICS).exists():
        yield f"{DIAGNOSTICS} lies beside the receipt, which does not tell of it"
