"""Correlated noise beside DP-SGD: other mechanisms than the tree, at the epsilons of the paper's table of DP-FTRL."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from plrvo.noise import noise_from_dict
from plrvo.paper.cnn_recipe import FEATURE_PACKAGES, PACKAGES
from plrvo.paper.correlated import (
    BANDS,
    BY_TURNS,
    DATA,
    DP_SGD,
    RATES,
    SETTINGS,
    SHORT,
    SMOKE,
    against_gaussian,
    mechanism_of,
    panels_of,
    rates_of,
    row_of,
)
from plrvo.paper.entry import Entry, Group, Needs, Result, Row, Scale
from plrvo.paper.wording import spread

SEEDS = {Scale.smoke: 1, Scale.quick: 1, Scale.full: 3}


def _rows(scale: Scale) -> Sequence[Row]:
    smoke = scale is Scale.smoke
    return [
        row_of(mechanism, setting, epsilon, SEEDS[scale], f"{setting.task}-{mechanism.key}-{epsilon}", {})
        for setting in (SETTINGS[Scale.smoke][:1] if smoke else SETTINGS[Scale.quick])
        for mechanism in ((BANDS, DP_SGD, BY_TURNS) if setting.task == "mnist" else (BANDS, DP_SGD))
        for epsilon in ((0.9,) if smoke else RATES)
    ]


def findings(rows: Sequence[Result]) -> list[str]:
    """By noise, and by mechanism."""
    wider = [_deviation(row, "gamma") / _deviation(row, "gaussian") for row in rows]
    return [
        f"Against Gaussian noise in the same place Gamma noise is {against_gaussian(rows, 'gamma')}, and with the "
        f"score {against_gaussian(rows, 'gamma_score')}. At the same certified epsilon its standard deviation is "
        f"{spread(wider, '.2f')} times that of Gaussian noise, and the score makes up for a part of that "
        "where the noise is large.",
        f"Against DP-SGD, each with Gaussian noise: {against_sampling(rows, rows)}. Sampling is amplified, what is "
        "visited in order is not, and that counts most at a small epsilon. In return no order has to be secret.",
        rates_of(rows),
        "*In order* visits the data in a fixed order, and its adjacency is zero-out; DP-SGD samples, and its adjacency "
        "is add or remove. Few seeds and few epochs are a hint, no more.",
    ]


def against_sampling(rows: Iterable[Result], beside: Iterable[Result]) -> str:
    """Points above the rows of DP-SGD among those beside, with Gaussian noise, by mechanism and task."""
    sampled = {_place(row): row["measured"]["gaussian"] for row in beside if mechanism_of(row) == DP_SGD.shown}
    found: dict[str, list[str]] = {}
    for row in rows:
        if mechanism_of(row) != DP_SGD.shown:
            gain = row["measured"]["gaussian"] - sampled[_place(row)]
            found.setdefault(f"{mechanism_of(row)} ({row['parameters']['task']})", []).append(f"{gain:+.1f}")
    return "; ".join(f"{name} {', '.join(gains)} points" for name, gains in found.items())


def _place(row: Result) -> tuple[str, float]:
    return row["parameters"]["task"], row["parameters"]["epsilon"]


def _deviation(row: Result, noise: str) -> float:
    return noise_from_dict(row["details"]["noise"][noise]).variance ** 0.5


ENTRIES = (
    Entry(
        name="study-correlated",
        title="Correlated noise beside DP-SGD",
        where="other mechanisms than the tree, at the epsilons of its table of DP-FTRL",
        rows=_rows,
        needs={
            Scale.smoke: Needs(0.5, DATA, PACKAGES),
            Scale.quick: Needs(20, DATA, FEATURE_PACKAGES),
            Scale.full: Needs(60, DATA, FEATURE_PACKAGES),
        },
        panels=panels_of("mechanism"),
        findings=findings,
        stand_in={Scale.quick: SHORT, Scale.full: SHORT.replace("one seed", "three seeds"), Scale.smoke: SMOKE},
        group=Group.study,
    ),
)
