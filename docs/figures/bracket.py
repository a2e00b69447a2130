"""The picture of the README: the three epsilons over the noise, at the paper's CNN setting."""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from docs.figures.both import write_both

import plrvo
from plrvo.appearance import CERTIFIED, LOWER, PUBLISHED


def main() -> None:
    """Draw docs/images/bracket.png."""
    scales = np.geomspace(0.45, 20, 40)
    work = plrvo.Workload(sample_rate=0.01, steps=300, clip=1.0, dimension=26_010)
    brackets = [plrvo.epsilon(plrvo.GammaPLRV(k=40_000, theta=1 / (40_000 * b)), work, delta=1e-5) for b in scales]
    certified = np.array([b.certified for b in brackets])
    lower = np.array([b.lower for b in brackets])
    published = np.array([b.published for b in brackets])

    figure, axes = plt.subplots(figsize=(7.2, 4.2))
    axes.fill_between(scales, lower, certified, color=CERTIFIED.colour, alpha=0.18, label="where the true epsilon lies")
    axes.plot(scales, certified, color=CERTIFIED.colour, label="certified (proved upper bound)")
    axes.plot(scales, lower, color=LOWER.colour, linestyle=LOWER.dashes, label="lower (an attacker reaches it)")
    axes.plot(
        scales, published, color=PUBLISHED.colour, linestyle=PUBLISHED.dashes, label="published (the paper's formula)"
    )
    refuted = published < lower
    axes.fill_between(scales[refuted], published[refuted], lower[refuted], color=PUBLISHED.colour, alpha=0.25)
    first = int(np.argmax(~refuted)) - 1
    axes.annotate(
        "published is refuted",
        xy=(scales[first // 2], np.sqrt(published[first // 2] * lower[first // 2])),
        xytext=(0.95, 8.0),
        color=PUBLISHED.colour,
        arrowprops={"arrowstyle": "->", "color": PUBLISHED.colour},
    )
    axes.set(
        xscale="log",
        yscale="log",
        xlabel="noise per coordinate / clip   (more noise to the right)",
        ylabel="epsilon at delta = 1e-5",
        title="Gamma-PLRV noise, CNN of the paper: q = 0.01, T = 300, n = 26,010",
    )
    axes.set_xticks([0.5, 1, 2, 5, 10, 20], ["0.5", "1", "2", "5", "10", "20"])
    axes.set_yticks([0.03, 0.1, 0.3, 1, 3, 10], ["0.03", "0.1", "0.3", "1", "3", "10"])
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    write_both(figure, Path(__file__).parents[1] / "images" / "bracket.png", dpi=150)


if __name__ == "__main__":
    main()
