"""The delta test: delta of Gaussian over delta of Laplace noise as epsilon goes to 0, one coordinate moved by 1.

delta(epsilon) is the integral of (p(z - 1) - e^epsilon p(z))^+; at epsilon = 0 it is the total variation distance:

    Gaussian  Phi(1/(2 sigma) - epsilon sigma) - e^epsilon Phi(-1/(2 sigma) - epsilon sigma),
              at 0: 2 Phi(1/(2 sigma)) - 1
    Laplace   1 - e^((epsilon - 1/b)/2) up to epsilon = 1/b and 0 from there on,
              at 0: 1 - e^(-1/(2b))

The paper compares "noise levels" and does not say what makes two levels equal: the standard deviation, E|z| and the
parameter (b = sigma) are all tried.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

from scipy import special

from plrvo.paper.analytic import needs, points
from plrvo.paper.entry import Context, Entry, Measured, Panel, Result, Row, Scale
from plrvo.paper.flags import Flag, Flags
from plrvo.paper.wording import share, spread
from plrvo.validate import counted

PRINTED_RATIO = 100.0  # "nearly 100 times worse than that of the Laplace mechanism in high-privacy regimes"
HIGH_PRIVACY = 100.0  # the noise at which we take this to be said
LEVEL = 10.0  # of the panel over epsilon
EQUAL = {  # b of Laplace noise, as a multiple of sigma
    "same standard deviation": 1 / math.sqrt(2),
    "same E|z|": math.sqrt(2 / math.pi),
    "b = sigma": 1.0,
}


def gaussian_delta(sigma: float, epsilon: float = 0.0) -> float:
    """delta of one release with a shift of 1."""
    if epsilon == 0:
        return float(special.erf(1 / (2 * math.sqrt(2) * sigma)))
    near, far = 1 / (2 * sigma) - epsilon * sigma, -1 / (2 * sigma) - epsilon * sigma
    log_near, log_far = special.log_ndtr(near), special.log_ndtr(far)
    return float(-math.exp(log_near) * math.expm1(epsilon + log_far - log_near))


def laplace_delta(b: float, epsilon: float = 0.0) -> float:
    """delta of one release with a shift of 1; none is left from epsilon = 1/b on."""
    return -math.expm1((epsilon - 1 / b) / 2) if epsilon < 1 / b else 0.0


def epsilon_of_ratio(sigma: float, b: float, ratio: float) -> float:
    """The epsilon at which Gaussian noise has `ratio` times the delta of Laplace noise."""
    from scipy import optimize  # here, so that the command line does not wait for it

    def miss(share: float) -> float:
        epsilon = share / b
        return gaussian_delta(sigma, epsilon) - ratio * laplace_delta(b, epsilon)

    return float(optimize.brentq(miss, 0.0, 1.0, xtol=1e-14)) / b


def _measure(equal: str, sigma: float, epsilon: float, context: Context) -> Measured:
    b = EQUAL[equal] * sigma
    gaussian, laplace = gaussian_delta(sigma, epsilon), laplace_delta(b, epsilon)
    ratio = gaussian / laplace if laplace > 0 else None
    flags: Flags = {}
    if epsilon == 0 and sigma >= HIGH_PRIVACY and ratio is not None and ratio < PRINTED_RATIO / 2:
        better = "smaller" if ratio < 1 else "larger"
        remark = f"Gaussian noise has {ratio:.3g} times the delta of Laplace noise ({better}), not {PRINTED_RATIO:g}"
        flags = {Flag.differs: remark}
    details = {"b": b, "laplace_delta_is_0_from": 1 / b}
    if epsilon == 0:
        details["epsilon_of_printed_ratio"] = epsilon_of_ratio(sigma, b, PRINTED_RATIO)
    return Measured({"ratio": ratio, "gaussian": gaussian, "laplace": laplace}, {}, flags, details)


def _row(equal: str, sigma: float, epsilon: float) -> Row:
    said = PRINTED_RATIO if epsilon == 0 and sigma >= HIGH_PRIVACY else None
    short = equal.removeprefix("same ").replace(" ", "-").replace("|", "").replace("=", "is")
    return Row(
        key=f"{short}-{sigma:g}-{epsilon:g}",
        label=f"{equal}, sigma {sigma:g}, epsilon {epsilon:g}",
        parameters={"equal": equal, "sigma": sigma, "epsilon": epsilon, "share of 1/b": epsilon * EQUAL[equal] * sigma},
        printed={"ratio": said, "gaussian": None, "laplace": None},
        measure=partial(_measure, equal, sigma, epsilon),
    )


def _rows(scale: Scale) -> Sequence[Row]:
    shares = {Scale.smoke: [1.0], Scale.quick: [0.2, 0.5, 0.8, 0.9, 0.97, 0.99, 0.999, 1.0]}
    shares[Scale.full] = sorted({*shares[Scale.quick], *(i / 20 for i in range(1, 20)), 0.98, 0.995})
    levels = points(scale, 0.1, 100.0, 13, 37)
    rows = [_row(equal, sigma, 0.0) for equal in EQUAL for sigma in sorted({*levels, LEVEL})]
    for equal, factor in EQUAL.items():
        rows += [_row(equal, LEVEL, share / (factor * LEVEL)) for share in shares[scale]]
    return rows


def findings(rows: Sequence[Result]) -> list[str]:
    """What becomes of the factor of 100."""
    at_zero = [row for row in rows if _at_zero(row)]
    strong = [row for row in at_zero if row["printed"]["ratio"] is not None]
    most = max(row["measured"]["ratio"] for row in at_zero)
    ends = ", ".join(f"{row['measured']['ratio']:.3f} ({row['parameters']['equal']})" for row in strong)
    smaller = [row for row in strong if row["measured"]["ratio"] < 1]
    near = [
        100 * row["details"]["epsilon_of_printed_ratio"] / row["details"]["laplace_delta_is_0_from"] for row in strong
    ]
    exact = [row for row in rows if row["measured"]["laplace"] == 0]
    return [
        f"At epsilon 0 the delta of Gaussian noise is at most {most:.3f} times that of Laplace noise, over all levels "
        f"and readings of an equal level; the paper says nearly {PRINTED_RATIO:g} times.",
        f"At the highest noise, sigma = {HIGH_PRIVACY:g}, the ratio is {ends}: Gaussian noise has the smaller delta by "
        f"{share(len(smaller), len(strong), 'reading')}.",
        f"A ratio of {PRINTED_RATIO:g} is reached there at an epsilon of {spread(near, '.2f')} % of 1/b: "
        "not in the limit of the figure, but just before Laplace noise needs no delta at all.",
        f"From epsilon = 1/b on the delta of Laplace noise is exactly 0 ({counted(len(exact), 'row')}), and the ratio "
        "has no bound. This is one coordinate: for a gradient spread over n coordinates, 1/b becomes sqrt(n)/b.",
    ]


def _at_zero(row: Result) -> bool:
    return bool(row["parameters"]["epsilon"] == 0)


def _at_level(row: Result) -> bool:
    return bool(row["parameters"]["sigma"] == LEVEL)


ENTRIES = (
    Entry(
        name="figure-delta-test",
        title="Delta of Gaussian noise over delta of Laplace noise, one coordinate moved by 1",
        where="figure of the delta test ratio (fig:deltagauss)",
        rows=_rows,
        needs=needs(0.05, 0.1),
        panels=(
            Panel(
                "sigma",
                ("ratio",),
                "sigma of the Gaussian noise",
                "delta of Gaussian / delta of Laplace",
                "epsilon -> 0",
                lines="equal",
                xlog=True,
                ylog=True,
                only=_at_zero,
            ),
            Panel(
                "share of 1/b",
                ("ratio",),
                "epsilon, in units of 1/b (where Laplace noise needs no delta)",
                "delta of Gaussian / delta of Laplace",
                f"sigma = {LEVEL:g}",
                lines="equal",
                ylog=True,
                only=_at_level,
            ),
        ),
        findings=findings,
    ),
)
