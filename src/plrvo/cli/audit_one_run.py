"""`plrvo audit one-run`: train once with canaries in the data, and guess which of them were there."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from plrvo.accounting import Plan, Workload
from plrvo.audit.mechanism import new_seed
from plrvo.audit.one_run import CanaryKind, Rule
from plrvo.audit.plot import check_plot, plot_audits
from plrvo.cli import audit_common as common
from plrvo.cli import options, show
from plrvo.cli.noise_options import NOT_GIVEN, with_noise_options
from plrvo.cli.progress import StepProgress
from plrvo.noise import Specification
from plrvo.tasks.catalog import FAMILIES, Request
from plrvo.validate import InvalidArgument

_TRAINING = "Training"


@with_noise_options()
def one_run(
    task: Annotated[
        str | None, typer.Argument(help="A task of `plrvo train`; or --receipt.", show_default=False)
    ] = None,
    model: Annotated[
        str | None, typer.Option("--model", help="As in `plrvo train`.", rich_help_panel=_TRAINING)
    ] = None,
    noise: Specification = NOT_GIVEN,
    epsilon: options.EpsilonOption = None,
    clip: options.ClipOption = None,
    sample_rate: options.RateOption = None,
    steps: options.StepsOption = None,
    delta: common.DeltaOption = None,
    learning_rate: Annotated[
        float | None, typer.Option("--lr", help="As in `plrvo train`.", rich_help_panel=_TRAINING)
    ] = None,
    data_dir: Annotated[
        Path | None,
        typer.Option("--data-dir", help="Folder of the data sets (or set PLRVO_DATA).", rich_help_panel=_TRAINING),
    ] = None,
    canaries: Annotated[
        int,
        typer.Option(
            "--canaries", help="Made-up examples, of which a coin each decides.", rich_help_panel=common.PANEL
        ),
    ] = 1000,
    canary: Annotated[
        CanaryKind,
        typer.Option(
            "--canary",
            help="gradient (white box): known gradients, read from every step; example (black box): made-up inputs, "
            "read from the model's outputs.",
            rich_help_panel=common.PANEL,
        ),
    ] = CanaryKind.gradient,
    coordinates: Annotated[
        int, typer.Option("--coordinates", help="Spread each gradient over so many.", rich_help_panel=common.PANEL)
    ] = 1,
    guesses: Annotated[
        int | None,
        typer.Option(
            "--guesses",
            help="Fix the number of guesses; by default the best of five shares of the canaries, corrected.",
            rich_help_panel=common.PANEL,
        ),
    ] = None,
    claim: common.ClaimOption = None,
    receipt: common.ReceiptOption = None,
    confidence: common.ConfidenceOption = 0.99,
    seed: common.SeedOption = None,
    plot: common.PlotOption = None,
    as_json: options.JsonOption = False,
) -> int:
    """One run of the training engine: do its releases show which canaries it was trained on?

    Each canary joins the training data by a fair coin. With --receipt, the run that it describes is repeated with
    canaries, and its claim is tried.

    Example: plrvo audit one-run digits --model logistic --noise laplace --epsilon 4 --canaries 1000
    """
    if plot is not None:
        check_plot(plot)
    amounts = {"clip": clip, "sample_rate": sample_rate, "steps": steps, "delta": delta, "epsilon": epsilon}
    learning = {"name": task, "model": model, "lr": learning_rate}
    run = common.read_receipt(receipt, claim, **noise.given, **amounts, **learning)
    if run is None and task is None:
        raise InvalidArgument("name", None, "a task of `plrvo train`, or --receipt")
    try:
        from plrvo.tasks import audited, catalog, experiment
        from plrvo.training.loop import Interrupted
    except ImportError:
        raise InvalidArgument("name", task, "torch and opacus: pip install plrvo[train]") from None
    seed = new_seed() if seed is None else seed
    streams = experiment.Streams.from_seed(seed)
    if run is None:
        preset = catalog.prepare(catalog.Request(str(task), model, data_dir), streams.weights)
        usual = preset.defaults
        clip, rate = _or(clip, usual.clip), _or(learning_rate, usual.learning_rate)
        setup = _Setup(
            Workload(_or(sample_rate, usual.sample_rate), _or(steps, usual.steps), clip, dimension=1),
            _or(delta, usual.delta),
            {
                "learning_rate": rate / (clip if usual.optimizer == "sgd" else 1.0),
                "optimizer": usual.optimizer,
                "momentum": 0.9,
                "schedule": usual.schedule,
                "physical_batch": usual.physical_batch,
            },
        )
    else:
        preset = catalog.prepare(_request(run, data_dir), streams.weights)
        setup = _repeated(run, preset.task.description, canary)
    rule = Rule(canaries, confidence, setup.delta, guesses)
    planting = audited.Planting(rule, canary, audited.canary_seed(seed), coordinates)
    built, module, observer = audited.with_canaries(preset.task, preset.module, planting, setup.work.clip)
    work = setup.work
    if setup.settings.get("clipping") != "l1":
        work = replace(work, dimension=sum(p.numel() for p in module.parameters() if p.requires_grad))
    if run is None:
        ((_, built_noise),) = common.fitted(noise, work, setup.delta, [] if epsilon is None else [epsilon])
    else:
        built_noise = run.noise
    word = common.word_for(claim, run)
    observer.planting = replace(planting, claim=common.claimed(claim, run, built_noise, work, setup.delta))
    plan = Plan.certify(built_noise, work, setup.delta)
    with tempfile.TemporaryDirectory() as folder:
        settings = experiment.Settings(
            Path(folder), evaluate_every=work.steps, checkpoint_every=work.steps, seed=seed, **setup.settings
        )
        try:
            with StepProgress(f"{preset.task.description['name']}, {built_noise.kind}") as watch:
                trained = experiment.run_private(built, module, plan, settings, streams, watch)
        except Interrupted:
            raise KeyboardInterrupt from None
    result = observer.result
    if result is None:  # the engine concludes after the last step
        raise RuntimeError("the run ended without a verdict")
    if plot is not None:
        plot_audits([common.point(built_noise.kind, result)], plot)
    if as_json:
        shown = {
            "claim": word,
            "canary": planting.describe(),
            "task": preset.task.description["name"],
            "model": preset.model,
            "noise": built_noise.to_dict(),
            "workload": work.to_dict(),
            "metrics": trained["run"]["metrics"],
            "seed": seed,
        }
        show.print_json({**result.to_dict(), **shown})
    else:
        common.tell(result, word)
    return common.exit_code([result])


def _or(given: Any, usual: Any) -> Any:
    return usual if given is None else given


@dataclass(frozen=True)
class _Setup:
    """What is trained how; the dimension of `work` is yet to be counted."""

    work: Workload
    delta: float
    settings: dict[str, Any]


def _request(receipt: common.Receipt, data_dir: Path | None) -> Request:
    """The task that the receipt names, with the options that it had."""
    known = receipt.content["task"]
    family = next((family for family in FAMILIES if known.get("name") in family.tasks), None)
    if family is None:
        raise receipt.refuse("the receipt of a task of `plrvo train`")
    return Request(
        known["name"], known.get("model"), data_dir, {name: known[name] for name in family.options if known.get(name)}
    )


def _repeated(receipt: common.Receipt, task: dict[str, Any], canary: CanaryKind) -> _Setup:
    """The run of the receipt once more. It must have been on this data."""
    if receipt.noise.shared and canary is CanaryKind.gradient:
        raise InvalidArgument("canary", "gradient", "example: the claim for a shared scale is for its own dimension")
    wanted = receipt.content["task"]
    for name in task.keys() - {"data_source"}:
        if wanted.get(name) != task[name]:
            raise receipt.refuse(f"a run with {name} {task[name]}; this one had {wanted.get(name)}")
    how = receipt.content["run"]
    names = ("learning_rate", "optimizer", "momentum", "weight_decay", "schedule", "clipping", "grad_sample_mode")
    settings = {name: how[name] for name in names}
    settings |= {"expected_batch_size": round(how["expected_batch_size"])}
    return _Setup(receipt.work, receipt.delta, {**settings, "postprocess": receipt.content["postprocess"]})
