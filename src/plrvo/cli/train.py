"""`plrvo train`: private training of a preset task."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import typer

from plrvo.accounting import Workload
from plrvo.audit.one_run import CanaryKind
from plrvo.cli import correlation as correlated
from plrvo.cli import options, show
from plrvo.cli import train_options as given
from plrvo.cli.progress import StepProgress
from plrvo.cli.train_options import TrainNoise
from plrvo.cli.train_plan import make_plan
from plrvo.cli.train_result import finish, last_of
from plrvo.design import Plan
from plrvo.design.exact import on_grid
from plrvo.validate import InvalidArgument, printable

_NO_NOISE = "NOT PRIVATE: --noise none adds no noise, and the model may tell of every example"


def train(
    task: given.TaskArgument,
    model: given.ModelOption = None,
    trainable: given.TrainableOption = None,
    max_length: given.MaxLengthOption = None,
    limit: given.LimitOption = None,
    references: given.ReferencesOption = None,
    test_limit: given.TestLimitOption = None,
    beams: given.BeamsOption = None,
    top_p: given.TopPOption = None,
    data: given.DataOption = None,
    noise_asked: given.NoiseOption = None,
    plan_file: given.PlanOption = None,
    epsilon: options.EpsilonOption = None,
    delta: given.DeltaOption = None,
    noise_multiplier: options.MultiplierOption = None,
    scale: options.ScaleOption = None,
    k: options.KOption = None,
    theta: options.ThetaOption = None,
    shared: options.SharedOption = False,
    clip: given.ClipOption = None,
    sample_rate: given.SampleRateOption = None,
    steps: given.StepsOption = None,
    correlation: correlated.CorrelationOption = None,
    epochs: correlated.EpochsOption = None,
    batch_size: correlated.BatchOption = None,
    restart_every: correlated.RestartOption = None,
    separation: correlated.SeparationOption = None,
    learning_rate: given.RateOption = None,
    optimizer: given.OptimizerOption = None,
    schedule: given.ScheduleOption = None,
    momentum: given.MomentumOption = 0.9,
    weight_decay: given.WeightDecayOption = 0.0,
    postprocess: given.PostprocessOption = None,
    clipping: given.ClippingOption = "flat",
    mode: given.ModeOption = "auto",
    exact: given.ExactOption = False,
    grid: given.GridOption = None,
    physical_batch: given.PhysicalBatchOption = None,
    seed: given.SeedOption = None,
    out: given.OutOption = Path("runs/latest"),
    resume: given.ResumeOption = False,
    data_dir: given.DataDirOption = None,
    evaluate_every: given.EvaluateEveryOption = 25,
    checkpoint_every: given.CheckpointEveryOption = 50,
    audit: given.AuditOption = None,
    canary: given.CanaryOption = CanaryKind.gradient,
    unsafe_diagnostics: given.UnsafeDiagnosticsOption = False,
    as_json: options.JsonOption = False,
) -> int:
    """Train a preset task with a noise that certifies --epsilon, or with a noise that you give.

    Writes weights, metrics, a checkpoint, a receipt that `plrvo verify` recomputes, and a plot. Ctrl-C leaves a
    checkpoint; --resume continues from it: with --seed to the same result, and without one with fresh noise. Exit code
    1 where --audit refutes the run's certified epsilon.

    Example: plrvo train digits --epsilon 2 --out runs/digits
    """
    from plrvo.tasks import catalog, experiment
    from plrvo.training.diagnostics import WARNING
    from plrvo.training.exact import check_exact
    from plrvo.training.loop import Interrupted, read_history

    experiment.check_folder(out, resume)  # before anything is loaded
    private: dict[str, Any] = {"correlation": correlation, "exact": exact or None, "resume": resume or None}
    private |= {"plan": plan_file, "epsilon": epsilon, "delta": delta, "noise_multiplier": noise_multiplier}
    private |= {"scale": scale, "k": k, "theta": theta, "shared": shared or None}
    if noise_asked is TrainNoise.none:
        refuse_beside_no_noise(private)
    noise = TrainNoise.gamma if noise_asked is None else noise_asked
    if grid is not None and not exact:
        raise InvalidArgument("grid", grid, "no width without --exact")
    if exact:
        check_exact(clipping, False, mode)
    experiment.check_choices(optimizer, schedule)
    streams = experiment.Streams.from_seed(seed)
    plan = None if plan_file is None else Plan.load(plan_file)
    if plan is not None:
        beside: dict[str, Any] = {
            "clip": clip,
            "sample_rate": sample_rate,
            "steps": steps,
            "epsilon": epsilon,
            "k": k,
            "theta": theta,
        }
        beside |= {"scale": scale, "noise_multiplier": noise_multiplier, "delta": delta}
        beside |= {"noise": noise_asked, "shared": shared or None}
        for name, value in beside.items():
            if value is not None:
                raise InvalidArgument(name, str(value), "no value beside --plan, which brings its own")
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
        print(f"plrvo: warning: {printable(warning)}", file=sys.stderr)
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
    if seed is not None and noise is not TrainNoise.none:
        print("plrvo: warning: NOT PRIVATE: whoever knows --seed can take the noise away", file=sys.stderr)
    if noise is TrainNoise.none:
        print(f"plrvo: warning: {_NO_NOISE}", file=sys.stderr)
        with StepProgress(f"{task}, NOT PRIVATE") as watch:
            history = experiment.run_plain(built, module, sample_rate, steps, settings, streams, watch)
        result = {**last_of(history), "private": False}
        finish(out, history, f"{task}, {model}, not private", as_json, result, built.metric)
        if not as_json:
            print(_NO_NOISE)
        return 0
    if plan is None:
        plan = make_plan(noise, work, epsilon, delta, noise_multiplier, scale, k, theta, shared, how)
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
        "seeded": receipt["run"]["seeded"],
        "noise": plan.noise.to_dict(),
        "receipt": str(out / experiment.RECEIPT),
        **({} if audit is None else {"audit": receipt["audit"]}),
    }
    history = read_history(out / experiment.METRICS)
    finish(
        out, history, f"{task}, {model}, {kind} noise, delta {show.rounded_up(delta)}", as_json, result, built.metric
    )
    return int(audit is not None and receipt["audit"]["verdict"] == "refuted")


def refuse_beside_no_noise(private: dict[str, Any]) -> None:
    """Whoever asks for privacy, or for a private run to go on, must not be given a run without any."""
    for name, value in private.items():
        if value is not None:
            raise InvalidArgument(name, str(value), "a noise beside it: --noise none trains without any privacy")


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
