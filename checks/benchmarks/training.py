"""One training step: ours with Gamma-PLRV noise, Opacus's two modes with Gaussian noise, and no privacy."""

from __future__ import annotations

from checks.benchmarks.steps import CNN, CONTENDERS, GHOST, HOOKS, MINILM, OURS, PLAIN, RESNET, peak_memory, stepper
from checks.benchmarks.timing import interleaved, shown

CASES = {
    "CNN of 26,010 parameters, batch 600": (CNN, 15),
    "ResNet-18, batch 32": (RESNET, 7),
    "MiniLM, all layers, batch 32, length 64": (MINILM, 7),
}


def run() -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for name, (case, turns) in CASES.items():
        times = interleaved({contender: stepper(contender, case) for contender in CONTENDERS}, turns)
        memory = {contender: peak_memory(contender, case) for contender in CONTENDERS}
        ours, plain = times[OURS], times[PLAIN]
        best = min((HOOKS, GHOST), key=lambda mode: times[mode].median)
        rows.append(
            {
                "what": f"step, {name}, against {best} and no privacy",
                "ours": f"{shown(ours.median)} (spread {shown(ours.spread)})",
                "theirs": "; ".join(
                    f"{contender} {shown(times[contender].median)} (spread {shown(times[contender].spread)})"
                    for contender in (HOOKS, GHOST, PLAIN)
                ),
                "ratio": f"{times[best].median / ours.median:.2f}x faster, "
                f"{ours.median / plain.median:.2f}x no privacy",
                "model": name,
                "seconds": {contender: times[contender].median for contender in CONTENDERS},
                "spread": {contender: times[contender].spread for contender in CONTENDERS},
                "megabytes": memory,
            }
        )
        rows.append(
            {
                "what": f"peak memory of the process, {name}",
                "ours": f"{memory[OURS]:.0f} MB",
                "theirs": "; ".join(f"{contender} {memory[contender]:.0f} MB" for contender in (HOOKS, GHOST, PLAIN)),
                "ratio": f"{memory[OURS] / memory[PLAIN]:.2f}x no privacy",
            }
        )
    return rows
