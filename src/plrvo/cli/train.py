"""`plrvo train`: private training of a preset task."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from plrvo.cli import options, show
from plrvo.cli.noise_options import noise_parameters
from plrvo.cli.progress import StepProgress
from plrvo.cli.signs import Signs
from plrvo.cli.train_options import PANELS, TaskArgument, options_of_a_job
from plrvo.cli.train_result import finish, result_of, warnings_of
from plrvo.records.folder import CHECKPOINT
from plrvo.tasks.beforehand import check_beforehand
from plrvo.tasks.catalog import NAMES as TASKS
from plrvo.tasks.choices import check_folder
from plrvo.tasks.job import Job
from plrvo.validate import InvalidArgument, counted, nearest, one_of, printable

if TYPE_CHECKING:
    from plrvo.tasks.resolved import Resolved

# Those of an audit have a command of their own.
NAMES = {name for helps in PANELS.values() for name in helps} - {"coordinates", "confidence", "guesses"}


@options_of_a_job("train", NAMES, noise_parameters(files=False, auto=True, none=True))
def train(
    task: TaskArgument = None,
    *,
    out: Annotated[
        Path, typer.Option("--out", help="Folder for weights, metrics, checkpoint, receipt and plot.")
    ] = Path("runs/latest"),
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run in --out; it needs nothing else.")] = False,
    verbose: options.VerboseOption = False,
    as_json: options.JsonOption = False,
    **asked: Any,
) -> int:
    """Train a preset task within a privacy budget, with the noise that suits it best or with one that you name.

    Writes weights, metrics, a checkpoint, a receipt that `plrvo verify` recomputes, and a plot. Ctrl-C leaves a
    checkpoint; `plrvo train --resume --out RUN` continues: with --seed to the same result, else with fresh noise.
    Exit code 1 where --audit refutes the run's certified epsilon.

    Images: the digits come with scikit-learn, and the settings for them were found on them; other images become
    scattering features, with settings that were found on another data set. Everything else is fixed beforehand.

    Example: plrvo train digits --epsilon 3 --out runs/digits
    """
    check_folder(out, resume)
    if task is not None:
        _check_task(task)  # before anything that is missing beside it
    words = {name: value for name, value in {"task": task, **asked}.items() if value is not None}
    job = Job.resumed(out, words) if resume else Job.read(words)
    check_beforehand(job, out, resume)
    with Signs(job.task):
        return _trained(job, out, resume, verbose, as_json)


def _trained(job: Job, out: Path, resume: bool, verbose: bool, as_json: bool) -> int:
    resolved = job.resolve(out, resume)
    for warning in warnings_of(job, resolved):
        print(f"plrvo: warning: {printable(options.spelled(warning))}", file=sys.stderr)
    plan = resolved.plan
    if plan is not None and not as_json:
        _tell_plan(job, resolved, verbose)
    kind = "NOT PRIVATE" if plan is None else plan.noise.before_rounding.kind
    try:
        with StepProgress(f"{job.task}, {kind}", resolved.work.steps) as watch:
            trained = resolved.train(watch, watch.during)
    except KeyboardInterrupt:  # after a step, or at once
        if plan is None or not (out / CHECKPOINT).exists():
            raise
        command = f"{_program()} train --resume --out {shlex.quote(str(out))}" + (" --json" if as_json else "")
        print(f"plrvo: stopped; this continues: {printable(command)}", file=sys.stderr)
        raise typer.Exit(130) from None
    if plan is not None and trained.receipt is None:  # another process writes
        return 0
    result = result_of(resolved, trained)
    finish(out, trained.history, f"{job.task}, {resolved.model}", as_json, result, resolved.task.metric)
    return int(result.get("audit", {}).get("verdict") == "refuted")


def _tell_plan(job: Job, resolved: Resolved, verbose: bool) -> None:
    """The noise, and why it is this one; and a delta that nobody has chosen."""
    plan = resolved.plan
    if plan is None:
        return
    if verbose:
        show.bracket_table(plan.noise, plan.workload, plan.bracket, plan.correlation)
    why = f": {resolved.reason}" if resolved.reason else ""
    noise = show.capital(show.described(plan.noise, plan.workload.clip))
    Console(highlight=False).print(f"{noise}{why}.{_default_delta(job, resolved.task.size, plan.delta)}")


def _default_delta(job: Job, size: int, delta: float) -> str:
    """A sentence where delta follows from the number of examples, and was not asked for.

    That of images does not, though it is 1/(2N) of 50,000.
    """
    from plrvo.tasks.defaults import Defaults

    if job.delta is not None or job.plan is not None or delta != 1 / (2 * size) or delta == Defaults.delta:
        return ""
    return f" Delta is {show.rounded_up(delta)}, 1/(2N) for N = {counted(size, 'example', ',')}; --delta sets another."


def _program() -> str:
    """What was typed to get here: a command to copy works in the same place."""
    typed = Path(sys.argv[0])
    return sys.argv[0] if typed.name == "plrvo" else "plrvo"


def _check_task(task: str) -> None:
    if task not in TASKS and nearest(task, TASKS) is None:
        own = "your own data: plrvo.PrivacyEngine (docs: training)"
        raise InvalidArgument("task", task, f"one of {', '.join(TASKS)}; {own}")
    one_of(TASKS, task=task)
