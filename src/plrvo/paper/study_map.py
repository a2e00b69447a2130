"""The map: where Laplace and Gamma noise earn their place beside Gaussian noise of the same certified epsilon.

One thing is changed at a time: dimension, epsilon, delta, steps and sampling. Nothing is trained. A noise is measured
by what it leaves of a release, over what Gaussian noise leaves:

- *error*, the ratio of the mean absolute errors E|z|, and *deviation*, that of the standard deviations;
- *error after the score*, the ratio of 1/sqrt(Fisher information): what a small signal loses once the noise's score has
  been applied to the release, which is free;
- *alignment*, by simulation: the cosine between a signal of norm C and the score of its release, for signals that are
  spread evenly over all coordinates, or heavy-tailed (Student t with 1.5 degrees of freedom).

Below 1 the noise is better than Gaussian noise; for alignment it is better above 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from plrvo.accounting import Workload
from plrvo.noise import Noise
from plrvo.noise.base import Array
from plrvo.paper.analytic import needs
from plrvo.paper.entry import Context, Entry, Group, Measured, Panel, Result, Row, Scale, four_epsilons, having
from plrvo.paper.training import fitted
from plrvo.paper.wording import share, spread

NOISES = ("laplace", "gamma")
RELEASE = Workload(sample_rate=1.0, steps=1, clip=1.0, dimension=1)
TRAINING = Workload(sample_rate=0.01, steps=1000, clip=1.0, dimension=100_000)
EPSILON, DELTA, MANY = 1.0, 1e-5, 1000
MOST_SIMULATED, DRAWS, TAIL = 100_000, 40, 1.5
SIGNALS: dict[str, Callable[[np.random.Generator, int], Array]] = {
    "even": lambda generator, n: generator.choice([-1.0, 1.0], n),
    "heavy": lambda generator, n: generator.standard_t(TAIL, n),
}
_COLUMNS = (
    "laplace_error",
    *(f"gamma_{what}" for what in ("error", "deviation", "error_after_score")),
    *(f"gamma_aligned_{signal}" for signal in SIGNALS),
)


@dataclass(frozen=True)
class Place:
    """A place on the map: `axis` is what is changed, and `at` its value there."""

    axis: str
    at: float
    work: Workload
    epsilon: float = EPSILON
    delta: float = DELTA

    @property
    def key(self) -> str:
        return f"{self.axis}-{self.at:g}".replace(" ", "-").replace(",", "")


def places() -> list[Place]:
    """Around one release of one coordinate, and around a training run."""
    return [
        *(Place("dimension, one release", n, replace(RELEASE, dimension=n)) for n in (1, 2, 4, 8, 16, 100, 10_000)),
        *(Place("dimension, training", n, replace(TRAINING, dimension=n)) for n in (1, 10, 100, 1000, 100_000)),
        *(Place("epsilon, one release", e, RELEASE, epsilon=e) for e in (0.1, 0.3, 1.0, 3.0, 10.0)),
        *(Place("epsilon, training", e, TRAINING, epsilon=e) for e in (0.1, 0.3, 1.0, 3.0, 8.0)),
        *(Place("delta, one release", d, RELEASE, delta=d) for d in (1e-3, 1e-5, 1e-7, 1e-10, 1e-14)),
        *(Place("steps, training", t, replace(TRAINING, steps=t)) for t in (1, 10, 100, 1000, 10_000)),
        *(Place("sampling rate, training", q, replace(TRAINING, sample_rate=q, steps=100)) for q in (1e-3, 0.1, 1.0)),
    ]


def _measure(place: Place, context: Context) -> Measured:
    plans = {kind: fitted(kind, place.work, place.epsilon, place.delta) for kind in ("gaussian", *NOISES)}
    noises: dict[str, Noise] = {kind: plan.noise for kind, plan in plans.items()}
    gaussian, gamma = noises["gaussian"], noises["gamma"]
    values = {
        "laplace_error": noises["laplace"].distortion / gaussian.distortion,
        "gamma_error": gamma.distortion / gaussian.distortion,
        "gamma_deviation": (gamma.variance / gaussian.variance) ** 0.5,
        "gamma_error_after_score": (gaussian.fisher_information() / gamma.fisher_information()) ** 0.5,
    }
    dimension = min(place.work.dimension, MOST_SIMULATED)
    for number, signal in enumerate(SIGNALS):
        after_score, of_gaussian = (
            aligned(noise, signal, place.work.clip, dimension, np.random.default_rng((context.seed, number)))
            for noise in (gamma, gaussian)
        )
        values[f"gamma_aligned_{signal}"] = after_score / of_gaussian
    details = {
        "noise": {kind: noise.to_dict() for kind, noise in noises.items()},
        "method": {kind: plan.bracket.method for kind, plan in plans.items()},
        "workload": place.work.to_dict(),
        "delta": place.delta,
        "simulated_dimension": dimension,
    }
    return Measured(values, four_epsilons(None, plans["gamma"].bracket), details=details)


def aligned(noise: Noise, signal: str, clip: float, dimension: int, generator: np.random.Generator) -> float:
    """The cosine between a signal of norm `clip` and the score of its release.

    It is the mean of the inner product over the root of the mean square. From the inner product that of the noise alone
    is taken away, whose mean is 0: what is left does not drown in the noise.
    """
    inner, squares = 0.0, 0.0
    for _ in range(DRAWS):
        direction = SIGNALS[signal](generator, dimension)
        direction /= np.linalg.norm(direction)
        alone = noise.sample(dimension, generator)
        released, of_noise = (np.asarray(noise.score(z)) for z in (clip * direction + alone, alone))
        inner += float(direction @ (released - of_noise))
        squares += float(released @ released)
    return inner / (DRAWS * squares) ** 0.5


def _rows(scale: Scale) -> Sequence[Row]:
    return [
        Row(
            key=place.key,
            label=f"{place.axis}: {place.at:g}",
            parameters={"axis": place.axis, "at": place.at, "epsilon": place.epsilon},
            printed=dict.fromkeys(_COLUMNS),
            measure=partial(_measure, place),
        )
        for place in (places()[:2] if scale is Scale.smoke else places())
    ]


def findings(rows: Sequence[Result]) -> list[str]:
    """Where each noise has less error than Gaussian noise, and what the score makes of it in training."""
    told = [_won(kind, rows) for kind in NOISES]
    training = [row["measured"] for row in rows if row["details"]["workload"]["dimension"] >= MANY]
    deviation, after, even, heavy = (
        spread([values[f"gamma_{name}"] for values in training], ".2f")
        for name in ("deviation", "error_after_score", "aligned_even", "aligned_heavy")
    )
    told.append(
        f"From {MANY:,} coordinates on Gamma noise has {deviation} times the deviation of Gaussian noise; after its "
        f"score the error of a small signal is {after} times. A release is then {even} times as well aligned with a "
        f"signal that is spread evenly, and {heavy} times with a heavy-tailed one, whose single large coordinates the "
        "score cuts."
    )
    told.append("Where delta has to be 0 there is no such comparison: Gaussian noise has no guarantee then.")
    return told


def _won(kind: str, rows: Sequence[Result]) -> str:
    better = sum(row["measured"][f"{kind}_error"] < 1 for row in rows)
    least = min(rows, key=lambda row: row["measured"][f"{kind}_error"])
    return (
        f"{kind.capitalize()} noise has less error than Gaussian noise in {share(better, len(rows), 'place')}. Least "
        f"is {least['measured'][f'{kind}_error']:.2f} times ({least['label']})."
    )


# What changes the order of noises; along the others nothing much happens.
_DRAWN = ("dimension, one release", "dimension, training", "epsilon, one release", "delta, one release")
ENTRIES = (
    Entry(
        name="study-map",
        title="Where Laplace and Gamma noise earn their place",
        where="beside Gaussian noise of the same certified epsilon, one thing changed at a time",
        rows=_rows,
        needs=needs(5, 5),
        panels=tuple(
            Panel(
                "at",
                ("laplace_error", "gamma_error", "gamma_error_after_score"),
                axis.split(",")[0],
                "error over that of Gaussian noise",
                title=axis,
                xlog=True,
                only=having("axis", axis),
                paint=lambda axes, rows: axes.axhline(1.0, color="#888", linewidth=0.8),  # where both are the same
            )
            for axis in _DRAWN
        ),
        findings=findings,
        stand_in=dict.fromkeys(Scale, "accountants and simulated releases; nothing is trained"),
        group=Group.study,
    ),
)
