"""The designer and calibration beside dp-accounting's calibration of Gaussian noise, all of them first calls.

And the designer's problem given to COBYLA with a loop over coordinates, as the paper's authors solve it.
"""

from __future__ import annotations

import math
import time

import numpy as np
from scipy import optimize, special

import plrvo
from checks.benchmarks.accounting import _loop_over_coordinates
from checks.benchmarks.cold import dp_calibrated, forget
from checks.benchmarks.timing import interleaved, shown
from plrvo.accounting.convert import epsilon_from_moments

LARGE = 124_439_808  # GPT-2 small
SMALL = 26_010  # the paper's CNN
EPSILON, DELTA, CLIP = 1.0, 1e-5, 0.1


def _work(dimension: int) -> plrvo.Workload:
    return plrvo.Workload(sample_rate=0.04, steps=1250, clip=CLIP, dimension=dimension)


def _design(dimension: int, accountant: str) -> plrvo.Design:
    forget()
    return plrvo.design(_work(dimension), EPSILON, DELTA, accountant=accountant)


def _cobyla_with_the_loop(dimension: int) -> tuple[float, int]:
    """J and how many epsilons it took: the published epsilon by the loop at every trial point, from one start.

    Kinder than the original, which has a fixed list of orders: the order is found by the same search as ours.
    """
    asked = 0

    def spare(x: np.ndarray) -> float:
        nonlocal asked
        asked += 1
        k, theta = 1 + math.exp(x[0]), math.exp(x[1])
        clip = min(max(math.exp(x[2]), CLIP), 2 * CLIP)
        noise = plrvo.GammaPLRV(k, theta)
        work = plrvo.Workload(0.04, 1250, clip, dimension)

        def moment(lambda_: int) -> float:
            if lambda_ * clip * theta >= 1:
                return math.inf
            return work.steps * _loop_over_coordinates(noise, work, lambda_)

        return math.log(EPSILON) - math.log(max(epsilon_from_moments(moment, DELTA, 256)[0], 1e-12))

    constraints = [
        {"type": "ineq", "fun": spare},
        {"type": "ineq", "fun": lambda x: 1e-3 - special.gammainc(1 + math.exp(x[0]), 0.1 / math.exp(x[1]))},
        {"type": "ineq", "fun": lambda x: x[0] + x[1] - math.log(0.1)},
        {"type": "ineq", "fun": lambda x: x[2] - math.log(CLIP)},
        {"type": "ineq", "fun": lambda x: math.log(2 * CLIP) - x[2]},
        {"type": "ineq", "fun": lambda x: math.log(1e6) - x[0]},
    ]
    start = np.log([2e4, 4e-5, 1.2 * CLIP])  # by hand, as in the paper: close to the answer
    result = optimize.minimize(
        lambda x: -float(np.sum(x)),
        start,
        method="COBYLA",
        constraints=constraints,
        options={"rhobeg": 0.3, "tol": 1e-4, "maxiter": 150},
    )
    return float(math.exp(np.sum(result.x))), asked


def _calibrate(noise: plrvo.Noise) -> plrvo.Noise:
    forget()
    return plrvo.calibrate(noise, _work(SMALL), EPSILON, DELTA)


def run() -> list[dict[str, object]]:
    """Rows of (what, ours, theirs, ratio)."""
    contenders = {
        f"design, {accountant} n={dimension:,}": lambda a=(dimension, accountant): _design(*a)
        for accountant in ("certified", "published")
        for dimension in (SMALL, LARGE)
    }
    contenders["design, certified n=10"] = lambda: _design(10, "certified")
    contenders["design, with the comparison, n=26,010"] = lambda: _design(SMALL, "certified").comparison
    for noise in (plrvo.Gaussian(CLIP), plrvo.Laplace(CLIP), plrvo.GammaPLRV(10.0, 1.0), plrvo.GammaPLRV(4e4, 1e-4)):
        name = f"{noise.kind}, k = {noise.k:,.0f}" if isinstance(noise, plrvo.GammaPLRV) else noise.kind
        contenders[f"calibrate, {name}"] = lambda noise=noise: _calibrate(noise)
    reference = {"dp": lambda: dp_calibrated(0.04, 1250, EPSILON, DELTA)}
    times = interleaved({**contenders, **reference}, turns=2, clock=time.process_time)
    theirs = times["dp"].median
    rows: list[dict[str, object]] = [
        {
            "what": f"{name}; dp-accounting's calibration of Gaussian noise (CPU)",
            "ours": shown(times[name].median),
            "theirs": shown(theirs),
            "ratio": f"{times[name].median / theirs:.2f} of it",
        }
        for name in contenders
    ]
    started = time.process_time()
    snr, asked = _cobyla_with_the_loop(SMALL)
    loop = time.process_time() - started
    ours = _design(SMALL, "published").snr
    for dimension, note in ((SMALL, "measured once"), (LARGE, "measured at n=26,010, extrapolated in n")):
        seconds = times[f"design, published n={dimension:,}"].median
        by_loop = loop * dimension / SMALL
        rows.append(
            {
                "what": f"published design at n={dimension:,}, against COBYLA driving the loop ({note}; {asked} "
                f"epsilons; its J is {snr / ours:.4f} of ours)",
                "ours": shown(seconds),
                "theirs": shown(by_loop),
                "ratio": f"{by_loop / seconds:,.0f}x faster",
            }
        )
    return rows
