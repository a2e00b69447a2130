"""What theta and k of Gamma-PLRV noise control: entropy and distortion, each over one of them with the other fixed.

The paper says that theta controls entropy (privacy, learnability) and k distortion (accuracy). Measured, by quadrature
from the density: the differential entropy of the noise, and E|z|, beside the paper's 1/((k-1) theta). The entropy of
the seed (the Gamma distribution of u) stands beside them, since "entropy" may mean it. What a parameter controls is
read as a slope, per unit of its logarithm. The paper prints no values: k = 20 and theta = 0.05 are ours.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise

import numpy as np
from scipy import special

from plrvo.noise import GammaPLRV
from plrvo.paper.analytic import needs, points
from plrvo.paper.entry import Context, Entry, Measured, Panel, Result, Row, Scale
from plrvo.paper.flags import Flag, flagged
from plrvo.paper.wording import share

FIXED = {"k": 20.0, "theta": 0.05}
RANGE = {"theta": (0.0125, 0.2), "k": (5.0, 80.0)}
MEASURES = ("entropy", "distortion", "seed_entropy")
_WIDEST_SHOWN, _CURVE_POINTS = 8.0, 33
_AGREE = 1e-6


def mean_of(value: Callable[[float], float], noise: GammaPLRV) -> float:
    """E[value(|z|)] by quadrature over the density, in units of the seed's mean scale."""
    from scipy import integrate  # here, so that the command line does not wait for it

    unit = 1 / (noise.k * noise.theta)

    def integrand(t: float) -> float:
        return 2 * unit * math.exp(float(noise.log_density(unit * t))) * value(unit * t)

    ends = (0.0, 1.0, 10.0, 100.0, math.inf)
    return sum(float(integrate.quad(integrand, low, high, epsrel=1e-10)[0]) for low, high in pairwise(ends))


def entropy(noise: GammaPLRV) -> float:
    """The differential entropy of one coordinate, -E log p(z)."""
    return mean_of(lambda t: -float(noise.log_density(t)), noise)


def seed_entropy(noise: GammaPLRV) -> float:
    """The differential entropy of u, k + log theta + log Gamma(k) + (1 - k) psi(k)."""
    k = noise.k
    return float(k + math.log(noise.theta) + special.gammaln(k) + (1 - k) * special.digamma(k))


