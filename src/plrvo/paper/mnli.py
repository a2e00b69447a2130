"""The setting of the search-space figures: MNLI, of which the paper prints nothing but the name.

Taken are the settings of its other text tasks: N = 392,702 pairs, batches of 1024, three epochs (T = 1151),
delta = 1/(2N), the 109,482,240 parameters of BERT-base, clips from 0.1 to 0.2. Gaussian noise beside it is certified by
its loss distribution, Gamma noise by the best of all methods.
"""

from __future__ import annotations

import math
from functools import cache

from plrvo.accounting import Ledger, Workload, calibrate
from plrvo.designer import Accountant, Problem, SearchSpace
from plrvo.noise import GammaPLRV, Gaussian
from plrvo.paper.entry import Numbers, four_epsilons
from plrvo.paper.flags import Flags, refutation

PAIRS, BATCH, EPOCHS, CLIP = 392_702, 1024, 3, 0.1
DIMENSION, DELTA = 109_482_240, 1 / (2 * PAIRS)
MAX_ORDER = 32  # lambda_max of the indicator region
BOTH = (Accountant.published, Accountant.certified)


def work_of(epochs: int = EPOCHS) -> Workload:
    """Fine-tuning for so many epochs."""
    return Workload(BATCH / PAIRS, math.ceil(epochs * PAIRS / BATCH), CLIP, DIMENSION)


@cache
def space_of(accountant: Accountant, epsilon: float, epochs: int = EPOCHS) -> SearchSpace:
    """The space of c0 to c4 in which this accountant decides c2."""
    return SearchSpace(Problem(work_of(epochs), 2 * CLIP, epsilon, DELTA, accountant), MAX_ORDER)


def edge(accountant: Accountant, epsilon: float, k: float, epochs: int = EPOCHS) -> float:
    """The largest theta that the budget allows at this k."""
    return space_of(accountant, epsilon, epochs).theta_bounds(k)[1]


@cache
def gaussian_distortion(epsilon: float, epochs: int = EPOCHS) -> float:
    """E|z| of the Gaussian noise that is certified for the budget."""
    return calibrate(Gaussian(CLIP), work_of(epochs), epsilon, DELTA).distortion


def at_published_edge(k: float, theta: float, budget: float, epochs: int = EPOCHS) -> tuple[Numbers, Flags]:
    """All epsilons of the noise that the published formula allows for a budget, and whether that is refuted."""
    bracket = Ledger().plus(GammaPLRV(k, theta), work_of(epochs)).epsilon(DELTA)
    return four_epsilons(budget, bracket), refutation(bracket)
