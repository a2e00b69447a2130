"""Tuning on private data, with its cost: a random number of private trials, of which the best is released.

    tuning = Tuning(Job("digits", epsilon=3.0), vary={"learning_rate": Range(0.1, 10, log=True)}, trials_mean=10)
    found = tuning.run(Path("runs/tuned"))

The certified epsilon is that of the whole search (docs/selection.md).
"""

from plrvo.tasks.tuning.space import Listed, Range, read_vary
from plrvo.tasks.tuning.tuning import Distribution, Tuning

__all__ = ["Distribution", "Listed", "Range", "Tuning", "read_vary"]
