"""The paper's CNN tables (MNIST and Fashion-MNIST): nine settings, with the accuracies that the paper prints."""

from __future__ import annotations

from dataclasses import dataclass

from plrvo.accounting import Workload, epsilon
from plrvo.noise import GammaPLRV
from plrvo.paper.flags import Flag, Flags
from plrvo.paper.wording import told

CNN_DELTA = 1e-5
TOLERANCE = 0.02  # relative, of a printed epsilon: printed digits are cut, and the formula's order not always searched


@dataclass(frozen=True)
class Printed:
    """Accuracies in per cent, as mean and spread over five trials."""

    gaussian: float
    gaussian_spread: float
    gamma: float
    gamma_spread: float


@dataclass(frozen=True)
class CnnRow:
    """One setting. `theta` is the value that gives the printed epsilon; the paper prints `printed_theta`."""

    clip: float
    theta: float
    printed_theta: float
    k: float
    printed_epsilon: float
    mnist: Printed
    fashion: Printed

    @property
    def workload(self) -> Workload:
        return Workload(sample_rate=0.01, steps=300, clip=self.clip, dimension=26_010)

    @property
    def noise(self) -> GammaPLRV:
        return GammaPLRV(self.k, self.theta)

    @property
    def as_printed(self) -> float | None:
        """The published epsilon of the printed parameters."""
        return epsilon(GammaPLRV(self.k, self.printed_theta), self.workload, CNN_DELTA).published


def mismatch(printed: float, found: float | None) -> bool:
    """Whether the formula misses the printed value by more than digits explain."""
    return found is None or abs(found - printed) > TOLERANCE * printed


def unlike_printed(printed: float, found: float | None, certified: bool = False) -> Flags:
    """A flag where the printed parameters do not give the printed epsilon: by the published formula, or certified."""
    if not mismatch(printed, found):
        return {}
    how, by = ("certify", "certified") if certified else ("give, by the published formula,", "published")
    gives = "no finite epsilon" if found is None else f"epsilon {told(by, found)}"
    return {Flag.misprinted: f"the printed parameters {how} {gives}, not {printed:g}"}


# Rows 4 to 7 print theta ten times larger than their epsilon needs.
CNN_ROWS = (
    CnnRow(0.1, 1e-5, 1e-5, 60_000, 0.065, Printed(66.56, 6.37, 88.78, 1.06), Printed(59.28, 2.79, 70.72, 0.61)),
    CnnRow(0.1, 5e-5, 5e-5, 30_000, 0.171, Printed(82.20, 2.40, 93.38, 0.90), Printed(68.19, 1.91, 73.42, 1.49)),
    CnnRow(0.3, 8e-5, 8e-5, 10_000, 0.284, Printed(88.53, 2.11, 89.96, 0.95), Printed(69.77, 1.67, 72.34, 0.82)),
    CnnRow(0.3, 8e-5, 8e-4, 20_000, 0.596, Printed(91.44, 1.65, 93.85, 0.74), Printed(72.34, 0.67, 73.67, 1.29)),
    CnnRow(0.3, 5e-5, 5e-4, 40_000, 0.757, Printed(92.26, 0.26, 94.30, 0.51), Printed(72.64, 0.79, 74.57, 0.56)),
    CnnRow(0.3, 6e-5, 6e-4, 40_000, 0.921, Printed(92.65, 0.46, 94.81, 0.13), Printed(73.57, 0.64, 75.49, 0.82)),
    CnnRow(0.5, 3e-5, 3e-4, 50_000, 0.962, Printed(92.87, 0.35, 93.69, 0.56), Printed(73.24, 0.61, 74.48, 0.57)),
    CnnRow(0.5, 3e-5, 3e-5, 60_000, 1.172, Printed(92.78, 0.18, 94.37, 0.65), Printed(73.04, 0.84, 74.72, 0.90)),
    CnnRow(0.5, 6e-5, 6e-5, 40_000, 1.606, Printed(93.73, 0.43, 94.91, 0.43), Printed(74.25, 0.53, 76.25, 0.73)),
)
