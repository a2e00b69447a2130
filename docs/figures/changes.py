"""What tight certificates change in the comparisons: noise of today beside noise by moments, and what it trains.

`results/paper/study-narrower` has the noise. `results/moments/NAME` is the reproduction of an entry as it was when all
noise was fitted by moments; rows that were trained again are in `results/paper/NAME`. Which noise a row was trained
with is read from the row, never assumed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from plrvo.noise import noise_from_dict
from plrvo.paper.document import FILE, read_reproduction
from plrvo.paper.study_narrower import IN_HIGH_DIMENSION, NEGLIGIBLE
from plrvo.paper.wording import share

RESULTS = Path(__file__).parents[2] / "results"
STUDY = "study-narrower"
SHOWN = {
    "gaussian": "Gaussian",
    "laplace": "Laplace",
    "laplace_l1": "Laplace, l1 clip",
    "gamma": "Gamma",
    "gamma_score": "Gamma, score",
}
TODAY, BY_MOMENTS = "", "_by_moments"  # how names of multipliers end
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Changes:
    """The study, and the results that it is about."""

    results: Path = RESULTS

    @cached_property
    def study(self) -> list[Row]:
        return _rows(self.results / "paper" / STUDY)

    def of(self, entry: str) -> list[Row]:
        """The rows of the study about an entry."""
        return [row for row in self.study if entry in row["parameters"]["entries"]]

    def states(self, entry: str) -> dict[str, bool]:
        """For every row of an entry with other noise than Gaussian, by label: whether it has the noise of today."""
        rows = [row for row in _rows(self.results / "paper" / entry) if _affected(row)]
        return {row["label"]: self.trained_with(entry, row) for row in rows}

    def trained_with(self, entry: str, row: Row, which: str = TODAY, within: float = NEGLIGIBLE) -> bool:
        """Whether a row was trained with the noise that its certified epsilon asks for, today or by moments."""
        asked = [each["measured"] for each in self.of(entry) if each["parameters"]["epsilon"] == _budget(row)]
        trained = list(multipliers(row))
        return bool(trained) and all(
            any(math.isclose(value, each[kind + which], rel_tol=within) for each in asked) for kind, value in trained
        )

    def note(self, entry: str) -> str:
        """What the section of an entry has to say of its noise; nothing where it has that of today."""
        mine, states = self.of(entry), self.states(entry) if self.of(entry) else {}
        old = _old(states)
        if not old:
            return ""
        which = f" ({'; '.join(old)})" if len(old) < len(states) else ""
        left = [row["measured"]["gamma_left"] for row in mine if row["measured"]["gamma_left"] < 1 - NEGLIGIBLE]
        return (
            "**Noise by moments.** Trained before [certificates were tight](tight.md#changes): "
            f"{share(len(old), len(states))} with other noise than Gaussian{which}. For the same certified epsilon "
            f"noise is {_less(left)} narrower today."
        )

    def lines(self) -> list[str]:
        """The section of the page about tight certificates."""
        if not self.study:
            return []
        return ["", "## What it changes { #changes }", "", *self._noise(), "", *self._trained()]

    def _noise(self) -> Iterator[str]:
        apart = max(abs(row["measured"]["laplace"] / row["measured"]["gamma"] - 1) for row in self.study)
        yield "The standard deviation over the clip that a certified epsilon asks for, where noises are compared"
        yield f"([the study](results.md#{STUDY})): Gamma noise with k = 1,000 by moments alone → today, and the same"
        yield f"over Gaussian noise. Laplace noise is within {apart:.1%} of it."
        yield ""
        yield "| setting | ε | deviation / clip | over Gaussian |"
        yield "|---|---|---|---|"
        for setting in dict.fromkeys(row["parameters"]["setting"] for row in self.study):
            mine = [row for row in self.study if row["parameters"]["setting"] == setting]
            values = [row["measured"] for row in mine]
            cells = [
                setting,
                ", ".join(f"{row['parameters']['epsilon']:g}" for row in mine),
                ", ".join(f"{one['gamma_by_moments']:.3g} → **{one['gamma']:.3g}**" for one in values),
                ", ".join(
                    f"{one['gamma_over_gaussian_by_moments']:.2f} → **{one['gamma_over_gaussian']:.2f}**"
                    for one in values
                ),
            ]
            yield "| " + " | ".join(cells) + " |"
        yield ""
        yield f"In high dimension the last column cannot be below {IN_HIGH_DIMENSION:.2f}, whatever is proved: there"
        yield "both noises show their Fisher information, and no more ([theory](theory.md#section-10))."

    def _trained(self) -> Iterator[str]:
        """Accuracy before and after, where a row was trained again, and what was not."""
        table = [line for entry in self._entries() for line in self._before_and_after(entry)]
        if table:
            yield "Rows that were trained again with the noise of today. Seeds give other noise than before: where"
            yield "Gaussian noise, which is as wide as it was, was trained again too, it shows what chance alone does."
            yield ""
            yield "| row | noise | by moments | today |"
            yield "|---|---|--:|--:|"
            yield from table
            yield ""
        old = {entry: len(_old(self.states(entry))) for entry in self._entries()}
        if any(old.values()):
            told = ", ".join(f"`{entry}` ({count})" for entry, count in old.items() if count)
            yield f"Not trained again, so that their accuracies are those of noise by moments (number of rows): {told}."
            yield "What they say of Gamma and Laplace noise is what the wider noise gave."

    def _entries(self) -> list[str]:
        return list(dict.fromkeys(name for row in self.study for name in row["parameters"]["entries"]))

    def _before_and_after(self, entry: str) -> Iterator[str]:
        before = {row["key"]: row for row in _rows(self.results / "moments" / entry)}
        for row in _rows(self.results / "paper" / entry):
            if row["key"] not in before or not _affected(row) or not self.trained_with(entry, row):
                continue
            was, now = _scores(before[row["key"]]), _scores(row)
            for noise in now:
                shown = SHOWN.get(noise, noise)
                yield f"| `{entry}`, {row['label']} | {shown} | {was[noise]} | {now[noise]} |"


def _old(states: Mapping[str, bool]) -> list[str]:
    return [label for label, today in states.items() if not today]


def _rows(folder: Path) -> list[Row]:
    rows: list[Row] = read_reproduction(folder / FILE, "results")["rows"] if (folder / FILE).exists() else []
    return rows


def _budget(row: Row) -> float | None:
    given = row["parameters"]
    budget: float | None = given.get("epsilon", given.get("target"))
    return budget


def _affected(row: Row) -> bool:
    """Whether a row has noise that is neither Gaussian nor none."""
    given = row["parameters"]
    kind = str(given.get("noise", given.get("kind", ""))).lower()
    return _budget(row) is not None and kind not in ("gaussian", "none")


def multipliers(row: Row) -> Iterator[tuple[str, float]]:
    """Kind and multiplier of the noises of a row, as far as it tells them."""
    details = row["details"]
    noises: Any = details.get("noise", {})
    clip = details.get("workload", {}).get("clip", 1.0)  # those that name no workload have the clip 1
    named = {"": noises} if "noise" in noises else noises
    for noise in (noise_from_dict(one) for name, one in named.items() if not name.endswith("_l1")):
        if noise.kind in ("laplace", "gamma"):
            yield noise.kind, noise.variance**0.5 / clip


def _scores(row: Row) -> dict[str, str]:
    """What a row reached, by noise: the test loss of models that write, and the accuracy of others."""
    given, measured, details = row["parameters"], row["measured"], row["details"]
    if "loss" in details:
        return {given["noise"]: f"loss {details['loss']:.2f}"}
    spreads = details.get("spread", {})
    values = {given["noise"]: measured["accuracy"]} if "accuracy" in measured else measured
    return {name: _with_spread(value, spreads.get(name)) for name, value in values.items()}


def _with_spread(value: float, spread: float | None) -> str:
    return f"{value:.1f} %" if spread is None else f"{value:.1f} ± {spread:.1f} %"


def _less(left: Sequence[float]) -> str:
    least, most = (f"{100 * (1 - share):.0f}" for share in (max(left), min(left)))
    return f"{most} %" if least == most else f"{least} to {most} %"
