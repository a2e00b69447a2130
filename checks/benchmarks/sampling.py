"""Drawing noise with the in-cache kernels from a keystream, against torch's normal and against Gamma-then-Laplace."""

from __future__ import annotations

import torch

import plrvo
from checks.benchmarks.timing import interleaved, shown
from plrvo.noise import Keystream, Noise

COUNTS = {"1e7": 10_000_000, "1e8": 100_000_000}
NOISES: dict[str, Noise] = {
    "gaussian": plrvo.Gaussian(1.0),
    "laplace": plrvo.Laplace(1.0),
    "gamma": plrvo.GammaPLRV(k=100.0, theta=0.01),
}


def run() -> list[dict[str, object]]:
    return [row for name in COUNTS for row in _against_normal(name)] + [_against_two_draws()]


def _against_normal(name: str) -> list[dict[str, object]]:
    """All noises with one thread and two, and torch's normal, which takes one: in turns of the same run."""
    keystream, generator, buffer = Keystream(), torch.Generator().manual_seed(0), torch.empty(COUNTS[name])
    threads_before = torch.get_num_threads()

    def added(noise: Noise, threads: int) -> None:
        torch.set_num_threads(threads)
        noise.add_to([buffer], keystream)

    contenders = {
        (kind, threads): (lambda noise=noise, threads=threads: added(noise, threads))
        for kind, noise in NOISES.items()
        for threads in (1, 2)
    }
    labels = {f"{kind} {threads}": contender for (kind, threads), contender in contenders.items()}
    try:
        times = interleaved({**labels, "normal_": lambda: buffer.normal_(generator=generator)}, turns=5)
    finally:
        torch.set_num_threads(threads_before)
    normal = times["normal_"].median
    return [
        {
            "what": f"{name} {kind} values, added to a buffer by {threads} thread{'s' * (threads > 1)}, "
            "against torch normal_ into one",
            "ours": shown(times[f"{kind} {threads}"].median),
            "theirs": shown(normal),
            "ratio": f"{times[f'{kind} {threads}'].median / normal:.2f}x the time",
        }
        for kind, threads in contenders
    ]


def _against_two_draws() -> dict[str, object]:
    count, keystream = COUNTS["1e7"], Keystream()
    buffer = torch.empty(count)

    def two_draws() -> torch.Tensor:
        u = torch.distributions.Gamma(100.0, 100.0).sample((count,))
        return torch.distributions.Laplace(0.0, 1.0).sample((count,)) / u

    times = interleaved({"ours": lambda: NOISES["gamma"].add_to([buffer], keystream), "two draws": two_draws}, turns=5)
    return {
        "what": "1e7 gamma values against Gamma, then Laplace",
        "ours": shown(times["ours"].median),
        "theirs": shown(times["two draws"].median),
        "ratio": f"{times['two draws'].median / times['ours'].median:.1f}x faster",
    }
