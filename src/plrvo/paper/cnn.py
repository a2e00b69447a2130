"""The nine settings of the paper's CNN tables (MNIST and Fashion-MNIST)."""

from __future__ import annotations

from dataclasses import dataclass

from plrvo.accounting import Workload

CNN_DELTA = 1e-5


@dataclass(frozen=True)
class CnnRow:
    """One setting. `theta` is the value that gives the printed epsilon; the paper prints `printed_theta`."""

    clip: float
    theta: float
    printed_theta: float
    k: float
    printed_epsilon: float

    @property
    def workload(self) -> Workload:
        return Workload(sample_rate=0.01, steps=300, clip=self.clip, dimension=26_010)


# Rows 4 to 7 print theta ten times larger than their epsilon needs.
CNN_ROWS = (
    CnnRow(0.1, 1e-5, 1e-5, 60_000, 0.065),
    CnnRow(0.1, 5e-5, 5e-5, 30_000, 0.171),
    CnnRow(0.3, 8e-5, 8e-5, 10_000, 0.284),
    CnnRow(0.3, 8e-5, 8e-4, 20_000, 0.596),
    CnnRow(0.3, 5e-5, 5e-4, 40_000, 0.757),
    CnnRow(0.3, 6e-5, 6e-4, 40_000, 0.921),
    CnnRow(0.5, 3e-5, 3e-4, 50_000, 0.962),
    CnnRow(0.5, 3e-5, 3e-5, 60_000, 1.172),
    CnnRow(0.5, 6e-5, 6e-5, 40_000, 1.606),
)
