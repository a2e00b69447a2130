"""Real receipts of every kind, made by runs of a few steps, and changed as a forger would: with a digest that fits."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import plrvo
from plrvo.accounting.correlated import Banded, Correlation, CyclicPoisson, Participation, Tree
from plrvo.accounting.exact import on_grid
from plrvo.audit.one_run import CanaryKind, Rule
from plrvo.files import json_digest
from plrvo.tasks import catalog
from plrvo.tasks.audited import Planting, with_canaries
from plrvo.tasks.experiment import run_private
from plrvo.tasks.job import Job
from plrvo.tasks.settings import Settings, Streams

WORK = plrvo.Workload(sample_rate=0.1, steps=6, clip=1.0, dimension=650)
FIVE_PER_EPOCH = plrvo.Workload(sample_rate=1.0, steps=6, clip=1.0, dimension=650)
DELTA = 1e-5
SIX_STEPS = {"clip": 0.5, "sample_rate": 0.1, "steps": 6}


def run(folder: Path, plan: plrvo.Plan, canaries: int = 0, grouped: bool = False, **settings: Any) -> Path:
    """The receipt of a real run."""
    streams = Streams.from_seed(settings.get("seed"))
    preset = catalog.prepare(catalog.Request("digits", "logistic", None, {}), streams.weights)
    task, module = preset.task, preset.module
    if grouped:
        task = replace(task, description={**task.description, "group_size": 3, "group": "all scans of one writer"})
    if canaries:
        planting = Planting(Rule(canaries, 0.99, DELTA), CanaryKind.gradient, seed=5)
        task, module, _ = with_canaries(task, module, planting, plan.workload.clip)
    run_private(task, module, plan, Settings(folder, 0.3, evaluate_every=2, checkpoint_every=4, **settings), streams)
    return folder / "receipt.json"


def _poisson(folder: Path) -> Path:
    return run(folder, plrvo.Plan.certify(plrvo.Laplace(2.0), WORK, DELTA, 50.0))


def _exact(folder: Path) -> Path:
    return run(folder, on_grid(plrvo.Plan.certify(plrvo.Laplace(2.0), WORK, DELTA, 50.0)), seed=3)


def _correlated(folder: Path) -> Path:
    correlation = Correlation(Tree(), Participation(3, 2))
    return run(folder, plrvo.Plan.certify(plrvo.Laplace(5.0), FIVE_PER_EPOCH, DELTA, None, correlation))


def _cyclic(folder: Path) -> Path:
    correlation = Correlation(Banded((1.0, 0.5)), CyclicPoisson(3, 0.4))
    return run(folder, plrvo.Plan.certify(plrvo.Laplace(5.0), FIVE_PER_EPOCH, DELTA, None, correlation))


def _audited(folder: Path) -> Path:
    noise, work = plrvo.GammaPLRV(40_000.0, 1e-4), replace(WORK, dimension=710, sample_rate=0.4)
    return run(folder, plrvo.Plan.certify(noise, work, DELTA), canaries=60, seed=1, unsafe_diagnostics=True)


def _grouped(folder: Path) -> Path:
    return run(folder, plrvo.Plan.certify(plrvo.Gaussian(2.0), WORK, DELTA), grouped=True)


def _per_layer(folder: Path) -> Path:
    noise = plrvo.GammaPLRV(20.0, 0.05, shared=True)
    return run(folder, plrvo.Plan.certify(noise, WORK, DELTA, clipping="per_layer"), postprocess="clamp")


def _automatic(folder: Path) -> Path:
    return run(folder, plrvo.Plan.certify(plrvo.Laplace(2.0), WORK, DELTA, clipping="automatic"))


def _l1(folder: Path) -> Path:
    plan = plrvo.Plan.certify(plrvo.Laplace(2.0), WORK, DELTA, clipping="l1")
    return run(folder, plan, grad_sample_mode="hooks")


def _asked(folder: Path) -> Path:
    """With every wish that a receipt has elsewhere as well, and some that it has not."""
    noise = {"noise": "gaussian", "epsilon": 50.0, "delta": DELTA, **SIX_STEPS}
    learning = {"learning_rate": 0.3, "optimizer": "sgd", "schedule": "linear", "momentum": 0.8, "weight_decay": 0.1}
    rest = {"postprocess": "clamp", "clipping": "per_layer", "seed": 3, "evaluate_every": 2, "checkpoint_every": 4}
    Job("digits", model="logistic", **noise, **learning, **rest).resolve(folder).train()
    return folder / "receipt.json"


def _described(folder: Path) -> Path:
    """Of a job whose noise is described in full."""
    noise = {"noise_options": {"k": 20.0, "theta": 0.05, "shared": True}, "delta": DELTA, "seed": 3}
    Job("digits", model="logistic", **noise, **SIX_STEPS, evaluate_every=2).resolve(folder).train()
    return folder / "receipt.json"


KINDS: dict[str, Callable[[Path], Path]] = {
    "poisson": _poisson,
    "exact": _exact,
    "correlated": _correlated,
    "cyclic": _cyclic,
    "audited": _audited,
    "grouped": _grouped,
    "per_layer": _per_layer,
    "automatic": _automatic,
    "l1": _l1,
    "asked": _asked,
    "described": _described,
}

Path_ = tuple[str | int, ...]


def leaves(value: Any, at: Path_ = ()) -> Iterator[tuple[Path_, Any]]:
    """Every leaf with its place; an empty container is one."""
    if isinstance(value, dict | list) and value:
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(item, (*at, key))
    else:
        yield at, value


def containers(value: Any, at: Path_ = ()) -> Iterator[Path_]:
    """Every place that holds others by name."""
    if isinstance(value, dict):
        yield at
        for key, item in value.items():
            yield from containers(item, (*at, key))
    elif isinstance(value, list):
        for i, item in enumerate(value):
            yield from containers(item, (*at, i))


def changed(receipt: dict[str, Any], at: Path_, change: Callable[[Any, Any], None]) -> str:
    """The receipt as JSON after `change(container, key)`, signed again."""
    copy = json.loads(json.dumps(receipt))
    container: Any = copy
    for key in at[:-1]:
        container = container[key]
    change(container, at[-1] if at else None)
    if at != ("digest",):
        copy["digest"] = json_digest({key: value for key, value in copy.items() if key != "digest"})
    return json.dumps(copy).replace("Infinity", "1e999")
