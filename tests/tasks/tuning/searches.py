"""Small searches: three steps on all digits, with noise whose curve is known. The seed gives two trials."""

from typing import Any

from plrvo.tasks.job import Job
from plrvo.tasks.tuning import Listed, Tuning


def small(**changes: Any) -> Tuning:
    job = {"epsilon": 3.0, "sample_rate": 1.0, "steps": 3, "noise": "gaussian", "seed": 12, "model": "logistic"}
    job |= changes.pop("job", {})
    given = {"vary": {"learning_rate": Listed((0.5, 2.0))}, "trials_mean": 3.0, **changes}
    return Tuning(Job("digits", **{k: v for k, v in job.items() if v is not None}), **given)