def _curve(noise: GammaPLRV) -> list[list[float]]:
    """The density around 0, on points that are closer where it is peaked."""
    side = np.linspace(0, 1, _CURVE_POINTS // 2 + 1) ** 2 * _WIDEST_SHOWN
    z = np.concatenate([-side[:0:-1], side])
    return [[round(float(x), 4), float(f"{y:.4g}")] for x, y in zip(z, np.exp(noise.log_density(z)), strict=True)]


def _measure(swept: str, noise: GammaPLRV, shown: bool, context: Context) -> Measured:
    distortion = mean_of(lambda t: t, noise)
    printed = 1 / ((noise.k - 1) * noise.theta)
    remark = f"E|z| is {distortion:.6g}, not 1/((k-1) theta) = {printed:.6g}"
    flags = flagged(Flag.differs, remark, abs(distortion / printed - 1) > _AGREE)
    values = {
        "entropy": entropy(noise),
        "distortion": distortion,
        "seed_entropy": seed_entropy(noise),
    }
    details = {
        # The paper's definition of the density has b itself, not u = 1/b, Gamma distributed: E|z| = E b.
        "distortion_of_printed_density": noise.k * noise.theta,
        "score_information": noise.fisher_information(),
    }
    return Measured(values, {}, flags, details | ({f"density over {swept}": _curve(noise)} if shown else {}))


def _rows(scale: Scale) -> Sequence[Row]:
    rows = []
    for swept, (low, high) in RANGE.items():
        values = points(scale, low, high, 9, 33)
        step = max(1, (len(values) - 1) // 4)
        for i, value in enumerate(values):
            k, theta = (value, FIXED["theta"]) if swept == "k" else (FIXED["k"], value)
            rows.append(
                Row(
                    key=f"{swept}-{value:g}",
                    label=f"{swept} = {value:g}",
                    parameters={"swept": swept, "k": k, "theta": theta, "line": f"{swept} = {value:g}"},
                    printed={"entropy": None, "distortion": 1 / ((k - 1) * theta), "seed_entropy": None},
                    measure=partial(_measure, swept, GammaPLRV(k, theta), i % step == 0),
                )
            )
    return rows


def slopes(rows: Sequence[Result], swept: str) -> dict[str, float]:
    """Change of each entropy, and of the logarithm of E|z|, per unit of the parameter's logarithm, over the range."""
    mine = [row for row in rows if row["parameters"]["swept"] == swept]
    first, last = mine[0], mine[-1]
    width = math.log(last["parameters"][swept] / first["parameters"][swept])
    change = {name: last["measured"][name] - first["measured"][name] for name in ("entropy", "seed_entropy")}
    change["distortion"] = math.log(last["measured"]["distortion"] / first["measured"]["distortion"])
    return {name: change[name] / width for name in MEASURES}


def _shape(row: Result) -> float:
    """exp(entropy) / E|z|: what is left of the two once the width is divided out; 2e for Laplace noise."""
    return math.exp(row["measured"]["entropy"]) / float(row["measured"]["distortion"])


def findings(rows: Sequence[Result]) -> list[str]:
    """Which parameter controls what."""
    by_theta, by_k = slopes(rows, "theta"), slopes(rows, "k")
    shapes = {name: [_shape(row) for row in rows if row["parameters"]["swept"] == name] for name in RANGE}
    spread = {name: 100 * (max(values) / min(values) - 1) for name, values in shapes.items()}
    wrong = [row for row in rows if row["flags"]]
    worst = max(rows, key=lambda row: row["details"]["distortion_of_printed_density"] / row["measured"]["distortion"])
    return [
        f"E|z| is 1/((k-1) theta) in {share(len(rows) - len(wrong), len(rows))}, as the paper's theorem says.",
        f"Per unit of its logarithm, theta changes the entropy by {by_theta['entropy']:.2f} and the logarithm of E|z| "
        f"by {by_theta['distortion']:.2f}; k changes them by {by_k['entropy']:.2f} and {by_k['distortion']:.2f}. A "
        "parameter that controlled one of the two alone would change the other by 0.",
        f"exp(entropy)/E|z|, in which the width cancels, varies by {spread['theta']:.1f} % over theta and by "
        f"{spread['k']:.1f} % over k, each taken {RANGE['k'][1] / RANGE['k'][0]:g}-fold: theta is a width, and in this "
        "range k is little else.",
        f"The entropy of the seed u changes by {by_theta['seed_entropy']:+.2f} per log theta and "
        f"{by_k['seed_entropy']:+.2f} per log k; the privacy of the noise is not a function of it.",
        "The density in the paper's definition has b, not 1/b, Gamma distributed. Its E|z| would be k theta: "
        f"{worst['details']['distortion_of_printed_density']:.4g} instead of {worst['measured']['distortion']:.4g} at "
        f"k = {worst['parameters']['k']:g}, theta = {worst['parameters']['theta']:g}.",
    ]


def _swept(name: str) -> Callable[[Result], bool]:
    return lambda row: bool(row["parameters"]["swept"] == name)


def _panels(swept: str) -> tuple[Panel, Panel]:
    fixed = "k" if swept == "theta" else "theta"
    title = f"{fixed} = {FIXED[fixed]:g}"
    curve = f"density over {swept}"
    only = _swept(swept)
    return (
        Panel(swept, ("density",), "z", "density of the noise", title, lines="line", only=only, curve=curve),
        Panel(swept, MEASURES, swept, "entropy in nats; E|z|", title, xlog=True, only=only),
    )


ENTRIES = (
    Entry(
        name="figure-theta-k",
        title="What theta and k control: density, entropy and distortion of Gamma-PLRV noise",
        where="figure of theta and k (fig:segreagation)",
        rows=_rows,
        needs=needs(0.05, 0.1),
        panels=(*_panels("theta"), *_panels("k")),
        findings=findings,
    ),
)
