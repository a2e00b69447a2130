"""The pictures of the guide to choosing noise: the search space, where a shape wins, and the predictor."""

from pathlib import Path

import numpy as np
from docs.figures.both import write_both

import plrvo
from plrvo.designer import SearchSpace, ThetaPredictor, pictures, winning_map
from plrvo.designer.predictor import configurations

_IMAGES = Path(__file__).parents[1] / "images"


def main() -> None:
    """Draw docs/images/design-space.png, design-map.png and design-predictor.png."""
    work = plrvo.Workload(sample_rate=0.04, steps=1250, clip=0.1, dimension=26_010)
    plan = plrvo.design(work, epsilon=1.0, delta=1e-5)
    write_both(pictures.search_space(SearchSpace(plan.problem), plan.point), _IMAGES / "design-space.png", colours=256)

    work = plrvo.Workload(sample_rate=0.01, steps=300, clip=1.0, dimension=1)
    epsilons, dimensions = np.geomspace(0.25, 8, 11).tolist(), [1, 2, 3, 4, 6, 8, 12, 20, 40, 100, 300, 1000]
    found = winning_map(work, 1e-5, epsilons, dimensions, shapes=(3.0, 6.0, 20.0), quick=True)  # else half an hour
    title = "Laplace and Gamma-PLRV against Gaussian noise, q = 0.01, T = 300, by moments"
    write_both(pictures.winning_map(found, title), _IMAGES / "design-map.png", colours=256)

    trained = ThetaPredictor.fit(configurations(2000, np.random.default_rng(0)), np.random.default_rng(1))
    write_both(pictures.predictor(trained), _IMAGES / "design-predictor.png")


if __name__ == "__main__":
    main()
