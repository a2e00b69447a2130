"""What was asked for, as a receipt repeats it (`plrvo.tasks.job`), beside what the run was.

A job names what it asks for, and is silent about the rest. What it names and the receipt has elsewhere is compared;
other wishes are words of the right form.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from plrvo.accounting import Plan
from plrvo.noise import Specification
from plrvo.noise.specification import AUTO, USUAL
from plrvo.records.choices import GradSampleMode
from plrvo.records.compared import is_count, is_finite, same
from plrvo.records.seeding import FIXED_SEED
from plrvo.validate import InvalidArgument, shortened

FLAGS = {"exact", "bf16", "unsafe_diagnostics"}
TEXTS = {"task", "model", "trainable", "data", "correlation", "optimizer", "schedule", "postprocess", "clipping"}
TEXTS |= {"grad_sample_mode", "canary"}
NUMBERS = {"top_p", "epsilon", "delta", "clip", "sample_rate", "grid"}
NUMBERS |= {"average", "learning_rate", "momentum", "weight_decay", "confidence"}
COUNTS = {"max_length", "limit", "references", "test_limit", "beams", "steps", "epochs", "batch_size", "restart_every"}
COUNTS |= {"separation", "physical_batch", "seed", "evaluate_every", "checkpoint_every", "audit", "coordinates"}
COUNTS |= {"guesses", "views", "layers"}
# What a run of each mode that can be asked for says that it had; older ones called a form of book-keeping ghost.
_BOOKS = (GradSampleMode.bookkeeping, GradSampleMode.ghost)
_MODES = {"bookkeeping": _BOOKS, "ghost": _BOOKS, "hooks": ("hooks",), "functorch": ("functorch",)}
_MODES["auto"] = tuple(mode for mode in GradSampleMode if mode is not GradSampleMode.alone)


def differences(job: Any, plan: Plan, receipt: dict[str, Any]) -> Iterator[str]:
    """A sentence for each contradiction."""
    if not isinstance(job, dict) or "task" not in job:
        yield f"its job is {shortened(job)}, and asks for no task"
        return
    wrong = [name for name, value in job.items() if not _has_its_form(name, value)]
    for name in wrong:
        yield f"job.{shortened(name)} is {shortened(job[name])}, which cannot be asked for"
    due = _due(job, plan, receipt)
    planned = "plan" in job or isinstance(job.get("noise"), dict)  # these bring what was not asked for by name
    job = job if planned else {"noise": USUAL, "clipping": "flat", **job}
    for name in sorted(due.keys() & job.keys() - wrong):
        if not same(job[name], due[name]):
            yield f"job.{name} is {shortened(job[name])}; the run had {shortened(due[name])}"
    for name in ("audit", "postprocess", "unsafe_diagnostics", *(() if planned else ("epsilon", "exact"))):
        if name not in job and due.get(name) not in (None, False):
            yield f"the run had {name} {shortened(due[name])}, which its job does not ask for"
    yield from _noise_options(job, plan, planned)
    wanted, mode = job.get("grad_sample_mode"), receipt["run"].get("grad_sample_mode")
    if mode is not None and isinstance(wanted, str) and mode not in _MODES.get(wanted, ()):
        yield f"job.grad_sample_mode is {shortened(wanted)}; the run had {shortened(mode)}"
    if not planned and ("correlation" in job) != (plan.correlation is not None):
        yield "its job and its plan differ in their correlation"
    if ("seed" in job) != (receipt["run"].get("randomness") == FIXED_SEED):
        yield "its job and its run differ about a seed"


def _has_its_form(name: str, value: Any) -> bool:
    if name in TEXTS or (name == "noise" and not isinstance(value, dict)):
        return isinstance(value, str)
    if name in ("noise", "noise_options", "plan"):
        return isinstance(value, dict)
    if name in FLAGS:
        return value is True  # or it is not asked for
    return (name in COUNTS and is_count(value)) or (name in NUMBERS and is_finite(value))


def _noise_options(job: dict[str, Any], plan: Plan, planned: bool) -> Iterator[str]:
    """The options of the noise: those that describe it, beside a budget or without one, with the values that it had."""
    options, kind = job.get("noise_options", {}), job.get("noise")
    if not isinstance(options, dict):
        return  # it has been said
    try:
        if not planned:
            kind = plan.noise.before_rounding.kind if kind == AUTO else kind
            Specification(kind if isinstance(kind, str) else None, options).check(fitted="epsilon" in job)
    except InvalidArgument as error:
        yield f"its job asks for no noise ({error})"
    noise = plan.noise.before_rounding
    had = {} if planned else noise.options(plan.workload.clip)
    flags = {p.option: False for p in noise.parameters if p.is_flag and p.option in had}  # or they are asked for
    for name, value in (flags | options).items():
        if name not in had or not same(value, had[name]):
            yield f"job.noise_options.{shortened(name)} is {shortened(value)}; the run had {shortened(had.get(name))}"


def _due(job: dict[str, Any], plan: Plan, receipt: dict[str, Any]) -> dict[str, Any]:
    """What the receipt says of wishes, by their names; what is not there is not claimed."""
    task, run, work, noise = receipt["task"], receipt["run"], plan.workload, plan.noise.before_rounding
    planted = task.get("canaries") or {}
    run = {name: value for name, value in run.items() if name != "grad_sample_mode"}  # which may be asked for as auto
    if "learning_rate" in run and run.get("optimizer") == "sgd":
        run["learning_rate"] *= work.clip  # it is asked for in units of the clip
    # A job that left the kind to the task is content with any.
    due = {**run, **work.to_dict(), "noise": AUTO if job.get("noise") == AUTO else noise.kind}
    due |= {"epsilon": plan.epsilon, "delta": plan.delta, "exact": plan.noise.cell > 0}
    due |= {"task": task.get("name", job["task"]), "model": task.get("model", job.get("model"))}
    due |= {"audit": planted.get("count"), "canary": planted.get("kind"), "postprocess": receipt.get("postprocess")}
    if isinstance(job.get("noise"), dict):  # of this kind if it was fitted, and this one if it was not
        given = plan.noise if job["noise"].get("noise") == plan.noise.kind else noise
        due["noise"] = {**job["noise"], "noise": given.kind} if "epsilon" in job else given.to_dict()
    if isinstance(job.get("plan"), dict):
        written, settled = receipt["plan"], ("plan", "workload", "clipping", "delta", "epsilon", "correlation")
        chosen = {name: value for name, value in written.items() if name in settled}
        due["plan"] = job["plan"] | chosen if due["exact"] else written  # a noise that is put on a grid may be widened
    return due
