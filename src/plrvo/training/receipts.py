"""What a run puts into its records, from the optimizer's own counters."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Iterable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from plrvo.accounting import Plan
from plrvo.records import Receipt, claims, derived
from plrvo.records.compared import is_finite
from plrvo.records.consistency import REVISION
from plrvo.records.journal import Journal
from plrvo.records.seeding import CALLERS_GENERATORS, UNSEEDED, is_seeded
from plrvo.records.unit import check_author
from plrvo.records.weights import Tensors
from plrvo.validate import InvalidArgument
from plrvo.version import __version__

if TYPE_CHECKING:
    from plrvo.training.engine import PrivacyEngine

_PACKAGES = ("torch", "opacus", "numpy", "scipy", "dp-accounting")


def make_receipt(
    engine: PrivacyEngine,
    optimizer: Any,
    weights: str | Path,
    task: dict[str, Any],
    run: dict[str, Any] | None = None,
    audit: dict[str, Any] | None = None,
    journal: Journal | None = None,
    trained: Sequence[str] | None = None,
    metrics: dict[str, Any] | None = None,
    job: dict[str, Any] | None = None,
    delta: float | None = None,
) -> Receipt:
    """`task` says what was trained on what; `run` how (optimizer, metrics, whatever else).

    `unit` in a `task` says what one example is: a receipt shows it as its author's word.

    `audit` is what an attack on the run found, if there was one. With a `journal` the receipt says what was released
    (`trained` are the names of the weights that it has digests of, in their order), with `metrics`
    (`plrvo.records.metrics.summary`) which file has the metrics of it. `job` is what was asked for. `delta` is for an
    engine without a plan, whose receipt has the plan of the steps that were taken.
    """
    run, plan, weights = run or {}, _plan(engine, optimizer, delta), Path(weights)
    if job is None:
        check_author(task)
    if Tensors.read(weights) is None:
        raise InvalidArgument("weights", str(weights), "a safetensors file (safetensors.torch.save_model writes one)")
    if optimizer.accountant is not engine.accountant:
        raise InvalidArgument("optimizer", "another engine's", "the optimizer that this engine's make_private returned")
    if engine.accountant.carried:
        raise InvalidArgument(
            "engine",
            "a ledger that was loaded by hand",
            "engine.save_checkpoint and load_checkpoint, which know how the steps of a ledger were taken",
        )
    ledger = engine.accountant.ledger
    if ledger.steps != optimizer.steps_taken:
        raise InvalidArgument("steps", optimizer.steps_taken, f"{ledger.steps}, the steps in the ledger")
    epsilons = derived.epsilons(ledger, plan.delta)
    if not is_finite(epsilons["certified"]):
        raise InvalidArgument(
            "noise", plan.noise.to_dict(), "one for which an epsilon can be certified: use more noise"
        )
    parameters = sum(p.numel() for p in optimizer.params)
    parts = {
        "revision": REVISION,
        "job": job,
        "task": {**task, "trainable_parameters": task.get("trainable_parameters", parameters)},
        "plan": plan.to_dict(),
        "ledger": ledger.to_list(),
        "steps": optimizer.steps_taken,
        "complete": optimizer.steps_taken == plan.workload.steps,
        "delta": plan.delta,
        "epsilon": epsilons,
        "group": derived.group(ledger, plan.delta, task),
        **claims.claims(plan, engine.sampler),
        "postprocess": optimizer.postprocess,
        "arithmetic": derived.arithmetic(plan.noise),
        "run": {**run, **_facts(engine, optimizer), **_seeding(engine, run)},
        "metrics": metrics,
        "weights": {
            "file": weights.name,
            "sha256": derived.file_digest(weights),
            "trained": None if trained is None else list(trained),
        },
        "versions": _versions(),
        "audit": audit,
        "journal": None if journal is None else journal.summary(),
        **({} if engine.charge is None else {"budget": engine.charge.record()}),
    }
    return Receipt.signed(parts)


def _plan(engine: PrivacyEngine, optimizer: Any, delta: float | None) -> Plan:
    if engine.plan is not None:
        if delta not in (None, engine.plan.delta):
            raise InvalidArgument("delta", delta, f"{engine.plan.delta}, the plan's, or None")
        return engine.plan
    ledger, mechanism = engine.accountant.ledger, engine.mechanism
    if delta is None or mechanism is None or not ledger.steps:
        raise InvalidArgument("delta", delta, "a delta, for an engine that has taken steps without a plan")
    if optimizer.schedules and engine.times_made == 1:
        return mechanism.scheduled(ledger, delta)
    if ledger != mechanism.ledger(ledger.steps):
        raise InvalidArgument("engine", "steps of several noises", "one make_private for each engine with a receipt")
    return mechanism.after(ledger.steps, delta)


def _seeding(engine: PrivacyEngine, run: dict[str, Any]) -> dict[str, Any]:
    """Whether there is a seed, as the engine knows it; a caller may know of one more, and give it a better name."""
    seeded = engine.seeded or is_seeded(run) is True
    if is_seeded({"randomness": run.get("randomness")}) is seeded:
        return {"seeded": seeded}
    return {"seeded": seeded, "randomness": CALLERS_GENERATORS if seeded else UNSEEDED}


def _facts(engine: PrivacyEngine, optimizer: Any) -> dict[str, Any]:
    """How the steps were taken, as the optimizer has it."""
    processes = getattr(optimizer, "world_size", 1)
    return {
        "clipping": optimizer.clipping,
        "grad_sample_mode": engine.grad_sample_mode,
        "isolation": engine.isolation,
        "expected_batch_size": optimizer.expected_batch_size * processes,
        "processes": processes,
        **({} if optimizer.adapted is None else {"adaptive": optimizer.adapted}),
    }


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version(), "plrvo": __version__, "plrvo_code": derived.code_digest()}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def weights_digest(parameters: Iterable[torch.Tensor]) -> str:
    """SHA-256 over the values."""
    digest = hashlib.sha256()
    for p in parameters:
        values = p.detach().cpu().contiguous().reshape(-1)
        digest.update(values.view(torch.uint8).numpy().data if values.numel() else b"")
    return digest.hexdigest()
