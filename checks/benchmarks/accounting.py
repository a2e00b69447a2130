"""The accountants: brackets by tight certificates beside dp-accounting's Gaussian, and published against a loop.

In seconds of CPU time.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
from scipy import special

import plrvo
from checks.benchmarks.cold import dp_epsilon, forget
from checks.benchmarks.timing import interleaved, shown
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


DELTA, DIMENSION = 1e-5, 26_010
SETTINGS = ((1.2, 0.01, 300), (0.5, 0.01, 5000))  # clip over width, rate, steps: one by its profile, one by a gift
NOISES = {
    "Gaussian": plrvo.Gaussian(1.0),
    "Laplace": plrvo.Laplace(1.0),
    "Gamma, k = 10": plrvo.GammaPLRV(k=10.0, theta=0.1),
    "Gamma, k = 40,000": plrvo.GammaPLRV(k=40_000.0, theta=1 / 40_000),
}


def _bracket(noise: plrvo.Noise, clip: float, rate: float, steps: int, dimension: int = DIMENSION) -> None:
    plrvo.epsilon(noise, plrvo.Workload(rate, steps, clip, dimension), DELTA)


def _cold(*arguments: object) -> Callable[[], None]:
    def first() -> None:
        forget()
        _bracket(*arguments)  # type: ignore[arg-type]

    return first


def _warm(noise: plrvo.Noise, clip: float, rate: float, steps: int) -> Callable[[], None]:
    """The noise and the clip are known, the number of steps is another one each time."""
    taken = steps

    def next_one() -> None:
        nonlocal taken
        taken += 1
        _bracket(noise, clip, rate, taken)

    return next_one


def _certificates(clip: float, rate: float, steps: int) -> list[dict[str, object]]:
    """Cold and warm brackets of a setting, beside the Gaussian epsilon of dp-accounting."""
    cold = {f"{name}, first": _cold(noise, clip, rate, steps) for name, noise in NOISES.items()}
    cold["Laplace, first, n = 1e4"] = _cold(NOISES["Laplace"], clip, rate, steps, 10_000)
    cold["Laplace, first, n = 1e9"] = _cold(NOISES["Laplace"], clip, rate, steps, 10**9)
    reference = {"dp": lambda: dp_epsilon(1 / clip, rate, steps, DELTA)}
    times = interleaved({**cold, **reference}, turns=3, clock=time.process_time)
    warm = {f"{name}, next": _warm(noise, clip, rate, steps) for name, noise in NOISES.items()}
    after = interleaved({**warm, **reference}, turns=3, clock=time.process_time)
    rows: list[dict[str, object]] = []
    for found, names in ((times, cold), (after, warm)):
        for name in names:
            ours, theirs = found[name].median, found["dp"].median
            what = (
                f"bracket, {name}: C/b = {clip:g}, q = {rate:g}, T = {steps:,}; dp-accounting's Gaussian epsilon (CPU)"
            )
            rows.append(
                {"what": what, "ours": shown(ours), "theirs": shown(theirs), "ratio": f"{ours / theirs:.2f} of it"}
            )
    small, large = times["Laplace, first, n = 1e4"].median, times["Laplace, first, n = 1e9"].median
    what = f"bracket, Laplace, first: n = 1e9 against n = 1e4; C/b = {clip:g}, q = {rate:g}, T = {steps:,}"
    return [*rows, {"what": what, "ours": shown(large), "theirs": shown(small), "ratio": f"{large / small:.2f} of it"}]


def _long_runs() -> list[dict[str, object]]:
    """Runs of up to 1e12 steps, their noise as wide as makes their epsilons alike."""
    rows: list[dict[str, object]] = []
    for steps in (10**6, 10**9, 10**12):
        noise = plrvo.Laplace(0.02 * steps**0.5)
        times = interleaved({"ours": _cold(noise, 1.0, 0.01, steps)}, turns=3, clock=time.process_time)
        found = plrvo.epsilon(noise, plrvo.Workload(0.01, steps, 1.0, DIMENSION), DELTA)
        what = f"bracket, Laplace, first: T = {steps:.0e}, certified {found.certified:.3f}, lower {found.lower:.3f}"
        rows.append({"what": what, "ours": shown(times["ours"].median), "theirs": "-", "ratio": ""})
    return rows


def run() -> list[dict[str, object]]:
    """Rows of (what, ours, theirs, ratio)."""
    noise = plrvo.GammaPLRV(k=40_000, theta=6e-5)
    rows = [row for setting in SETTINGS for row in _certificates(*setting)] + _long_runs()
    large, small = plrvo.Workload(0.01, 300, 0.5, 774_030_080), plrvo.Workload(0.01, 300, 0.5, 1_000_000)
    times = interleaved(
        {
            "published n=774,030,080": lambda: published_epsilon([(noise, large)], DELTA),
            "published moment, n=774,030,080": lambda: published_moment(noise, large, 11),
        },
        clock=time.process_time,
    )
    rows += [{"what": name, "ours": shown(timing.median), "theirs": "-", "ratio": ""} for name, timing in times.items()]
    loop = interleaved({"loop": lambda: _loop_over_coordinates(noise, small, 11)}, turns=3, clock=time.process_time)[
        "loop"
    ]
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
