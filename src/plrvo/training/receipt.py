"""The receipt: what a run may claim, made from the optimizer's own counters, and recomputed by `verify`.

It protects against mistakes and damage, not against a forger: whoever trains can write what they like.
"""

from __future__ import annotations

import hashlib
import math
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import plrvo
from plrvo.accounting import Ledger
from plrvo.accounting.correlated import CorrelatedLedger, read_ledger
from plrvo.accounting.group import group_epsilon
from plrvo.design import Plan
from plrvo.files import json_digest, read_json, write_json
from plrvo.noise import GridNoise, Noise
from plrvo.training.ftrl import setup as ftrl
from plrvo.training.journal import Journal, unreconciled
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
) -> dict[str, Any]:
    """Plain data. `task` says what was trained on what; `run` how (clipping, sampler, divisor, randomness, metrics).

    `audit` is what an attack on the run found, if there was one. With a `journal` the receipt says what was released.
    """
    plan = engine.plan
    if plan is None:
        raise InvalidArgument("plan", None, "an engine that has trained with a plan")
    ledger = engine.accountant.ledger
    if ledger.steps != optimizer.steps_taken:
        raise InvalidArgument("steps", optimizer.steps_taken, f"{ledger.steps}, the steps in the ledger")
    receipt = {
        "receipt": _FORMAT,
        "task": task,
        "plan": plan.to_dict(),
        "ledger": ledger.to_list(),
        "steps": optimizer.steps_taken,
        "complete": optimizer.steps_taken == plan.workload.steps,
        "delta": plan.delta,
        "epsilon": _epsilons(ledger, plan.delta),
        "group": _group(ledger, plan.delta, task),
        **ftrl.claims(plan, engine.sampler),
        "postprocess": optimizer.postprocess,
        "arithmetic": _arithmetic(plan.noise),
        "run": run,
        "weights": {"file": weights.name, "sha256": file_digest(weights)},
        "versions": _versions(),
        "audit": audit,
        "journal": None if journal is None else journal.summary(),
    }
    return {**receipt, "digest": json_digest(receipt)}


def write_receipt(path: Path, receipt: dict[str, Any]) -> None:
    """Write it atomically."""
    write_json(path, receipt)


def verify(path: Path) -> list[str]:
    """Recompute every number of a receipt; one sentence for each difference, none if all is as it says."""
    receipt = read_json(path, "receipt", "a receipt file")
    if not isinstance(receipt, dict) or receipt.get("receipt") != _FORMAT:
        raise InvalidArgument("receipt", str(path), f"a receipt of format {_FORMAT}")
    try:
        return list(_differences(receipt, path.parent))
    except (KeyError, TypeError, AttributeError, OverflowError) as error:  # the last: a number of 400 digits
        return [f"a part of the receipt is missing or has the wrong form ({error!r})"]


def _differences(receipt: dict[str, Any], folder: Path) -> list[str]:
    found = []
    if receipt["digest"] != json_digest({key: value for key, value in receipt.items() if key != "digest"}):
        found.append("the receipt has been changed since it was written (its digest differs)")
    try:
        plan = Plan.from_dict(receipt["plan"])
        ledger = read_ledger(receipt["ledger"])
    except InvalidArgument as error:
        return [*found, f"the plan or the ledger is not valid: {error}"]
    if ledger.steps != receipt["steps"]:
        found.append(f"it claims {receipt['steps']} steps; its ledger has {ledger.steps}")
    if receipt["complete"] != (receipt["steps"] == plan.workload.steps):
        found.append(f"it says complete={receipt['complete']}; the plan has {plan.workload.steps} steps")
    for noise, work in ledger.entries:
        if noise != plan.noise:
            found.append(f"the ledger has the noise {noise.to_dict()}; the plan has {plan.noise.to_dict()}")
        if work.clip > plan.workload.clip or work.sample_rate != plan.workload.sample_rate:
            found.append(f"the ledger has clip {work.clip} and rate {work.sample_rate}; the plan has others")
    if receipt["arithmetic"] != _arithmetic(plan.noise):
        found.append(f"it claims {receipt['arithmetic']} arithmetic; its plan has {_arithmetic(plan.noise)}")
    found += ftrl.differences(receipt, plan, ledger)
    for name, value in _epsilons(ledger, receipt["delta"]).items():
        claimed = receipt["epsilon"][name]
        if (claimed is None) != (value is None) or (value is not None and abs(claimed - value) > 1e-9 * abs(value)):
            found.append(f"it claims epsilon {name} {claimed}; recomputed, it is {value}")
    group = _group(ledger, receipt["delta"], receipt["task"])
    if group != receipt.get("group"):
        found.append(f"it claims {receipt.get('group')} for a group; recomputed, it is {group}")
    if plan.epsilon is not None and receipt["epsilon"]["certified"] > plan.epsilon:
        found.append(f"certified epsilon {receipt['epsilon']['certified']} exceeds the budget {plan.epsilon}")
    if receipt.get("journal") is not None:
        found += unreconciled(folder, receipt["journal"], ledger.steps)
    weights = folder / Path(receipt["weights"]["file"]).name
    if not weights.is_file():
        found.append(f"the weights {weights.name} are not beside the receipt")
    elif file_digest(weights) != receipt["weights"]["sha256"]:
        found.append(f"the weights {weights.name} are not those that the receipt was written for")
    return found


def file_digest(path: Path) -> str:
    """SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _arithmetic(noise: Noise) -> str:
    if isinstance(noise, GridNoise):
        return f"integers on a grid of width {noise.cell!r}, with exact noise from a cryptographic keystream"
    return "floating point (idealised: not safe against attacks on the last bits)"


def _epsilons(ledger: Ledger | CorrelatedLedger, delta: float) -> dict[str, float | None]:
    bracket = ledger.epsilon(delta)
    return {"certified": bracket.certified, "lower": bracket.lower, "published": bracket.published}


def _group(ledger: Ledger | CorrelatedLedger, delta: float, task: dict[str, Any]) -> dict[str, Any] | None:
    """What holds for all examples of one group, where the task says that they come in groups."""
    size = task.get("group_size")
    if size is None:
        return None
    value = group_epsilon(ledger, size, delta)
    return {"of": task.get("group"), "size": size, "certified": None if math.isinf(value) else value, "delta": delta}


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version(), "plrvo": plrvo.__version__, "plrvo_code": _code_digest()}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _code_digest() -> str:
    """SHA-256 over the sources of this package, so that two receipts of one version can be told apart."""
    root = Path(plrvo.__file__).parent
    digest = hashlib.sha256()
    for file in sorted(root.rglob("*.py")):
        digest.update(str(file.relative_to(root)).encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:16]
