"""The table of ViT-B/16 fine-tuned on CIFAR-10: two budgets, Gamma and Gaussian noise.

The paper's epsilons and distortions are those of the whole network (85.8 million parameters) and are computed so at
every scale. At quick scale what is trained with the same noise, clip and sampling is a linear head on the features of a
public EfficientNet-Lite0; its own certified epsilon, for its own dimension, is in the details.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from plrvo.accounting import Epsilon, Plan, Workload
from plrvo.accounting.printed import rounded_up
from plrvo.noise import GammaPLRV, Gaussian, Noise
from plrvo.paper.cnn import unlike_printed
from plrvo.paper.cnn_recipe import FEATURE_PACKAGES, PACKAGES
from plrvo.paper.entry import Context, Entry, Measured, Needs, Panel, Result, Row, Scale, four_epsilons
from plrvo.paper.flags import Flags, refutation
from plrvo.paper.training import Recipe, dimension_of, trials

DELTA = 2e-5
VIT_DIMENSION = 85_806_346  # ViT-B/16 without its old head, and ten classes
SEEDS = {Scale.smoke: 1, Scale.quick: 3, Scale.full: 1}
WORK = Workload(sample_rate=0.01024, steps=250, clip=1.0, dimension=VIT_DIMENSION)


@dataclass(frozen=True)
class Setting:
    """One line as printed."""

    kind: str
    noise: Noise
    clip: float
    epsilon: float
    accuracy: float
    distortion: float

    @property
    def plan(self) -> Plan:
        return Plan.certify(self.noise, replace(WORK, clip=self.clip), DELTA)


SETTINGS = (
    Setting("gamma", GammaPLRV(141.06, 8.32e-4), 10.0, 1.7, 93.63, 8.58),
    Setting("gamma", GammaPLRV(5242.4, 2.08e-5), 5.0, 0.46, 92.90, 9.17),
    Setting("gaussian", Gaussian(0.9456 * 5), 5.0, 1.7, 89.01, 3.77),
    Setting("gaussian", Gaussian(1.8812 * 15), 15.0, 0.46, 83.93, 22.51),
)


def recipe_of(scale: Scale) -> Recipe:
    """The head at quick scale, the whole network at full scale."""
    head = Recipe("cifar-10", "efficientnet-lite0-head", 0.01024, 250, 1e-3, weight_decay=1e-4, label_smoothing=0.15)
    if scale is Scale.full:
        return replace(head, model="vit", physical_batch=32)
    return head if scale is Scale.quick else replace(head, model="logistic", steps=3)


def flags_of(setting: Setting, bracket: Epsilon) -> Flags:
    """Where the printed parameters do not give the printed epsilon."""
    if setting.kind == "gaussian":
        return unlike_printed(setting.epsilon, bracket.certified, certified=True)
    return {**unlike_printed(setting.epsilon, bracket.published), **refutation(bracket)}


def _measure(setting: Setting, context: Context) -> Measured:
    plan, recipe = setting.plan, recipe_of(context.scale)
    work = replace(plan.workload, dimension=dimension_of(recipe, context))
    trained = Plan.certify(setting.noise, work, DELTA / 2)  # a run asks for less than 1/N = 2e-5
    done = trials(context, recipe, {"accuracy": trained}, SEEDS[context.scale])
    values = {**done.means, "distortion": setting.noise.distortion}
    details = {**done.details, "trained_dimension": work.dimension, "trained_delta": trained.delta}
    return Measured(values, four_epsilons(setting.epsilon, plan.bracket), flags_of(setting, plan.bracket), details)


def _rows(scale: Scale) -> Sequence[Row]:
    return [
        Row(
            key=f"{setting.kind}-{setting.epsilon}",
            label=f"{setting.kind} {setting.epsilon}",
            parameters={"kind": setting.kind, "clip": setting.clip, **setting.noise.to_dict()},
            printed={"accuracy": setting.accuracy, "distortion": setting.distortion},
            measure=partial(_measure, setting),
        )
        for setting in (SETTINGS[:1] if scale is Scale.smoke else SETTINGS)
    ]


def findings(rows: Sequence[Result]) -> list[str]:
    """What the table says."""
    flagged = [row["label"] for row in rows if row["flags"]]
    words = (
        f"The epsilons of {', '.join(flagged)} do not follow from what is printed." if flagged else "All epsilons fit."
    )
    gains = []
    for epsilon in sorted({row["epsilon"]["printed"] for row in rows}):
        mine = {row["parameters"]["kind"]: row for row in rows if row["epsilon"]["printed"] == epsilon}
        gap = mine["gamma"]["measured"]["accuracy"] - mine["gaussian"]["measured"]["accuracy"]
        real = " and ".join(f"{kind} {rounded_up(row['epsilon']['certified'], 3)}" for kind, row in mine.items())
        gains.append(
            f"At the printed epsilon {epsilon:g} Gamma noise is {gap:+.1f} points from Gaussian noise; the certified "
            f"epsilons of the two rows are {real}: they are not at the same budget."
        )
    return [words, *gains]


ENTRIES = (
    Entry(
        name="table-vit",
        title="ViT-B/16 fine-tuned on CIFAR-10",
        where="table of the vision transformer (tab:dp_mechanism_comparison)",
        rows=_rows,
        needs={
            Scale.smoke: Needs(0.5, ("cifar-10",), (*PACKAGES, "PIL")),
            Scale.quick: Needs(6, ("cifar-10",), FEATURE_PACKAGES),
            Scale.full: Needs(
                6000,
                ("cifar-10",),
                (*PACKAGES, "PIL", "transformers"),
                "a graphics card and the weights of ViT-B/16 from a hub",
            ),
        },
        panels=(Panel("epsilon.printed", ("accuracy",), "epsilon as printed", "test accuracy, %", lines="kind"),),
        findings=findings,
        stand_in={
            Scale.quick: "a linear head on features of EfficientNet-Lite0 in place of the whole ViT, three seeds",
            Scale.smoke: "a linear model on pixels, three steps",
        },
    ),
)
