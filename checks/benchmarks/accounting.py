"""The accountants: the whole bracket, certified alone, and published against a loop over coordinates."""

from __future__ import annotations

import numpy as np
from scipy import special

import plrvo
from checks.benchmarks.timing import interleaved, shown
from plrvo.accounting.lower import _step
from plrvo.accounting.moments import log_weights
from plrvo.accounting.published import published_epsilon, published_moment


def _loop_over_coordinates(noise: plrvo.GammaPLRV, work: plrvo.Workload, lambda_: int) -> float:
    """Algorithm 2 as printed, vectorised over blocks of coordinates."""
    eta = np.arange(lambda_ + 2.0)
    weights = log_weights(lambda_ + 1, work.sample_rate)
    total = 0.0
    for start in range(1, work.dimension + 1, 20_000):
        i = np.arange(start, min(start + 20_000, work.dimension + 1), dtype=float)
        x = work.clip * (np.sqrt(i) - np.sqrt(i - 1))[:, None]
        up = np.log(np.maximum(eta, 1e-300) / np.abs(2 * eta - 1)) - noise.k * np.log1p(-noise.theta * (eta - 1) * x)
        down = np.log(np.maximum(np.abs(eta - 1), 1e-300) / np.abs(2 * eta - 1)) - noise.k * np.log1p(
            noise.theta * eta * x
        )
        sign = np.where(eta == 0, -1.0, 1.0)
        log_g = np.log(
            np.maximum(
                sign * np.exp(up) * np.sign(2 * eta - 1) + np.exp(down) * np.sign((eta - 1) * (2 * eta - 1)), 1e-300
            )
        )
        log_g[:, eta <= 1] = 0.0
        total += float(np.sum(special.logsumexp(weights + log_g, axis=1)))
    return total


def run() -> list[dict[str, object]]:
    """Rows of (what, ours, theirs, ratio)."""
    noise, rows = plrvo.GammaPLRV(k=40_000, theta=6e-5), []

    def bracket(dimension: int) -> None:
        _step.cache_clear()
        plrvo.epsilon(noise, plrvo.Workload(0.01, 300, 0.5, dimension), 1e-5)

    def certified(dimension: int) -> None:
        plrvo.Ledger().plus(noise, plrvo.Workload(0.01, 300, 0.5, dimension)).certified(1e-5)

    large, small = plrvo.Workload(0.01, 300, 0.5, 774_030_080), plrvo.Workload(0.01, 300, 0.5, 1_000_000)
    times = interleaved(
        {
            "bracket n=26,010": lambda: bracket(26_010),
            "bracket n=1e9": lambda: bracket(10**9),
            "certified n=26,010": lambda: certified(26_010),
            "certified n=1e9": lambda: certified(10**9),
            "published n=774,030,080": lambda: published_epsilon([(noise, large)], 1e-5),
            "published moment, n=774,030,080": lambda: published_moment(noise, large, 11),
        }
    )
    for name, timing in times.items():
        rows.append({"what": name, "ours": shown(timing.median), "theirs": "-", "ratio": ""})
    loop = interleaved({"loop": lambda: _loop_over_coordinates(noise, small, 11)}, turns=3)["loop"]
    agreement = published_moment(noise, small, 11) / _loop_over_coordinates(noise, small, 11) - 1
    extrapolated = loop.median * large.dimension / small.dimension
    ours = times["published moment, n=774,030,080"].median
    rows.append(
        {
            "what": f"published moment at n=774,030,080; loop at n=1e6 extrapolated (they agree to {agreement:.1e})",
            "ours": shown(ours),
            "theirs": shown(extrapolated),
            "ratio": f"{extrapolated / ours:,.0f}x faster",
        }
    )
    return rows
