"""The options of `plrvo train`, in the order of its help."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from plrvo.audit.one_run import CanaryKind
from plrvo.cli import options
from plrvo.tasks.catalog import NAMES as TASKS

_RUN, _LEARN, _AUDIT = "Run", "Learning", "Audit"


TaskArgument = Annotated[str, typer.Argument(help=f"{', '.join(TASKS[:-1])} or {TASKS[-1]}.", show_default=False)]
ModelOption = Annotated[
    str | None,
    typer.Option(
        "--model",
        help="Images: cnn (the default), cnn-tanh, logistic, resnet18, vit:NAME_OR_FOLDER, "
        "efficientnet-lite0-head. Text: minilm (the default), or the hub name or folder of a checkpoint. "
        "Tables: stories15M (the default), smollm2, or the hub name or folder of a causal language model.",
        rich_help_panel=_LEARN,
    ),
]
TrainableOption = Annotated[
    str | None,
    typer.Option(
        "--trainable",
        help="Text: all, lora, bias or head (the default; for tables, all is).",
        rich_help_panel=_LEARN,
    ),
]
MaxLengthOption = Annotated[
    int | None,
    typer.Option("--max-length", help="Text: tokens at which an example is cut.", rich_help_panel=_LEARN),
]
LimitOption = Annotated[
    int | None,
    typer.Option("--limit", help="Text: train on the first so many examples only.", rich_help_panel=_RUN),
]
ReferencesOption = Annotated[
    int | None,
    typer.Option("--references", help="Tables: train on so many texts of each table only.", rich_help_panel=_RUN),
]
TestLimitOption = Annotated[
    int | None,
    typer.Option("--test-limit", help="Tables: test on so many tables, evenly spread.", rich_help_panel=_RUN),
]
BeamsOption = Annotated[
    int | None,
    typer.Option("--beams", help="Tables: width of the beam search; 1 is greedy.", rich_help_panel=_RUN),
]
TopPOption = Annotated[
    float | None,
    typer.Option("--top-p", help="Tables: draw texts from the likeliest tokens instead.", rich_help_panel=_RUN),
]
DataOption = Annotated[
    str | None,
    typer.Option(
        "--data", help="Text: hf:NAME or hf:NAME:CONFIGURATION, from the hub of data sets.", rich_help_panel=_RUN
    ),
]
PlanOption = Annotated[
    Path | None,
    typer.Option(
        "--plan",
        help="A plan from `plrvo design --save`; it brings noise, clip, rate, steps and delta.",
        rich_help_panel=options.NOISE,
    ),
]
DeltaOption = Annotated[
    float | None,
    typer.Option(
        "--delta",
        help="Failure probability of the guarantee; 1e-5 for images, 1/(2N) for text by default.",
        rich_help_panel=options.BUDGET,
    ),
]
ClipOption = Annotated[
    float | None,
    typer.Option(
        "--clip",
        help="l2 norm to which each gradient is clipped; by default what suits the task.",
        rich_help_panel=options.WORK,
    ),
]
SampleRateOption = Annotated[
    float | None,
    typer.Option(
        "--sample-rate",
        help="Probability with which an example joins a batch; by default what suits the task.",
        rich_help_panel=options.WORK,
    ),
]
StepsOption = Annotated[
    int | None,
    typer.Option(
        "--steps", help="Number of noisy steps; by default what suits the task.", rich_help_panel=options.WORK
    ),
]
RateOption = Annotated[
    float | None,
    typer.Option(
        "--lr",
        help="Learning rate; for sgd of gradients divided by batch size and clip.",
        rich_help_panel=_LEARN,
    ),
]
OptimizerOption = Annotated[str | None, typer.Option("--optimizer", help="sgd, adam or adamw.", rich_help_panel=_LEARN)]
ScheduleOption = Annotated[
    str | None,
    typer.Option("--schedule", help="Of the learning rate: constant, or linear to zero.", rich_help_panel=_LEARN),
]
MomentumOption = Annotated[float, typer.Option("--momentum", help="Momentum of sgd.", rich_help_panel=_LEARN)]
WeightDecayOption = Annotated[float, typer.Option("--weight-decay", rich_help_panel=_LEARN)]
PostprocessOption = Annotated[
    str | None, typer.Option("--postprocess", help="score or clamp: free of privacy cost.", rich_help_panel=_LEARN)
]
ClippingOption = Annotated[
    str, typer.Option("--clipping", help="flat, per_layer, or l1 (laplace only).", rich_help_panel=_LEARN)
]
ModeOption = Annotated[
    str, typer.Option("--grad-sample-mode", help="auto, bookkeeping, hooks or ghost.", rich_help_panel=_LEARN)
]
ExactOption = Annotated[
    bool,
    typer.Option(
        "--exact",
        help="Integers and exact noise: safe against attacks on last bits.",
        rich_help_panel=options.NOISE,
    ),
]
GridOption = Annotated[
    float | None,
    typer.Option(
        "--grid", help="With --exact: the unit of the integers; chosen by default.", rich_help_panel=options.NOISE
    ),
]
PhysicalBatchOption = Annotated[
    int | None,
    typer.Option("--physical-batch", help="At most so many examples in memory at once.", rich_help_panel=_RUN),
]
SeedOption = Annotated[
    int | None,
    typer.Option(
        "--seed", help="Makes the run repeatable, and not private against whoever knows it.", rich_help_panel=_RUN
    ),
]
OutOption = Annotated[
    Path,
    typer.Option("--out", help="Folder for weights, metrics, checkpoint, receipt and plot.", rich_help_panel=_RUN),
]
ResumeOption = Annotated[bool, typer.Option("--resume", help="Continue the run in --out.", rich_help_panel=_RUN)]
DataDirOption = Annotated[
    Path | None,
    typer.Option(
        "--data-dir", help="Folder with the data sets; else PLRVO_DATA, else a download.", rich_help_panel=_RUN
    ),
]
EvaluateEveryOption = Annotated[
    int, typer.Option("--evaluate-every", help="Steps between tests.", rich_help_panel=_RUN)
]
CheckpointEveryOption = Annotated[
    int, typer.Option("--checkpoint-every", help="Steps between checkpoints.", rich_help_panel=_RUN)
]
AuditOption = Annotated[
    int | None,
    typer.Option("--audit", help="Plant so many canaries, and audit the run by them.", rich_help_panel=_AUDIT),
]
CanaryOption = Annotated[
    CanaryKind,
    typer.Option(
        "--canary",
        help="gradient: in parameters beside the model, read from every step; example: made-up inputs, read from "
        "the model's outputs.",
        rich_help_panel=_AUDIT,
    ),
]
UnsafeDiagnosticsOption = Annotated[
    bool,
    typer.Option(
        "--unsafe-diagnostics",
        help="Write batch sizes and training losses, which no guarantee covers; the receipt says so.",
        rich_help_panel=_RUN,
    ),
]
