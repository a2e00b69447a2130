"""`plrvo design`: the noise for a task, beside the alternatives, with the reasons."""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from plrvo.accounting import Clipping, Plan, Workload
from plrvo.cli import options, show
from plrvo.cli.design_result import tell, tell_batches, tell_beside, tell_choice, tell_clips, tell_file, tell_verdict
from plrvo.cli.signs import Signs
from plrvo.designer import Accountant, Design, Limits, compare, explain
from plrvo.designer.batches import FEWEST_STEPS, batches, proposed
from plrvo.designer.designed import design as search
from plrvo.designer.designed import warn_of_delta
from plrvo.designer.problem import check_clip
from plrvo.designer.recommendation import WITHOUT_LIMITS, check_comparable
from plrvo.files import check_figure, check_writable, write_figure
from plrvo.validate import InvalidArgument, positive, refuse_beside, required

_CLIPS = (1.0, 0.1, 0.01, 1e-3, 1e-4, 1e-5)  # the smallest where none is given: the first that will do
_EXAMPLE = "plrvo design --epsilon 1 --sample-rate 0.04 --steps 1250 --dimension 26010"
_IN_TIME = "plrvo design --epsilon 1 --dataset-size 60000 --dimension 39700 --minutes 3 --speed 10000"
_MOST_PASSES = 1e15  # of examples: more are no whole numbers of steps
_PATIENCE = 1.0  # seconds after which a bar appears


class Choice(StrEnum):
    """Which of the compared noises it is to be."""

    auto = "auto"
    gaussian = "gaussian"
    laplace = "laplace"
    gamma = "gamma"


def design(
    epsilon: options.EpsilonOption = None,
    delta: options.DeltaOrDefaultOption = None,
    sample_rate: options.RateOption = None,
    steps: options.StepsOption = None,
    dimension: options.DimensionOption = None,
    clip_min: Annotated[
        float | None,
        typer.Option(
            "--clip-min",
            help="Smallest clip with which the model learns; 1, or less for little budgets, unless given.",
            rich_help_panel=options.WORK,
        ),
    ] = None,
    clip_max: Annotated[
        float | None,
        typer.Option(
            "--clip-max",
            help="Largest clip; twice the smallest unless given. With --minutes and --save: the plan's clip, else 1.",
            rich_help_panel=options.WORK,
        ),
    ] = None,
    dataset_size: Annotated[
        int | None,
        typer.Option(
            "--dataset-size",
            help="Number of examples: to warn of a large delta, and needed with --minutes.",
            rich_help_panel=options.WORK,
        ),
    ] = None,
    minutes: Annotated[
        float | None,
        typer.Option(
            "--minutes",
            help="Time for training: what batches and steps fit in it, in the place of --sample-rate and --steps.",
            rich_help_panel=options.WORK,
        ),
    ] = None,
    speed: Annotated[
        float | None,
        typer.Option(
            "--speed",
            help="With --minutes: examples a second that your training does; `plrvo train` says it at its end.",
            rich_help_panel=options.WORK,
        ),
    ] = None,
    accountant: Annotated[
        Accountant | None,
        typer.Option(
            "--accountant",
            help="Which epsilon must meet the budget; certified by default.",
            rich_help_panel="Search",
            show_default=False,
        ),
    ] = None,
    k_max: Annotated[
        float | None,
        typer.Option("--k-max", help="Largest k to consider; 1e6 by default.", rich_help_panel="Search"),
    ] = None,
    plan: Annotated[
        Path | None,
        typer.Option("--plan", help="Check this saved plan instead of searching.", rich_help_panel="Search"),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option("--plot", help="Draw the search space into this file.", rich_help_panel="Output")
    ] = None,
    noise: Annotated[
        Choice | None,
        typer.Option(
            "--noise",
            help="The noise of the plan; auto, the default, takes the one that is recommended.",
            rich_help_panel="Output",
            show_default=False,
        ),
    ] = None,
    save: Annotated[
        Path | None, typer.Option("--save", help="Write the plan to this JSON file.", rich_help_panel="Output")
    ] = None,
    verbose: options.VerboseOption = False,
    as_json: options.JsonOption = False,
) -> int:
    """The noise to use for a workload and a budget, with the reason: Gaussian, Laplace and Gamma-PLRV noise compared.

    Gamma-PLRV noise and the clip are searched as in the paper, for the largest clip/E|z|; -v lists every constraint.
    With --plan it checks a saved plan; exit code 1 if it misses its budget, or a constraint of Gamma noise.

    With --minutes it compares batch sizes that fit in the time, by their noise; no data is looked at.

    Example: plrvo design --epsilon 1 --sample-rate 0.04 --steps 1250 --dimension 26010
    """
    if minutes is not None or speed is not None:
        beside: dict[str, Any] = {"sample_rate": sample_rate, "steps": steps, "plan": plan, "noise": noise}
        beside |= {"plot": plot, "accountant": accountant, "clip_min": clip_min, "k_max": k_max}
        refuse_beside("`minutes`, which asks for batches and steps", beside)
        if save is None:
            refuse_beside("`minutes` without `save`: nothing depends on the clip", {"clip_max": clip_max})
        return _batches(epsilon, delta, dataset_size, dimension, minutes, speed, clip_max, save, as_json)
    if plot is not None:
        check_figure(plot)
        check_writable(plot, "plot")
    if save is not None:
        check_writable(save, "save")
    if plan is not None:
        work_given = {"sample_rate": sample_rate, "steps": steps, "dimension": dimension, "dataset_size": dataset_size}
        searched = {"delta": delta, "clip_min": clip_min, "clip_max": clip_max, "k_max": k_max}
        refuse_beside("`plan`, which brings its own", work_given | searched)
    loaded = None if plan is None else Plan.load(plan)
    if loaded is not None and not _could_be_searched(loaded):
        unused = {"plot": plot, "noise": noise, "save": save, "accountant": accountant}
        refuse_beside(f"a plan with {loaded.noise.kind} noise", unused)
        return _review(plan, loaded, epsilon, verbose, as_json)
    if loaded is None:
        _check_asked(epsilon, sample_rate, steps, dimension)
    accountant = accountant or Accountant.certified
    with _warnings_in_one_line(), Signs("design", after=10, doing="searching"), _patient_bar("searching") as progress:
        if loaded is not None:
            found = explain(loaded, epsilon, accountant)
        else:
            found = _searched(
                clip_min,
                clip_max,
                lambda clip: search(
                    _workload(clip, sample_rate, steps, dimension),
                    epsilon,  # type: ignore[arg-type]
                    options.DEFAULT_DELTA if delta is None else delta,
                    clip_max=clip_max,
                    accountant=accountant,
                    dataset_size=dataset_size,
                    limits=Limits() if k_max is None else Limits(k_max=k_max),
                    progress=lambda share: progress(0.8 * share),
                ),
            )
        result = found.explanation()
        progress(1.0)
    if noise is None:  # what was searched or checked by the published formula is that noise, and no other
        noise = Choice.auto if accountant is Accountant.certified and plan is None else Choice.gamma
    own = noise is Choice.gamma and (accountant is Accountant.published or plan is not None)
    chosen = found if own else found.alternative("recommended" if noise is Choice.auto else noise)
    if save is not None:
        chosen.save(save)
    if plot is not None:
        with _patient_bar("drawing"):
            _draw(found, plot)
    if as_json:
        show.print_json(result)
    else:
        if loaded is None:
            tell_choice(chosen)
            if clip_min is None:
                tell_clips(found)
        else:
            tell_verdict(plan, loaded, found.problem.epsilon)  # type: ignore[arg-type]
        tell(found, chosen, {f"plan with {chosen.noise.kind} noise": save, "picture": plot}, verbose)
    return 0 if found.feasible else 1


