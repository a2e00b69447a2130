"""A plan on an integer grid: how fine the grid is, and what rounding to it costs.

The grid's width gamma is a power of two, so that scaling by it rounds nothing. By default it is the largest one with

    gamma <= 2^-20 / sqrt(I)          a millionth of the noise's own width, and
    gamma sqrt(n)/2 <= 2^-14 C        rounding n coordinates lengthens a gradient by 0.006 % at most.

Neither depends on the data. A noise that was fitted to a budget is widened by as much as the gradients grow, which
leaves every ratio of noise to gradient, and so epsilon, as it was; a noise that was given stays, and epsilon grows.
"""

from __future__ import annotations

import math

from plrvo.accounting import Workload
from plrvo.accounting.plan import Plan
from plrvo.noise import GridNoise, Noise
from plrvo.noise.grid import FINEST
from plrvo.validate import InvalidArgument, positive

_MOST_GROWTH = 0.1  # of the clip: beyond, rounding would be the larger part of what is paid for
_LONGEST = 2.0**31  # a gradient's length in cells, so that its square fits a signed 64-bit integer


def default_cell(noise: Noise, work: Workload) -> float:
    """The default width of the grid.

    >>> from plrvo import Laplace
    >>> default_cell(Laplace(1.0), Workload(sample_rate=0.01, steps=300, clip=1.0, dimension=26_010)) == 2.0**-21
    True
    """
    width = 1 / math.sqrt(noise.fisher_information())
    wanted = min(width * 2.0**-20, work.clip * 2.0**-13 / math.sqrt(work.dimension))
    finest = 2.0 ** math.ceil(math.log2(width / FINEST))
    return max(2.0 ** math.floor(math.log2(wanted)), finest)


def on_grid(plan: Plan, cell: float | None = None) -> Plan:
    """The plan with its noise on a grid of width `cell`, certified anew."""
    if plan.noise.cell:
        if cell not in (None, plan.noise.cell):
            raise InvalidArgument("grid", cell, f"{plan.noise.cell}, which the plan was certified with")
        return plan
    if plan.correlation is not None:
        raise InvalidArgument("exact", True, "a plan without correlation: correlated noise is not on a grid")
    noise, work = plan.noise, plan.workload
    if cell is None:
        GridNoise(noise, 1 / math.sqrt(noise.fisher_information()))  # refuses a noise that has no exact sampler
        cell = default_cell(noise, work)
    positive(grid=cell)
    _check_cell(cell, work)
    if plan.epsilon is not None:
        noise = noise.scaled(GridNoise(noise, cell).sensitivity(work.clip, work.dimension) / work.clip * (1 + 1e-9))
    return Plan.certify(GridNoise(noise, cell), work, plan.delta, plan.epsilon, clipping=plan.clipping)


def longest_square(noise: GridNoise, clip: float, dimension: int) -> int:
    """The largest squared length, in cells, of a rounded gradient: (C/gamma + sqrt(n)/2)^2, a hair less."""
    longest = math.floor((clip / noise.cell + math.sqrt(dimension) / 2) ** 2 * (1 - 2.0**-40))
    if longest >= 1 << 62:  # depends on the plan alone; sums of squares are compared with it in 64-bit integers
        raise InvalidArgument("grid", noise.cell, "a wider one: the squares of gradients would overflow 64 bits")
    return longest


def _check_cell(cell: float, work: Workload) -> None:
    coarsest = 2 * _MOST_GROWTH * work.clip / math.sqrt(work.dimension)
    if cell > coarsest:
        raise InvalidArgument(
            "grid",
            cell,
            f"at most {coarsest:.3g}: a coarser one lengthens gradients of {work.dimension} coordinates "
            "by more than 10 %",
        )
    finest = work.clip * (1 + _MOST_GROWTH) / _LONGEST
    if cell < finest:
        raise InvalidArgument("grid", cell, f"at least {finest:.3g}, or the squares of gradients overflow 64 bits")
