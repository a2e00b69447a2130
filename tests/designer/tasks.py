"""Random tasks, and a search over them that shares nothing with the solver but the accountants."""

import math

import numpy as np
from scipy import stats

from plrvo import GammaPLRV, Ledger, Workload
from plrvo.accounting.published import published_epsilon

DELTA = 1e-5


def random_work(rng: np.random.Generator, dimension: int) -> Workload:
    return Workload(
        sample_rate=float(np.exp(rng.uniform(np.log(2e-3), np.log(0.2)))),
        steps=int(np.exp(rng.uniform(np.log(20), np.log(3000)))),
        clip=float(np.exp(rng.uniform(np.log(0.02), np.log(0.5)))),
        dimension=dimension,
    )


def cost(accountant: str, noise: GammaPLRV, work: Workload) -> float:
    if accountant == "certified":
        return Ledger().plus(noise, work).certified(DELTA).value
    with np.errstate(over="ignore"):
        return published_epsilon([(noise, work)], DELTA)[0]


def feasible(accountant: str, k: float, theta: float, work: Workload, epsilon: float) -> bool:
    """c1 to c4, written out again."""
    return (
        k > 1
        and (k - 1) * theta >= 0.1
        and stats.gamma.cdf(0.1, k, scale=theta) <= 1e-3
        and cost(accountant, GammaPLRV(k, theta), work) <= epsilon
    )


def best_on_grid(accountant: str, work: Workload, clips: list[float], epsilon: float, shapes: list[float]) -> float:
    """The largest J over a grid of (k, theta, C), theta in steps of half a percent.

    Epsilon grows with theta, so on the sorted grid of theta the largest feasible one is found by halving.
    """
    best = 0.0
    for clip in clips:
        here = Workload(work.sample_rate, work.steps, clip, work.dimension)
        for k in shapes:
            grid = np.exp(np.arange(math.log(5e-3), math.log(200.0), 0.005)) / (k * clip)
            low, high = 0, len(grid)  # grid[low - 1] meets the budget, grid[high] does not
            while low < high:
                middle = (low + high) // 2
                meets = cost(accountant, GammaPLRV(k, float(grid[middle])), here) <= epsilon
                low, high = (middle + 1, high) if meets else (low, middle)
            if low and feasible(accountant, k, float(grid[low - 1]), here, epsilon):
                best = max(best, clip * (k - 1) * float(grid[low - 1]))
    return best