def _could_be_searched(plan: Plan) -> bool:
    plain = plan.correlation is None and plan.clipping is Clipping.flat
    return plain and plan.noise.kind == Choice.gamma and not plan.noise.shared


def _review(path: Path | None, plan: Plan, epsilon: float | None, verbose: bool, as_json: bool) -> int:
    """A plan that no search finds: whether it keeps its budget, and which noise it could have instead."""
    budget = plan.epsilon if epsilon is None else epsilon
    required(epsilon=budget)
    kept = plan.bracket.certified <= budget  # type: ignore[operator]
    comparison = None
    if plan.correlation is None:
        with _patient_bar("comparing"):
            comparison = compare(plan.charged, budget, plan.delta)  # type: ignore[arg-type]
    if as_json:
        result = {**show.bracket_result(plan.noise, plan.workload, plan.bracket), "epsilon": budget, "kept": kept}
        if comparison is not None:
            result["alternatives"] = [row.to_dict() for row in comparison.alternatives.values()]
            result["recommended"] = comparison.recommendation()
        show.print_json(result)
    else:
        tell_verdict(path, plan, budget)  # type: ignore[arg-type]
        if comparison is not None:
            tell_beside(comparison, verbose)
    return 0 if kept else 1


def _batches(
    epsilon: float | None,
    delta: float | None,
    examples: int | None,
    dimension: int | None,
    minutes: float | None,
    speed: float | None,
    clip: float | None,
    save: Path | None,
    as_json: bool,
) -> int:
    """Batches and steps that fit in the time, each with its noise, and which of them is proposed."""
    delta = options.DEFAULT_DELTA if delta is None else delta
    try:
        required(epsilon=epsilon, dataset_size=examples, dimension=dimension, minutes=minutes, speed=speed)
    except InvalidArgument as error:
        raise InvalidArgument(error.argument, None, f"{error.expected}; for example: {_IN_TIME}") from None
    check_comparable(epsilon)  # type: ignore[arg-type]
    clip = 1.0 if clip is None else clip
    positive(minutes=minutes, speed=speed, clip_max=clip)
    check_clip("clip_max", clip)
    if save is not None:
        check_writable(save, "save")
    passes = 60 * minutes * speed  # type: ignore[operator]
    if passes < FEWEST_STEPS:
        least = f"more: {passes:.3g} examples pass in that time, and it takes {FEWEST_STEPS}, one for each step"
        raise InvalidArgument("minutes", minutes, least)
    if passes > _MOST_PASSES:
        raise InvalidArgument("minutes", minutes, f"fewer, at `speed` {speed:g}")
    fitting = Signs("design", after=10, doing="fitting noise to each batch")
    with _warnings_in_one_line(), fitting, _patient_bar("fitting") as progress:
        warn_of_delta(delta, examples)
        found = batches(examples, dimension, epsilon, delta, passes, progress)  # type: ignore[arg-type]
    chosen = proposed(found)
    if save is not None:
        chosen.plan(clip, dimension, epsilon, delta).save(save)  # type: ignore[arg-type]
    if as_json:
        show.print_json({"alternatives": [each.to_dict() for each in found], "proposed": chosen.to_dict()})
    else:
        tell_batches(found, chosen)
        if save is not None:
            tell_file(f"plan with gaussian noise and clip {clip:g}", save)
    return 0


