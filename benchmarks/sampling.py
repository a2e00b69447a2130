"""Drawing noise with the in-cache kernel, against torch's normal and against Gamma-then-Laplace."""

from __future__ import annotations

import torch

import plrvo
from benchmarks.timing import interleaved, shown

COUNT = 10_000_000


def run() -> list[dict[str, object]]:
    generator = torch.Generator().manual_seed(0)
    gamma, laplace = plrvo.GammaPLRV(k=100.0, theta=0.01), plrvo.Laplace(1.0)
    buffer = torch.empty(COUNT)

    def two_draws() -> torch.Tensor:
        u = torch.distributions.Gamma(100.0, 100.0).sample((COUNT,))
        return torch.distributions.Laplace(0.0, 1.0).sample((COUNT,)) / u

    times = interleaved(
        {
            "gamma": lambda: gamma.add_to([buffer], generator),
            "laplace": lambda: laplace.add_to([buffer], generator),
            "normal_": lambda: buffer.normal_(generator=generator),
            "two draws": two_draws,
        },
        turns=5,
    )
    normal, naive = times["normal_"].median, times["two draws"].median
    rows = []
    for name in ("gamma", "laplace"):
        ours = times[name].median
        rows.append(
            {
                "what": f"1e7 {name} values, added to a buffer, against torch normal_ into one",
                "ours": shown(ours),
                "theirs": shown(normal),
                "ratio": f"{ours / normal:.2f}x the time",
            }
        )
    ours = times["gamma"].median
    rows.append(
        {
            "what": "1e7 gamma values against Gamma, then Laplace",
            "ours": shown(ours),
            "theirs": shown(naive),
            "ratio": f"{naive / ours:.1f}x faster",
        }
    )
    return rows
