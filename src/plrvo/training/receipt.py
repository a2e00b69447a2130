"""The receipt: what a run may claim, made from the optimizer's own counters, and recomputed by `verify`.

It protects against mistakes and damage, not against a forger: whoever trains can write what they like.
"""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import plrvo
from plrvo.files import json_digest, read_json, write_json
from plrvo.training import derived
from plrvo.training.compared import is_finite
from plrvo.training.consistency import REVISION, differences, elements
from plrvo.training.ftrl import claims as visited
from plrvo.training.journal import Journal
from plrvo.training.seeding import is_seeded
from plrvo.validate import InvalidArgument

if TYPE_CHECKING:
    from plrvo.training.engine import PrivacyEngine

_FORMAT = 1
_PACKAGES = ("torch", "opacus", "numpy", "scipy", "dp-accounting")


def make_receipt(
    engine: PrivacyEngine,
    optimizer: Any,
    weights: Path,
    task: dict[str, Any],
    run: dict[str, Any],
    audit: dict[str, Any] | None = None,
    journal: Journal | None = None,
    metrics: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Plain data. `task` says what was trained on what; `run` how (`seeded` and `randomness`, optimizer, metrics).

    `audit` is what an attack on the run found, if there was one. With a `journal` the receipt says what was released,
    with `metrics` (`plrvo.training.metrics.summary`) which file has the metrics of it.
    """
    plan = engine.plan
    if plan is None:
        raise InvalidArgument("plan", None, "an engine that has trained with a plan")
    if elements(weights) is None:
        raise InvalidArgument("weights", str(weights), "a safetensors file (safetensors.torch.save_model writes one)")
    ledger = engine.accountant.ledger
    if ledger.steps != optimizer.steps_taken:
        raise InvalidArgument("steps", optimizer.steps_taken, f"{ledger.steps}, the steps in the ledger")
    epsilons = derived.epsilons(ledger, plan.delta)
    if not is_finite(epsilons["certified"]):
        raise InvalidArgument(
            "noise", plan.noise.to_dict(), "one for which an epsilon can be certified: use more noise"
        )
    trained = sum(p.numel() for p in optimizer.params)
    receipt = {
        "receipt": _FORMAT,
        "revision": REVISION,
        "task": {**task, "trainable_parameters": task.get("trainable_parameters", trained)},
        "plan": plan.to_dict(),
        "ledger": ledger.to_list(),
        "steps": optimizer.steps_taken,
        "complete": optimizer.steps_taken == plan.workload.steps,
        "delta": plan.delta,
        "epsilon": epsilons,
        "group": derived.group(ledger, plan.delta, task),
        **visited.claims(plan, engine.sampler),
        "postprocess": optimizer.postprocess,
        "arithmetic": derived.arithmetic(plan.noise),
        "run": {**run, **_facts(engine, optimizer), "seeded": is_seeded(run)},
        "metrics": metrics,
        "weights": {"file": weights.name, "sha256": derived.file_digest(weights)},
        "versions": _versions(),
        "audit": audit,
        "journal": None if journal is None else journal.summary(),
    }
    return {**receipt, "digest": json_digest(receipt)}


def write_receipt(path: Path, receipt: dict[str, Any]) -> None:
    """Write it atomically."""
    write_json(path, receipt)


def read_receipt(path: Path) -> dict[str, Any]:
    """What is written in the file, and not yet believed."""
    if path.exists() and not path.is_file():  # what lies beside a pipe or a device is not what it is about
        raise InvalidArgument("receipt", str(path), "a receipt file")
    receipt = read_json(path, "receipt", "a receipt file")
    if not isinstance(receipt, dict) or type(receipt.get("receipt")) is not int or receipt["receipt"] != _FORMAT:
        raise InvalidArgument("receipt", str(path), f"a receipt of format {_FORMAT}")
    return receipt


def verify(path: Path) -> list[str]:
    """Recompute every number of a receipt; one sentence for each difference, none if all is as it says."""
    return differences(read_receipt(path), path.parent)


def _facts(engine: PrivacyEngine, optimizer: Any) -> dict[str, Any]:
    """How the steps were taken, as the optimizer has it."""
    processes = getattr(optimizer, "world_size", 1)
    return {
        "clipping": optimizer.clipping,
        "grad_sample_mode": engine.grad_sample_mode,
        "expected_batch_size": optimizer.expected_batch_size * processes,
        "processes": processes,
    }


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version(), "plrvo": plrvo.__version__, "plrvo_code": derived.code_digest()}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
