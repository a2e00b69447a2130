"""The section "which recipe, at which epsilon" of `docs/results.md`: what was reached, and the command that gives it.

Numbers come from the rows in `results/paper`, commands from the recipes that these rows were trained with: a command
says what differs from what `plrvo train` does by itself. `docs.figures.entry_pages` puts the section onto its page.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from docs.figures.entry_section import line

from plrvo.accounting.printed import rounded_up
from plrvo.paper import study_layers, study_scattering, study_smollm
from plrvo.paper.classification import settings_of
from plrvo.paper.entry import Scale
from plrvo.paper.generation_tables import CLIP
from plrvo.paper.training import Recipe
from plrvo.tasks.catalog import Request, usual

NAMES = {"mnist": "MNIST", "fashion-mnist": "Fashion-MNIST", "cifar-10": "CIFAR-10", "sst2": "SST-2", "e2e": "E2E"}
NAMES |= {"webnlg": "WebNLG"}
NOISE = "gaussian"
_COMPARED = ("sample_rate", "steps", "learning_rate", "optimizer", "schedule", "average")
Rows = Mapping[str, Sequence[Mapping[str, Any]]]  # by the name of their entry


@dataclass(frozen=True)
class Reached:
    """What a recipe reached at a certified epsilon; `accuracy` in per cent, or `reached` in the task's own measure."""

    recipe: Recipe
    model: str
    epsilon: float
    certified: float
    reached: str
    accuracy: float | None = None
    clip: float | None = None

    @property
    def command(self) -> str:
        """`plrvo train`, with what is not done by itself."""
        recipe, options = self.recipe, dict(self.recipe.options)
        plain = usual(Request(recipe.task))
        alike = usual(Request(recipe.task, recipe.model, None, options)).defaults.at(self.epsilon)
        words = [f"plrvo train {recipe.task} --epsilon {self.epsilon:g} --noise {NOISE}"]
        words += [f"--model {recipe.model}"] * (recipe.model != plain.model)
        for name, value in options.items():
            if plain.parts.get(name) != value:
                words.append(_option(name, value))
        for name in _COMPARED:
            if getattr(recipe, name) != getattr(alike, name):
                words.append(_option(name, getattr(recipe, name)))
        if self.clip not in (None, alike.clip):
            words.append(_option("clip", self.clip))
        return " ".join([*words, "--data-dir FOLDER"])

    @property
    def others(self) -> str:
        """What others published for the same task and epsilon."""
        mine = [p for p in study_scattering.PUBLISHED if (p.task, p.epsilon) == (self.recipe.task, self.epsilon)]
        return "; ".join(f"{p.accuracy:g} % ({p.source})" for p in mine) or "-"


def _option(name: str, value: Any) -> str:
    flag = f"--{name.replace('_', '-')}"
    if value is True:
        return flag
    return f"{flag} {value:.6g}" if isinstance(value, float) else f"{flag} {value}"


def reached(rows: Rows) -> list[Reached]:
    """Images, then sentences, then tables; with Gaussian noise, from the smallest epsilon on."""
    return [*_images(rows), *_sentences(rows), *_tables(rows)]


def _images(rows: Rows) -> list[Reached]:
    found = []
    for row in rows.get("study-scattering", ()):
        given = row["parameters"]
        if given["noise"] == NOISE:
            recipe, clip = study_scattering.recipe_of(
                given["task"], study_scattering.EXAMPLES[given["task"]], given["epsilon"]
            )
            found.append(_accurate(row, recipe, "linear, on scattering features", given["epsilon"], clip))
    return found


def _sentences(rows: Rows) -> list[Reached]:
    [setting] = settings_of("sst2", Scale.quick)
    found = [
        _accurate(row, setting.recipe, setting.model, row["parameters"]["target"], setting.clip, "gaussian")
        for row in rows.get("figure-sst2", ())
        if row["parameters"]["model"] == setting.model and row["parameters"]["target"] is not None
    ]
    for row in rows.get("study-layers", ()):
        part = next(part for part in study_layers.PARTS[Scale.full] if part.shown == row["parameters"]["trained"])
        if part is not study_layers.HEAD:  # which is among those before
            recipe = study_layers.recipe(part, Scale.quick)
            found.append(_accurate(row, recipe, row["label"], row["parameters"]["epsilon"], study_layers.CLIP))
    return found


def _tables(rows: Rows) -> list[Reached]:
    found = []
    for entry, task in zip(study_smollm.ENTRIES, study_smollm.SIZES, strict=True):
        setting = study_smollm.setting(task, Scale.quick)
        for row in rows.get(entry.name, ()):
            epsilon = row["parameters"]["target"]
            if epsilon is not None:
                bleu = f"BLEU {row['measured']['bleu']:.1f}, one seed"
                model, certified = "SmolLM2-135M, low rank", row["epsilon"]["certified"]
                found.append(Reached(setting.recipe, model, epsilon, certified, bleu, clip=CLIP))
    return sorted(found, key=lambda each: (each.recipe.task, each.epsilon))


def _accurate(
    row: Mapping[str, Any], recipe: Recipe, model: str, epsilon: float, clip: float, name: str = "accuracy"
) -> Reached:
    value, seeds = row["measured"][name], len(row["details"]["accuracies"][NOISE])
    spread = row["details"]["spread"][NOISE]
    shown = f"{value:.2f} %" if spread is None else f"{value:.2f} ± {spread:.2f} %"
    shown += f", {'one seed' if seeds == 1 else f'{seeds} seeds'}"
    certified = row["details"]["run_certified"][NOISE]
    return Reached(recipe, model, epsilon, certified, shown, value, clip)


def section(rows: Rows) -> list[str]:
    """Heading, words and the table; nothing where nothing was measured."""
    found = reached(rows)
    if not found:
        return []
    lines = ["| task | model | ε | reached | published by others at this ε | command |", "|---|---|--:|---|---|---|"]
    for each in found:
        certified = rounded_up(each.certified, 3)
        command = f"`{each.command}`"
        lines.append(line([NAMES[each.recipe.task], each.model, certified, each.reached, each.others, command]))
    tasks, epsilons = {each.recipe.task for each in found}, {(each.recipe.task, each.epsilon) for each in found}
    rest = [p for p in study_scattering.PUBLISHED if p.task in tasks and (p.task, p.epsilon) not in epsilons]
    words = (
        "With Gaussian noise at a certified epsilon. A command trains as the row beside it was trained, with noise "
        "that nobody can repeat; `FOLDER` has the data sets. Test accuracy is the mean over seeds with their spread. "
        "Settings of images were chosen on other data, but for CIFAR-10's, and the head's learning rate on SST-2 "
        "itself; batches and beams of E2E were enlarged after a first run on it. Of tables the epsilon is that of a "
        "pair. Results of others are those of their papers, with other accountants."
    )
    said = [f"{NAMES[p.task]} {p.accuracy:g} % at {p.epsilon:g} ({p.source})" for p in rest]
    also = [f"Published at other epsilons: {'; '.join(said)}."] if said else []
    return ["## Which recipe, at which epsilon { #recipes }", words, "\n".join(lines), *also]
