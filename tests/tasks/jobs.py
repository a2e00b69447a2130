"""A value for every wish of a job, and what a job comes to, for tests that compare two of them."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import plrvo
from plrvo.audit.one_run import CanaryKind
from plrvo.noise.specification import OPTIONS
from plrvo.tasks.job import Job

PLAN = plrvo.Plan.certify(plrvo.Laplace(2.0), plrvo.Workload(0.1, 4, 1.0, 650), 1e-5)
# None of them is what a run of digits would do anyway.
WISHES: dict[str, Any] = {
    "model": "logistic",
    "trainable": "head",
    "layers": 1,
    "max_length": 20,
    "limit": 50,
    "references": 1,
    "test_limit": 3,
    "beams": 2,
    "top_p": 0.9,
    "views": 2,
    "data": "hf:x",
    "data_dir": Path("elsewhere"),
    "noise": "gaussian",
    "plan": PLAN,
    "epsilon": 7.0,
    "delta": 1e-6,
    "budget": Path("no.budget"),  # which is not there: refused, and so not ignored
    **{name: True if option.is_flag else 1.5 for name, option in OPTIONS.items()},
    "clip": 0.7,
    "sample_rate": 0.2,
    "steps": 3,
    "correlation": "tree",
    "epochs": 2,
    "batch_size": 100,
    "restart_every": 1,
    "separation": 5,
    "learning_rate": 0.05,
    "optimizer": "adam",
    "schedule": "constant",
    "average": 0.7,
    "momentum": 0.5,
    "weight_decay": 0.1,
    "postprocess": "clamp",
    "clipping": "per_layer",
    "grad_sample_mode": "hooks",
    "bf16": True,
    "exact": True,
    "grid": 0.001,
    "physical_batch": 9,
    "seed": 5,
    "evaluate_every": 7,
    "checkpoint_every": 8,
    "audit": 100,
    "canary": CanaryKind.example,
    "coordinates": 2,
    "confidence": 0.9,
    "guesses": 40,
    "unsafe_diagnostics": True,
}


@cache
def resolved_parts(job: Job) -> dict[str, Any]:
    """What a run of the job would be, without its own record, and where it looks for data."""
    with tempfile.TemporaryDirectory() as folder:
        run = job.resolve(Path(folder))
    settings = {name: value for name, value in vars(run.settings).items() if name not in ("out", "job")}
    plan = None if run.plan is None else run.plan.to_dict()
    # The digits come with a package: a place to look for data is handed on, and not looked at.
    return {"task": run.task.description, "plan": plan, "work": run.work, "place": job.data_dir, **settings}
