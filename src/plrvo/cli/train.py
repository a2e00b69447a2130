"""`plrvo train`: private training of a preset task."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from plrvo.accounting import Workload, calibrate
from plrvo.accounting.correlated import Correlation
from plrvo.audit.one_run import CanaryKind
from plrvo.cli import correlation as correlated
from plrvo.cli import options, show
from plrvo.cli.options import read_noise, required
from plrvo.cli.progress import StepProgress
from plrvo.design import Plan
from plrvo.design.exact import on_grid
from plrvo.tasks.catalog import NAMES as TASKS
from plrvo.validate import InvalidArgument

_RUN, _LEARN, _AUDIT = "Run", "Learning", "Audit"


class TrainNoise(StrEnum):
    """The noises that training knows by name."""

    gamma = "gamma"
    laplace = "laplace"
    gaussian = "gaussian"
    none = "none"


def train(
    task: Annotated[str, typer.Argument(help=f"{', '.join(TASKS[:-1])} or {TASKS[-1]}.", show_default=False)],
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            help="Images: cnn (the default), cnn-tanh, logistic, resnet18, vit:NAME_OR_FOLDER, "
            "efficientnet-lite0-head. Text: minilm (the default), or the hub name or folder of a checkpoint. "
            "Tables: stories15M (the default), smollm2, or the hub name or folder of a causal language model.",
            rich_help_panel=_LEARN,
        ),
    ] = None,
    trainable: Annotated[
        str | None,
        typer.Option(
            "--trainable",
            help="Text: all, lora, bias or head (the default; for tables, all is).",
            rich_help_panel=_LEARN,
        ),
    ] = None,
    max_length: Annotated[
        int | None,
        typer.Option("--max-length", help="Text: tokens at which an example is cut.", rich_help_panel=_LEARN),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option("--limit", help="Text: train on the first so many examples only.", rich_help_panel=_RUN),
    ] = None,
    references: Annotated[
        int | None,
        typer.Option("--references", help="Tables: train on so many texts of each table only.", rich_help_panel=_RUN),
    ] = None,
    test_limit: Annotated[
        int | None,
        typer.Option("--test-limit", help="Tables: test on so many tables, evenly spread.", rich_help_panel=_RUN),
    ] = None,
    beams: Annotated[
        int | None,
        typer.Option("--beams", help="Tables: width of the beam search; 1 is greedy.", rich_help_panel=_RUN),
    ] = None,
    top_p: Annotated[
        float | None,
        typer.Option("--top-p", help="Tables: draw texts from the likeliest tokens instead.", rich_help_panel=_RUN),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(
            "--data", help="Text: hf:NAME or hf:NAME:CONFIGURATION, from the hub of data sets.", rich_help_panel=_RUN
        ),
    ] = None,
    noise: Annotated[
        TrainNoise, typer.Option("--noise", help="none trains without privacy.", rich_help_panel=options.NOISE)
    ] = TrainNoise.gamma,
    plan_file: Annotated[
        Path | None,
        typer.Option(
            "--plan",
            help="A plan from `plrvo design --save`; it brings noise, clip, rate, steps and delta.",
            rich_help_panel=options.NOISE,
        ),
    ] = None,
    epsilon: options.EpsilonOption = None,
    delta: Annotated[
        float | None,
        typer.Option(
            "--delta",
            help="Failure probability of the guarantee; 1e-5 for images, 1/(2N) for text by default.",
            rich_help_panel=options.BUDGET,
        ),
    ] = None,
    noise_multiplier: options.MultiplierOption = None,
    scale: options.ScaleOption = None,
    k: options.KOption = None,
    theta: options.ThetaOption = None,
    shared: options.SharedOption = False,
    clip: Annotated[
        float | None,
        typer.Option(
            "--clip",
            help="l2 norm to which each gradient is clipped; by default what suits the task.",
            rich_help_panel=options.WORK,
        ),
    ] = None,
    sample_rate: Annotated[
        float | None,
        typer.Option(
            "--sample-rate",
            help="Probability with which an example joins a batch; by default what suits the task.",
            rich_help_panel=options.WORK,
        ),
    ] = None,
    steps: Annotated[
        int | None,
        typer.Option(
            "--steps", help="Number of noisy steps; by default what suits the task.", rich_help_panel=options.WORK
        ),
    ] = None,
    correlation: correlated.CorrelationOption = None,
    epochs: correlated.EpochsOption = None,
    batch_size: correlated.BatchOption = None,
    restart_every: correlated.RestartOption = None,
    separation: correlated.SeparationOption = None,
    learning_rate: Annotated[
        float | None,
        typer.Option(
            "--lr",
            help="Learning rate; for sgd of gradients divided by batch size and clip.",
            rich_help_panel=_LEARN,
        ),
    ] = None,
    optimizer: Annotated[
        str | None, typer.Option("--optimizer", help="sgd, adam or adamw.", rich_help_panel=_LEARN)
    ] = None,
    schedule: Annotated[
        str | None,
        typer.Option("--schedule", help="Of the learning rate: constant, or linear to zero.", rich_help_panel=_LEARN),
    ] = None,
    momentum: Annotated[float, typer.Option("--momentum", help="Momentum of sgd.", rich_help_panel=_LEARN)] = 0.9,
    weight_decay: Annotated[float, typer.Option("--weight-decay", rich_help_panel=_LEARN)] = 0.0,
    postprocess: Annotated[
        str | None, typer.Option("--postprocess", help="score or clamp: free of privacy cost.", rich_help_panel=_LEARN)
    ] = None,
    clipping: Annotated[
        str, typer.Option("--clipping", help="flat, per_layer, or l1 (laplace only).", rich_help_panel=_LEARN)
    ] = "flat",
    mode: Annotated[
        str, typer.Option("--grad-sample-mode", help="auto, bookkeeping, hooks or ghost.", rich_help_panel=_LEARN)
    ] = "auto",
    exact: Annotated[
        bool,
        typer.Option(
            "--exact",
            help="Integers and exact noise: safe against attacks on last bits.",
            rich_help_panel=options.NOISE,
        ),
    ] = False,
    grid: Annotated[
        float | None,
        typer.Option(
            "--grid", help="With --exact: the unit of the integers; chosen by default.", rich_help_panel=options.NOISE
        ),
    ] = None,
    physical_batch: Annotated[
        int | None,
        typer.Option("--physical-batch", help="At most so many examples in memory at once.", rich_help_panel=_RUN),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            "--seed", help="Makes the run repeatable, and not private against whoever knows it.", rich_help_panel=_RUN
        ),
    ] = None,
    out: Annotated[
        Path,
        typer.Option("--out", help="Folder for weights, metrics, checkpoint, receipt and plot.", rich_help_panel=_RUN),
    ] = Path("runs/latest"),
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run in --out.", rich_help_panel=_RUN)] = False,
    data_dir: Annotated[
        Path | None,
        typer.Option(
            "--data-dir", help="Folder with the data sets; else PLRVO_DATA, else a download.", rich_help_panel=_RUN
        ),
    ] = None,
    evaluate_every: Annotated[
        int, typer.Option("--evaluate-every", help="Steps between tests.", rich_help_panel=_RUN)
    ] = 25,
    checkpoint_every: Annotated[
        int, typer.Option("--checkpoint-every", help="Steps between checkpoints.", rich_help_panel=_RUN)
    ] = 50,
    audit: Annotated[
        int | None,
        typer.Option("--audit", help="Plant so many canaries, and audit the run by them.", rich_help_panel=_AUDIT),
    ] = None,
    canary: Annotated[
        CanaryKind,
        typer.Option(
            "--canary",
            help="gradient: in parameters beside the model, read from every step; example: made-up inputs, read from "
            "the model's outputs.",
            rich_help_panel=_AUDIT,
        ),
    ] = CanaryKind.gradient,
    unsafe_diagnostics: Annotated[
        bool,
        typer.Option(
            "--unsafe-diagnostics",
            help="Write batch sizes and training losses, which no guarantee covers; the receipt says so.",
            rich_help_panel=_RUN,
        ),
    ] = False,
    as_json: options.JsonOption = False,
) -> int:
    """Train a preset task with a noise that certifies --epsilon, or with a noise that you give.

    Writes weights, metrics, a checkpoint, a receipt that `plrvo verify` recomputes, and a plot. Ctrl-C leaves a
    checkpoint; --resume continues from it with the same random streams. Exit code 1 where --audit refutes the run's
    certified epsilon.

    Example: plrvo train digits --epsilon 2 --seed 0 --out runs/digits
    """
    from plrvo.tasks import catalog, experiment
    from plrvo.training.diagnostics import WARNING
    from plrvo.training.loop import Interrupted, read_history

    experiment.check_folder(out, resume)  # before anything is loaded
    if grid is not None and not exact:
        raise InvalidArgument("grid", grid, "no width without --exact")
    if exact and noise is TrainNoise.none:
        raise InvalidArgument("exact", exact, "a noise to be exact about")
    experiment.check_choices(optimizer, schedule)
    streams = experiment.Streams.from_seed(seed)
    plan = None if plan_file is None else Plan.load(plan_file)
    if plan is not None:
        given = {"clip": clip, "sample_rate": sample_rate, "steps": steps, "epsilon": epsilon, "k": k, "theta": theta}
        given |= {"scale": scale, "noise_multiplier": noise_multiplier, "delta": delta}
        for name, value in given.items():
            if value is not None:
                raise InvalidArgument(name, value, "no value beside --plan, which brings its own")
        sample_rate, steps, clip = plan.workload.sample_rate, plan.workload.steps, plan.workload.clip
        delta = plan.delta
    asked: dict[str, Any] = {
        "trainable": trainable,
        "max_length": max_length,
        "limit": limit,
        "data": data,
        "references": references,
    }
    asked |= {"test_limit": test_limit, "beams": beams, "top_p": top_p}
    request = catalog.Request(task, model, data_dir, {key: value for key, value in asked.items() if value is not None})
    preset = catalog.prepare(request, streams.weights)
    for warning in preset.task.warnings:
        print(f"plrvo: warning: {warning}", file=sys.stderr)
    usual, model = preset.defaults, preset.model
    optimizer = usual.optimizer if optimizer is None else optimizer
    schedule = usual.schedule if schedule is None else schedule
    how = plan.correlation if plan else None
    asked_for = correlated.Asked(correlation, epochs, batch_size, restart_every, separation)
    asked_for.refuse_beside(clipping, noise.value, plan=plan_file, sample_rate=sample_rate, steps=steps, audit=audit)
    if correlation is not None:
        sums, falls = momentum if optimizer == "sgd" else 0.0, schedule == "linear"
        sample_rate, (how, steps) = 1.0, correlated.read_correlation(asked_for, preset.task.size, sums, falls)
    clip = usual.clip if clip is None else clip
    sample_rate = usual.sample_rate if sample_rate is None else sample_rate
    steps = usual.steps if steps is None else steps
    delta = usual.delta if delta is None else delta
    learning_rate = usual.learning_rate if learning_rate is None else learning_rate
    built, module = preset.task, preset.module
    if audit is not None:
        if noise is TrainNoise.none:
            raise InvalidArgument("audit", audit, "a noise: without one nothing is claimed")
        if how is not None:
            raise InvalidArgument("audit", audit, "a plan without correlation: canaries join sampled batches")
        built, module = audited_task(built, module, audit, canary, delta, clip, seed, out if resume else None)
    dimension = 1 if clipping == "l1" else sum(p.numel() for p in module.parameters() if p.requires_grad)
    if audit is not None and plan is not None and plan.workload.dimension < dimension:
        raise InvalidArgument(
            "audit",
            audit,
            f"a plan of dimension {dimension}, which counts the canaries' parameters, or --canary example",
        )
    work = Workload(sample_rate=sample_rate, steps=steps, clip=clip, dimension=dimension)
    settings = experiment.Settings(
        out=out,
        # A clipped gradient has at most the norm of the clip, so the rate is given for gradients in units of it.
        learning_rate=learning_rate / (1.0 if noise is TrainNoise.none or optimizer != "sgd" else clip),
        optimizer=optimizer,
        momentum=momentum,
        weight_decay=weight_decay,
        schedule=schedule,
        clipping=clipping,
        grad_sample_mode=mode,
        postprocess=postprocess,
        physical_batch=usual.physical_batch if physical_batch is None else physical_batch,
        evaluate_every=evaluate_every,
        checkpoint_every=checkpoint_every,
        resume=resume,
        seed=seed,
        unsafe_diagnostics=unsafe_diagnostics,
    )
    settings.check()
    if unsafe_diagnostics:
        print(f"plrvo: warning: {WARNING}", file=sys.stderr)
    if noise is TrainNoise.none:
        with StepProgress(f"{task}, not private") as watch:
            history = experiment.run_plain(built, module, sample_rate, steps, settings, streams, watch)
        result = {**_last(history), "private": False}
        _finish(out, history, f"{task}, {model}, not private", as_json, result, built.metric)
        return 0
    if plan is None:
        plan = _plan(noise, work, epsilon, delta, noise_multiplier, scale, k, theta, shared, how)
    plan = on_grid(plan, grid) if exact else plan
    work, kind = plan.workload, plan.noise.before_rounding.kind
    if not as_json:
        show.bracket_table(plan.noise, work, plan.bracket, how)
    try:
        with StepProgress(f"{task}, {kind}") as watch:
            receipt = experiment.run_private(built, module, plan, settings, streams, watch)
    except Interrupted:
        print(f"plrvo: stopped; `--resume --out {out}` continues from {out / experiment.CHECKPOINT}", file=sys.stderr)
        raise typer.Exit(130) from None
    if not receipt:  # another process writes
        return 0
    metrics = receipt["run"]["metrics"]
    result = {
        **{name: value for name, value in metrics.items() if name not in ("step", "epsilon_certified")},
        "epsilon_certified": receipt["epsilon"]["certified"],
        "epsilon_lower": receipt["epsilon"]["lower"],
        "epsilon_published": receipt["epsilon"]["published"],
        "delta": delta,
        "steps": receipt["steps"],
        "noise": plan.noise.to_dict(),
        "receipt": str(out / experiment.RECEIPT),
        **({} if audit is None else {"audit": receipt["audit"]}),
    }
    history = read_history(out / experiment.METRICS)
    _finish(
        out, history, f"{task}, {model}, {kind} noise, delta {show.rounded_up(delta)}", as_json, result, built.metric
    )
    return int(audit is not None and receipt["audit"]["verdict"] == "refuted")


def audited_task(
    task: Any, module: Any, canaries: int, kind: CanaryKind, delta: float, clip: float, seed: int | None, resumed: Any
) -> Any:
    """The task with canaries in it, and the model that goes with them."""
    from plrvo.audit.one_run import Rule
    from plrvo.tasks.audited import Planting, canary_seed, with_canaries

    try:
        rule = Rule(canaries, confidence=0.99, delta=delta)
        rule.fits(task.size)
    except InvalidArgument as error:
        if error.argument != "canaries":
            raise
        raise InvalidArgument("audit", canaries, error.expected) from None
    return with_canaries(task, module, Planting(rule, kind, canary_seed(seed, resumed)), clip)[:2]


def _plan(
    noise: TrainNoise,
    work: Workload,
    epsilon: float | None,
    delta: float,
    noise_multiplier: float | None,
    scale: float | None,
    k: float | None,
    theta: float | None,
    shared: bool,
    correlation: Correlation | None,
) -> Plan:
    """The noise of the options, or the smallest one of that kind that certifies the budget."""
    kind = options.NoiseKind(noise.value)
    given = {"noise_multiplier": noise_multiplier, "scale": scale, "theta": theta}
    if epsilon is None:
        if all(value is None for value in given.values()):
            raise InvalidArgument("epsilon", None, "a budget, or the parameters of the noise")
        built = read_noise(kind, work.clip, noise_multiplier, scale, k, theta, shared, None)
        return Plan.certify(built, work, delta, None, correlation)
    for name, value in given.items():
        if value is not None:
            raise InvalidArgument(name, value, "no value beside --epsilon, which fits the noise's width")
    if kind is options.NoiseKind.gamma and k is None:
        k = DEFAULT_K
    start = read_noise(kind, work.clip, 1.0, work.clip, k, 1 / work.clip, shared, None)
    required(epsilon=epsilon)
    fitted = calibrate(start, work, epsilon, delta, correlation)
    return Plan.certify(fitted, work, delta, epsilon, correlation)


DEFAULT_K = 1000.0  # within 0.3 % of the Laplace limit, which is the best that Gamma noise can do on raw error


def _last(history: list[dict[str, Any]]) -> dict[str, Any]:
    return history[-1] if history else {}


def _finish(
    out: Path, history: list[dict[str, Any]], title: str, as_json: bool, result: dict[str, Any], metric: str
) -> None:
    from plrvo.report.curves import plot_curves

    plot_curves(history, title, out / "curves.png", metric)
    if as_json:
        show.print_json(result)
        return
    percent = metric == "accuracy"
    print(f"test accuracy {100 * result[metric]:.2f} %" if percent else f"test {metric} {result[metric]:.4g}")
    if "epsilon_certified" in result:
        print(
            f"certified epsilon {show.rounded_up(result['epsilon_certified'])} "
            f"at delta {show.rounded_up(result['delta'])} "
            f"(an attacker reaches at least {show.rounded_down(result['epsilon_lower'])})"
        )
        if result.get("audit"):
            print(_audit_line(result["audit"]))
        print(f"receipt: {result['receipt']}    check it: plrvo verify {result['receipt']}")
    print(f"plot: {out / 'curves.png'}")


def _audit_line(audit: dict[str, Any]) -> str:
    return (
        f"audit: the claim is {audit['verdict']}; epsilon is at least {show.rounded_down(audit['epsilon_audited'])} at "
        f"confidence {audit['confidence']:g} ({audit['correct']} of {audit['guesses']} guesses about "
        f"{audit['canaries']} canaries were right)"
    )
