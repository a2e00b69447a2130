"""The options of commands that train, in the order of their help: fields of a job by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Sequence
from dataclasses import fields
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args, get_type_hints

import typer

from plrvo.accounting.correlated.named import BATCH
from plrvo.accounting.correlated.named import NAMES as CORRELATIONS
from plrvo.cli import options
from plrvo.cli.help import SPECIAL
from plrvo.cli.task_help import of_task
from plrvo.tasks.catalog import NAMES as TASKS
from plrvo.tasks.job import MOMENTUM, Job

Command = TypeVar("Command", bound=Callable[..., Any])

TaskArgument = Annotated[str | None, typer.Argument(help=f"{', '.join(TASKS[:-1])} or {TASKS[-1]}.")]
USUAL = "Options"  # the panel that comes first
_DATA_DIR = "Folder with the data sets; else PLRVO_DATA, else a download."
DataDirOption = Annotated[Path | None, typer.Option("--data-dir", help=_DATA_DIR)]
PANELS: dict[str, dict[str, str | None]] = {
    USUAL: {
        "epsilon": "Privacy budget.",
        "model": "Images: scattering (the default), scattering-cnn, cnn-norm (the default for digits), cnn, cnn-tanh, "
        "logistic, resnet18, vit:NAME_OR_FOLDER, efficientnet-lite0-head. Text: minilm (the default), or the hub name "
        "or folder of a checkpoint. Tables: smollm2 (the default), stories15M, or the hub name or folder of a causal "
        "language model.",
        "seed": "Makes the run repeatable, and not private against whoever knows it.",
        "data_dir": _DATA_DIR,
    },
    "Learning": {
        "trainable": "Text: all, lora, bias or head (the default). Tables: all, lora, bias or head; by default lora in "
        "the last eight layers of smollm2, and all of other models.",
        "layers": "Text, tables: Train in the last so many layers only, on what those beneath make of each example, "
        "once.",
        "bf16": "Text, tables: With --layers, what lies beneath is computed in bfloat16; faster if a processor has it.",
        "max_length": "Text, tables: Tokens at which an example is cut.",
        "learning_rate": "Learning rate; for sgd of gradients divided by batch size and clip; by default what "
        "suits the task.",
        "optimizer": "sgd, adam or adamw; by default what suits the task.",
        "schedule": "Of the learning rate: constant, linear or cosine (both to zero), or warmup; by default what "
        "suits the task.",
        "average": "Decay of an average of the weights, which is tested and written, free of privacy cost; by default "
        "what suits the task: scattering features have one.",
        "views": "Images: So many views of each example, averaged before the one clip.",
        "momentum": f"With sgd: its momentum; by default {MOMENTUM:g}.",
        "weight_decay": "Of the optimizer, on all weights that are trained.",
        "postprocess": "What is made of every noisy coordinate, free of privacy cost: score, the best estimate where "
        "the noise is large, or clamp, which cuts off what is large; by default neither.",
        "clipping": "flat (the default), per_layer, automatic (divides each gradient by its norm plus 0.01: the clip "
        "is a unit, and no threshold), or l1 (laplace only).",
        "grad_sample_mode": "auto, bookkeeping, hooks, ghost or functorch.",
    },
    "Run": {
        "limit": "Text, tables: Train on the first so many examples only.",
        "references": "Tables: Train on so many texts of each table only.",
        "test_limit": "Tables: Test on so many tables, evenly spread.",
        "beams": "Tables: Width of the beam search; by default 1, which is greedy. 4 take many times as long.",
        "top_p": "Tables: Draw texts from the likeliest tokens instead.",
        "data": "Text: hf:NAME or hf:NAME:CONFIGURATION, from the hub of data sets.",
        "physical_batch": "At most so many examples in memory at once.",
        "evaluate_every": "Steps between tests.",
        "checkpoint_every": "Steps between checkpoints.",
        "unsafe_diagnostics": "Write batch sizes and training losses, which no guarantee covers; the receipt says so.",
    },
    options.NOISE: {
        "noise": None,  # and its options, by the registry of noises
        "plan": "A plan from `plrvo design --save`; it brings noise, clip, rate, steps and delta.",
        "exact": "Integers and exact noise: safe against attacks on last bits.",
        "grid": "With --exact: the unit of the integers; chosen by default.",
    },
    options.BUDGET: {
        "delta": "Failure probability of the guarantee; by default 1e-5 for images, 1/(2N) for text, the "
        "smaller of the two for tables.",
        "budget": "Account to charge the run to (`plrvo budget create`), a file or a URL; refused where it is short.",
    },
    options.WORK: {
        "clip": "l2 norm to which each gradient is clipped; by default what suits the task.",
        "sample_rate": "Probability with which an example joins a batch; by default what suits the task.",
        "steps": "Number of noisy steps; by default what suits the task.",
    },
    "Correlated noise": {
        "correlation": f"Correlated noise, data in a fixed order: {CORRELATIONS}.",
        "epochs": "Passes over the data, with --correlation.",
        "batch_size": f"Examples in a step, with --correlation; {BATCH} by default.",
        "restart_every": "Epochs after which noise starts anew.",
        "separation": "Steps between two visits of an example, at least; one epoch (a fixed order) by default. Fewer "
        "let examples be shuffled, and cost more.",
    },
    "Audit": {
        "audit": "Plant so many canaries, and audit the run by them.",
        "canary": "gradient (the default; white box): in parameters beside the model, read from every step; example "
        "(black box): made-up inputs, read from the model's outputs.",
        "coordinates": "Spread each gradient over so many.",
        "confidence": "Probability that the audited epsilon is valid.",
        "guesses": "Fix the number of guesses; by default the best of five shares of the canaries, corrected.",
    },
}


def options_of_a_job(
    command_name: str, names: Collection[str], of_noise: Sequence[inspect.Parameter], **usual: Any
) -> Callable[[Command], Command]:
    """Give a command options by the names of fields in the place of its `**asked`: None, or `usual`, by default.

    Those of a noise are `of_noise`.
    """
    hints, defaults = get_type_hints(Job), {field.name: field.default for field in fields(Job)}

    def parameter(name: str, panel: str, text: str | None) -> inspect.Parameter:
        typed = {"plan": Path, "budget": str}  # files that are read, and URLs, which are no paths
        kind = typed.get(name, (get_args(hints[name]) or (hints[name],))[0])
        shown = usual.get(name, defaults[name])
        option = typer.Option(
            options.option_name(name, command_name),
            help=text,
            rich_help_panel=panel,
            show_default=False if shown is None or shown is False else str(shown),
            parser=options.read_rate if name == "sample_rate" else None,
        )
        annotation, default = Annotated[kind | None, option], usual.get(name)
        return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)

    def decorated(command: Command) -> Command:
        known = inspect.signature(command, eval_str=True)
        own = [p for p in known.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
        asked = {name: [parameter(name, *at)] for name, at in _places().items() if name in names}
        asked |= {"noise": [*of_noise]}
        command.__signature__ = known.replace(parameters=[*own, *chain(*asked.values())])  # type: ignore[attr-defined]
        setattr(command, SPECIAL, lambda told, given: of_task(told, given, command_name))
        return command

    return decorated


def _places() -> dict[str, tuple[str, str | None]]:
    return {name: (panel, text) for panel, helps in PANELS.items() for name, text in helps.items()}
