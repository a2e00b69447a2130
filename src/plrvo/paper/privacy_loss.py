"""Privacy loss against the number of steps, for three clips: the paper's Gamma noise, and Gaussian noise of sigma 0.1.

The caption's N = 109,482,240 is the number of parameters of BERT-base, and q is 1024 of QNLI's 104,743 examples. The
clips are not printed, but for C = 1; 0.1 and 10 are the paper's smallest and one of its largest. The same sigma is said
to be used with every clip, which leaves two readings: a noise multiplier, for which the clip changes nothing, and a
standard deviation. Both are computed, and beside them the multiplier that has the privacy loss of the Gamma noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from plrvo.accounting import Ledger, Workload, calibrate
from plrvo.accounting.printed import rounded_down, rounded_up
from plrvo.noise import GammaPLRV, Gaussian, Noise
from plrvo.paper.analytic import needs, whole_points
from plrvo.paper.entry import Context, Entry, Measured, Panel, Result, Row, Scale, four_epsilons
from plrvo.paper.flags import Flag, refutation
from plrvo.paper.wording import share

GAMMA = GammaPLRV(k=414.2857, theta=2.4196e-4)
SIGMA = 0.1
SAMPLE_RATE, DELTA, DIMENSION = 0.00977631, 1e-5, 109_482_240
CLIPS = (0.1, 1.0, 10.0)
LARGE_CLIP = 1.0  # where "the Gaussian mechanism and PLRV-O have similar privacy loss"
QNLI_STEPS = 307  # three epochs
SIMILAR = 2.0  # a ratio of epsilons up to which we call them similar
MULTIPLIER, DEVIATION, GAMMA_KIND = "Gaussian, multiplier 0.1", "Gaussian, deviation 0.1", "Gamma"


def noise_of(kind: str, clip: float) -> Noise:
    """The noise at sum scale."""
    return {GAMMA_KIND: GAMMA, MULTIPLIER: Gaussian(SIGMA * clip), DEVIATION: Gaussian(SIGMA)}[kind]


def work_of(clip: float, steps: int) -> Workload:
    """The caption's setting at a clip and a number of steps."""
    return Workload(sample_rate=SAMPLE_RATE, steps=steps, clip=clip, dimension=DIMENSION)


def _measure(kind: str, clip: float, steps: int, context: Context) -> Measured:
    noise, work = noise_of(kind, clip), work_of(clip, steps)
    bracket = Ledger().plus(noise, work).epsilon(DELTA)
    details: dict[str, Any] = {"method": bracket.method, "order": bracket.order}
    if kind == GAMMA_KIND and clip == LARGE_CLIP and steps == QNLI_STEPS:
        alike = calibrate(Gaussian(clip), work, bracket.certified, DELTA)
        details["multiplier_of_same_epsilon"] = math.sqrt(alike.variance) / clip
        details["distortion_of_same_epsilon"] = alike.distortion
    return Measured({"distortion": noise.distortion}, four_epsilons(None, bracket), refutation(bracket), details)


def _rows(scale: Scale) -> Sequence[Row]:
    steps = sorted({*whole_points(scale, 10, 10_000, 9, 25), QNLI_STEPS})
    kinds = [(GAMMA_KIND, clip) for clip in CLIPS] + [(MULTIPLIER, LARGE_CLIP)] + [(DEVIATION, clip) for clip in CLIPS]
    if scale is Scale.smoke:
        steps, kinds = [QNLI_STEPS], kinds[2:4]
    return [
        Row(
            key=f"{kind.lower().replace(', ', '-').replace(' ', '-')}-{clip:g}-{count}",
            label=f"{kind}, C {clip:g}, T {count}",
            parameters={"noise": kind, "clip": clip, "T": count, "line": f"C = {clip:g}"},
            printed={"distortion": None},
            measure=partial(_measure, kind, clip, count),
        )
        for kind, clip in kinds
        for count in steps
    ]


def _at(rows: Sequence[Result], kind: str, clip: float) -> Result:
    wanted = {"noise": kind, "clip": clip, "T": QNLI_STEPS}
    return next(row for row in rows if wanted.items() <= row["parameters"].items())


def findings(rows: Sequence[Result]) -> list[str]:
    """Whether the privacy losses are similar at C = 1, what it takes, and where the published figure is refuted."""
    gamma, multiplier = _at(rows, GAMMA_KIND, LARGE_CLIP), _at(rows, MULTIPLIER, LARGE_CLIP)
    ours, theirs = gamma["epsilon"]["certified"], multiplier["epsilon"]["lower"]
    similar = "similar" if max(ours, theirs) <= SIMILAR * min(ours, theirs) else "not similar"
    mine = [row for row in rows if row["parameters"]["noise"] == GAMMA_KIND]
    refuted = [row for row in mine if Flag.refuted in row["flags"]]
    above = [row for row in mine if row["epsilon"]["published"] > row["epsilon"]["certified"]]
    where = ", ".join(f"C = {row['parameters']['clip']:g} and T = {row['parameters']['T']}" for row in refuted)
    details = gamma["details"]
    wider = details["distortion_of_same_epsilon"] / gamma["measured"]["distortion"]
    return [
        f"At C = {LARGE_CLIP:g} and T = {QNLI_STEPS} the privacy losses are {similar}: Gamma noise is certified for "
        f"epsilon {rounded_up(ours)}, Gaussian noise of multiplier {SIGMA:g} (the same as deviation {SIGMA:g} there) "
        f"provably loses {rounded_down(theirs)}.",
        f"Gaussian noise is certified for the same epsilon at a multiplier of "
        f"{details['multiplier_of_same_epsilon']:.4g}; its E|z| is then {wider:.3f} times that of the Gamma noise, "
        f"{'smaller' if wider < 1 else 'larger'}, where the paper says that the Gamma noise has the lower one.",
        f"E|z| of this Gamma noise is {gamma['measured']['distortion']:.4g}, the largest that the paper's constraint "
        f"c4 allows; that of Gaussian noise with sigma = {SIGMA:g} is {multiplier['measured']['distortion']:.3g}.",
        f"The published epsilon is above the certified one in {share(len(above), len(mine))} of Gamma noise, and "
        f"refuted in {len(refuted)}{': ' + where if refuted else ''}.",
    ]


def _of(*kinds: str) -> Callable[[Result], bool]:
    return lambda row: row["parameters"]["noise"] in kinds


ENTRIES = (
    Entry(
        name="figure-privacy-loss",
        title="Privacy loss against T, q = 0.00977631, delta = 1e-5, n = 109,482,240",
        where="figure of privacy loss vs. T (fig:privacy_loss)",
        rows=_rows,
        needs=needs(0.7, 2),
        panels=(
            Panel(
                "T",
                ("epsilon.certified", "epsilon.published", "epsilon.lower"),
                "steps T",
                "epsilon",
                f"Gamma noise, k = {GAMMA.k:g}, theta = {GAMMA.theta:g}",
                lines="line",
                xlog=True,
                ylog=True,
                only=_of(GAMMA_KIND),
            ),
            Panel(
                "T",
                ("epsilon.certified", "epsilon.lower"),
                "steps T",
                "epsilon",
                f"Gaussian noise, standard deviation {SIGMA:g}",
                lines="line",
                xlog=True,
                ylog=True,
                only=_of(DEVIATION),
            ),
        ),
        findings=findings,
    ),
)
