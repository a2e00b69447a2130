"""What was dropped between things that stay goes back to the system."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from plrvo.training import memory
from plrvo.training.memory import give_back, keep


def resident() -> float:
    """Megabytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 2**20


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="of the GNU C library")
def test_pieces_between_others_that_stay_go_back() -> None:
    pieces = [bytearray(60_000) for _ in range(4000)]
    full, kept = resident(), pieces[::50]
    del pieces
    left = resident()
    give_back()
    assert len(kept) == 80
    assert full - resident() > 150  # of 229, of which 4.6 stay
    assert resident() <= left


def test_nothing_happens_where_the_allocator_cannot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_of_library", lambda name: None)
    give_back()
    assert not keep.__wrapped__()


@pytest.mark.parametrize("name", ["MALLOC_TRIM_THRESHOLD_", "MALLOC_ARENA_MAX", "GLIBC_TUNABLES"])
def test_a_users_own_settings_stay(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(memory, "_of_library", lambda _: lambda *given: asked.append(given) or 1)
    monkeypatch.setenv(name, "")
    assert not keep.__wrapped__()
    assert not asked


_STEPS = """
import resource, sys
import torch
from plrvo.training.memory import give_back, keep, _of_library
assert _of_library("malloc_trim") is not None and (sys.argv[1] == "as it is" or keep())

def step():
    made = [torch.ones(2_000_000) for _ in range(20)]  # 160 MB, in pieces that share the library's memory

for _ in range(8):
    step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
step()
fresh = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
give_back()
resident = 4096 * int(open("/proc/self/statm").read().split()[1])
held = torch.ones(1)
step()
give_back()
print(fresh, (4096 * int(open("/proc/self/statm").read().split()[1]) - resident) >> 20)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="of the GNU C library")
def test_a_step_uses_the_memory_of_the_last_one_again() -> None:
    """Pages that the system has to clear, of 40,000 that a step writes to; and all goes back when it is asked for."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_"))}
    command = [sys.executable, "-c", _STEPS, "kept"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    fresh, left = map(int, done.stdout.split())
    assert fresh < 400
    assert left < 16
