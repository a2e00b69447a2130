"""A first call again and again: all that plrvo remembers is forgotten. And dp-accounting's Gaussian beside it."""

from __future__ import annotations

import sys
from functools import _lru_cache_wrapper

import dp_accounting
from dp_accounting import dp_event
from dp_accounting.pld import PLDAccountant


def forget() -> None:
    """Empty every cache of every module of plrvo that has been imported."""
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] == "plrvo":
            for value in list(vars(module).values()):
                if isinstance(value, _lru_cache_wrapper):
                    value.cache_clear()


def _event(sigma: float, q: float, steps: int) -> dp_event.DpEvent:
    step = dp_event.PoissonSampledDpEvent(q, dp_event.GaussianDpEvent(sigma))
    return dp_event.SelfComposedDpEvent(step, steps)


def dp_epsilon(sigma: float, q: float, steps: int, delta: float) -> float:
    """The epsilon of sampled Gaussian steps by dp-accounting's loss distributions, with its own settings."""
    return float(PLDAccountant().compose(_event(sigma, q, steps)).get_epsilon(delta))


def dp_calibrated(q: float, steps: int, epsilon: float, delta: float) -> float:
    """The multiplier that dp-accounting fits to a budget, by the same accountant."""
    return float(dp_accounting.calibrate_dp_mechanism(PLDAccountant, lambda s: _event(s, q, steps), epsilon, delta))