def _smallest_clips(smallest: float | None, largest: float | None) -> tuple[float, ...]:
    """As given, or some to try, half of the largest first: noise scales with the clip, and which is best does not."""
    if smallest is not None:
        return (smallest,)
    if largest is None:
        return _CLIPS
    positive(clip_max=largest)
    return (largest / 2, *(clip for clip in _CLIPS if clip < largest / 2))


def _searched(smallest: float | None, largest: float | None, found_at: Callable[[float], Design]) -> Design:
    """What the first clip gives for which there is Gamma noise: the paper bounds its width by a number."""
    clips = _smallest_clips(smallest, largest)
    for clip in clips:
        try:
            return found_at(clip)
        except InvalidArgument as error:
            if error.argument == "clip":
                name, value = ("clip_min", clip) if largest is None or smallest is not None else ("clip_max", largest)
                raise InvalidArgument(name, value, error.expected) from None
            if error.argument != "epsilon":
                raise
            refused = error
    tried = "" if smallest is not None else f" (no clip from {clips[0]:g} down to {clips[-1]:g} does)"
    expected = refused.expected if smallest is not None else refused.expected.partition(", or ")[0]
    raise InvalidArgument("epsilon", refused.value, f"{expected}{tried}; {WITHOUT_LIMITS}")


def _check_asked(epsilon: float | None, sample_rate: float | None, steps: int | None, dimension: int | None) -> None:
    try:
        required(epsilon=epsilon, sample_rate=sample_rate, steps=steps, dimension=dimension)
    except InvalidArgument as error:
        raise InvalidArgument(error.argument, None, f"{error.expected}; for example: {_EXAMPLE}") from None
    check_comparable(epsilon)  # type: ignore[arg-type]


def _workload(clip: float | None, sample_rate: float | None, steps: int | None, dimension: int | None) -> Workload:
    try:
        return Workload(sample_rate=sample_rate, steps=steps, clip=clip, dimension=dimension)  # type: ignore[arg-type]
    except InvalidArgument as error:
        name = "clip_min" if error.argument == "clip" else error.argument
        raise InvalidArgument(name, error.value, error.expected) from None


def _draw(found: Design, path: Path) -> None:
    from plrvo.designer import SearchSpace, pictures

    write_figure(pictures.search_space(SearchSpace(found.problem), found.point), path)


@contextmanager
def _warnings_in_one_line() -> Iterator[None]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        yield
    for message in dict.fromkeys(str(warning.message) for warning in caught):  # once, however many clips were tried
        print(f"plrvo: warning: {message}", file=sys.stderr)


@contextmanager
def _patient_bar(label: str, console: Console | None = None) -> Iterator[Callable[[float], None]]:
    """A bar that shows itself only on a terminal, and only when the work takes longer than a moment."""
    started, console = time.monotonic(), console or Console(stderr=True)
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=30),
        TimeElapsedColumn(),
        console=console,
        transient=True,
    )
    task = bar.add_task(label, total=1.0)

    def progress(share: float) -> None:
        bar.update(task, completed=share)
        if console.is_terminal and not bar.live.is_started and time.monotonic() - started > _PATIENCE:
            bar.start()

    try:
        yield progress
    finally:
        if bar.live.is_started:
            bar.stop()
