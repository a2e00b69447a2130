"""What was dropped between things that stay goes back to the system."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from plrvo.training import memory
from plrvo.training.memory import give_back


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
    monkeypatch.setattr(memory, "_trim", lambda: None)
    give_back()
    assert memory._trim() is None
