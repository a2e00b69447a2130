"""The white-box audit: T subsampled steps of the exact mechanism, and the best test that there is for one canary.

Without the example every step releases noise z; with it, g + z with probability q, the coin tossed once for all
coordinates. The attacker knows g and sees every step, so the best test is the likelihood ratio (theory, section 3)

    sum over steps of log(1 - q + q e^Lambda),     Lambda = log p(y - g)/p(y).

Runs are simulated step by step; only the coordinates of one step are drawn together (`losses`).
"""

from __future__ import annotations

import secrets
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from plrvo import validate
from plrvo.accounting import Workload
from plrvo.audit.blocks import Progress, run_blocks, threads
from plrvo.audit.canary import Canary
from plrvo.audit.laws import LossLaw
from plrvo.audit.losses import loss_law
from plrvo.audit.shuffled import Simulate, shuffled
from plrvo.audit.verdict import TwoWorlds, check_claim, judge, per_world
from plrvo.noise import Noise
from plrvo.validate import InvalidArgument

Array = NDArray[np.float64]
Sampler = Literal["poisson", "shuffled"]

BLOCK = 8192  # runs with one random stream
_CHUNK = 1 << 15  # losses drawn at a time, which stay in cache


def audit_mechanism(
    noise: Noise,
    work: Workload,
    delta: float,
    claim: float,
    *,
    trials: int = 400_000,
    canary: Canary | None = None,
    confidence: float = 0.99,
    seed: int | None = None,
    sampler: Sampler = "poisson",
    jobs: int = 1,
    state: Path | None = None,
    progress: Progress | None = None,
) -> TwoWorlds:
    """Whether the claim survives the best attack on this canary (by default the spread one, the worst that is known).

    `trials` counts all runs: half of them without the example and half with it; half of each choose the threshold and
    half test it. `sampler="shuffled"` plays batches that pass over the data once per epoch (`shuffled`), so that a
    claim that was computed for Poisson batches can be tried on them.

    >>> from plrvo import Gaussian
    >>> work = Workload(sample_rate=1.0, steps=1, clip=1.0, dimension=10)
    >>> audit_mechanism(Gaussian(0.5), work, 1e-5, claim=1.0, trials=4000, seed=1).verdict
    'refuted'
    """
    check_claim(claim)
    runs = per_world(trials, "trials", confidence, delta)
    if canary is None:
        canary = Canary.spread(work) if sampler == "poisson" else Canary.one_hot(work)
    seed = new_seed() if seed is None else seed
    validate.non_negative(seed=seed)
    simulate = simulator(noise, work, canary, sampler)
    scores = run_blocks(
        lambda block: simulate(bool(block.world), block.size, block.generator(seed)),
        runs,
        BLOCK,
        threads(jobs),
        settings={
            "audit": "mechanism",
            "noise": noise.to_dict(),
            "workload": work.to_dict(),
            "canary": asdict(canary),
            "sampler": sampler,
            "seed": seed,
        },
        state=state,
        progress=progress,
    )
    return judge(scores, claim, delta, confidence, likelihood_ratios=True)


def new_seed() -> int:
    """A seed for a caller who gave none; it is reported, so that the audit can be repeated."""
    return secrets.randbits(63)


def simulator(noise: Noise, work: Workload, canary: Canary, sampler: Sampler = "poisson") -> Simulate:
    """A function that plays so many runs of one world and gives their log likelihood ratios."""
    if sampler == "poisson":
        return _poisson(loss_law(noise, canary), work)
    if sampler == "shuffled":
        return shuffled(noise, canary, work)
    raise InvalidArgument("sampler", sampler, "poisson or shuffled")


def _poisson(law: LossLaw, work: Workload) -> Simulate:
    q, steps = work.sample_rate, work.steps
    step_law = law.mapped(lambda loss: with_coin(loss, q))

    def simulate(present: bool, runs: int, generator: np.random.Generator) -> Array:
        scores = np.zeros(runs)
        rows = max(1, _CHUNK // steps)
        for start in range(0, runs, rows):
            part = scores[start : start + rows]
            for first in range(0, steps, _CHUNK):
                length = min(_CHUNK, steps - first)
                values = step_law.draw(False, len(part) * length, generator)
                if present:
                    joins = generator.random(len(values)) < q
                    values[joins] = step_law.draw(True, int(joins.sum()), generator)
                part += values.reshape(len(part), length).sum(axis=1)
        return scores

    return simulate


def with_coin(loss: Array, q: float) -> Array:
    """log(1 - q + q e^loss), also where the exponential overflows."""
    if q == 1:
        return loss
    return np.where(loss < 500, np.log1p(q * np.expm1(np.minimum(loss, 500))), loss + np.log(q))


def describe(canary: Canary) -> dict[str, Any]:
    """The canary in a few words, for results."""
    return {"coordinates": canary.coordinates, "norm": canary.norm, "magnitudes": len(canary.magnitudes)}
