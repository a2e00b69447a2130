"""So many kills and corruptions, from one seed, with every fault kind in between; the counts of what happened."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from checks.remembered import bounds_remembered
from checks.torture.audit import AuditTorture
from checks.torture.process import warm_up
from checks.torture.reproduce import ReproduceTorture
from checks.torture.train import Lost, TrainTorture


def run(
    place: Path, seed: int, kills: int, corruptions: int, minutes: float, say: Callable[[str], None]
) -> dict[str, Any]:
    """The counts, and a sentence for everything that was lost. Ends after so many minutes in any case.

    Children compute no bound that was known before they were forked: what is tried is files and processes.
    """
    with bounds_remembered():
        return _run(place, seed, kills, corruptions, minutes, say)


def _run(
    place: Path, seed: int, kills: int, corruptions: int, minutes: float, say: Callable[[str], None]
) -> dict[str, Any]:
    random, counts, lost = Random(seed), Counter[str](), list[str]()
    warm_up(random)
    started = time.monotonic()
    train = TrainTorture(_folder(place / "train"), random, counts)
    audit = AuditTorture(_folder(place / "audit"), random, counts)
    tables = ReproduceTorture(_folder(place / "reproduce"), random, counts)
    say(f"{train.seconds:.1f} s for a run that nothing happens to")
    rare = [train.clock, train.two_at_once, train.read_only]

    def attempt(scenario: Callable[[], object]) -> None:
        try:
            scenario()
        except Lost as error:
            lost.append(f"{getattr(scenario, '__name__', 'once')}: {error}")
            say(f"LOST {lost[-1]}")

    for scenario in (
        *rare,
        partial(train.once, "SIGTERM", "SIGTERM"),
        partial(train.once, "full disk", "disks full"),
        tables.interrupted,
    ):
        attempt(scenario)
    while counts["SIGKILL"] < kills or counts["corruptions"] < corruptions:
        if len(lost) > 20 or time.monotonic() - started > 60 * minutes:
            break
        if counts["corruptions"] * kills < counts["SIGKILL"] * corruptions or counts["SIGKILL"] >= kills:
            attempt(random.choice([train.corrupted, train.corrupted, audit.corrupted, tables.corrupted]))
        else:
            attempt(
                random.choice(
                    [train.interrupted] * 7 + [audit.interrupted] * 2 + [tables.interrupted] + [random.choice(rare)]
                )
            )
        say(f"{counts['SIGKILL']} kills, {counts['corruptions']} corruptions, {len(lost)} lost")
    return {
        "seed": seed,
        "code": train.references["sgd"].receipt["versions"]["plrvo_code"],
        "counts": dict(sorted(counts.items())),
        "lost": lost,
        "minutes": round((time.monotonic() - started) / 60, 1),
    }


def _folder(path: Path) -> Path:
    path.mkdir(parents=True)
    return path
