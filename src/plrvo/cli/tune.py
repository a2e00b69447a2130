"""`plrvo tune`: settings found on private data, with what that costs."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from plrvo.cli import options
from plrvo.cli.audit_clipbkd import EngineKind
from plrvo.cli.noise_options import noise_parameters
from plrvo.cli.progress import Waiting
from plrvo.cli.train_options import TaskArgument, options_of_a_job
from plrvo.cli.tune_result import finish, result_of
from plrvo.tasks.job import Job
from plrvo.tasks.tuning import Distribution, Tuning, read_vary
from plrvo.tasks.tuning.beforehand import check_search
from plrvo.tasks.tuning.state import State
from plrvo.tasks.tuning.tuning import HELD_OUT
from plrvo.validate import InvalidArgument, positive_integer, printable

SEARCH = "Search"
TRIALS_MEAN = 10.0
NAMES = {"epsilon", "model", "seed", "data_dir", "trainable", "max_length", "learning_rate", "optimizer", "schedule"}
NAMES |= {"average", "momentum", "weight_decay", "postprocess", "clipping", "grad_sample_mode", "limit", "data"}
NAMES |= {"physical_batch", "evaluate_every", "noise", "delta", "budget", "clip", "sample_rate", "steps"}
_SEEDED = "NOT PRIVATE: whoever knows --seed can take the noise away, and knows how many trials there were"
_KEPT = (
    "--keep-trials shows all trials: the certified epsilon will be that of their sum, which is not known yet and may "
    "be several times --epsilon"
)


@options_of_a_job("tune", NAMES, noise_parameters(widths=False, files=False, auto=True))
def tune(
    task: TaskArgument = None,
    *,
    out: Annotated[
        Path, typer.Option("--out", help="Folder for the best trial, with the receipt of the search.")
    ] = Path("runs/tuned"),
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the search in --out; it needs nothing else.")
    ] = False,
    as_json: options.JsonOption = False,
    vary: Annotated[
        list[str] | None,
        typer.Option(
            "--vary",
            help="NAME=VALUE,VALUE,... or NAME=LOW:HIGH[:log], once for each setting: lr, momentum, weight-decay, "
            "average, optimizer, schedule; and as lists clip, sample-rate, steps.",
            rich_help_panel=SEARCH,
        ),
    ] = None,
    trials_mean: Annotated[
        float, typer.Option("--trials-mean", help="How many trials there are on average.", rich_help_panel=SEARCH)
    ] = TRIALS_MEAN,
    distribution: Annotated[
        Distribution,
        typer.Option(
            "--distribution",
            help="Law of their number. geometric: at least one, often few. poisson: near the mean, costs more, and "
            "there may be none. tnb: a family, by --eta.",
            rich_help_panel=SEARCH,
        ),
    ] = Distribution.geometric,
    eta: Annotated[
        float | None,
        typer.Option(
            "--eta",
            help="With tnb: above -1. Below 1 costs less at the same mean, and is more often a single trial; 1 is "
            "geometric, 0 logarithmic.",
            rich_help_panel=SEARCH,
        ),
    ] = None,
    grid: Annotated[
        bool,
        typer.Option(
            "--grid/--random",
            help="How a value of a range LOW:HIGH is drawn: --grid takes one of five points, --random "
            "anything between. Points are drawn with replacement: a grid is not walked through.",
            rich_help_panel=SEARCH,
        ),
    ] = False,
    held_out: Annotated[
        float,
        typer.Option(
            "--held-out",
            help="Share of the private training data that trials are scored on, with noise, and not trained on.",
            rich_help_panel=SEARCH,
        ),
    ] = HELD_OUT,
    keep_trials: Annotated[
        bool,
        typer.Option(
            "--keep-trials", help="Leave all trials in --out/trials. Costs the sum of them.", rich_help_panel=SEARCH
        ),
    ] = False,
    jobs: Annotated[int, typer.Option("--jobs", help="Trials at the same time.", rich_help_panel=SEARCH)] = 1,
    engine: Annotated[
        EngineKind, typer.Option("--engine", help="joblib engine that runs them.", rich_help_panel=SEARCH)
    ] = EngineKind.loky,
    **asked: Any,
) -> int:
    """Find settings on private data, and pay for the search: --epsilon is what all of it costs, certified.

    Whoever trains ten times and keeps the best model has shown something of all ten. Here the number of trials is
    random and secret, every trial draws its settings anew, and only the best is kept: that costs little more than one
    trial. A trial is scored on private examples that it was not trained on, by a count with noise. Test data is for the
    result alone.

    Leaves weights, metrics and a receipt of the best trial, with the epsilon of the whole search, which `plrvo verify`
    recomputes. Until then the folder .search in --out is secret. Ctrl-C or a crash: `plrvo tune --resume --out DIR`
    goes on with the same trials. How long a search takes tells how many trials there were: keep that to yourself too.

    Exit code 1 where nothing is released: no trial was drawn (poisson), or all diverged.

    Example: plrvo tune digits --epsilon 3 --trials-mean 10 --vary lr=0.1:10:log --vary clip=0.1,1 --out runs/tuned
    """
    positive_integer(jobs=jobs)
    words = {name: value for name, value in {"task": task, **asked}.items() if value is not None}
    if resume:
        search: dict[str, tuple[Any, Any]] = {
            "trials_mean": (trials_mean, TRIALS_MEAN),
            "distribution": (distribution, Distribution.geometric),
            "eta": (eta, None),
            "grid": (grid, False),
            "held_out": (held_out, HELD_OUT),
            "keep_trials": (keep_trials, False),
        }
        others = {**words, **({"vary": vary} if vary else {})}
        others |= {name: value for name, (value, usual) in search.items() if value != usual}
        for name, value in others.items():
            raise InvalidArgument(name, value, "no value beside `resume`: a search goes on as it was begun")
        State.read(out)
    else:
        tuning = _tuning(words, vary, trials_mean, distribution, eta, grid, held_out, keep_trials)
        check_search(tuning, out)
        _warn(tuning)
    from plrvo.tasks.tuning.run import begin  # torch comes with it: mistakes in words are told by now
    from plrvo.tasks.tuning.run import finish as go_on

    if not resume:
        with Waiting("certifying"):
            begin(tuning, out)
    try:
        with Waiting("searching"):
            found = go_on(out, jobs=jobs, engine=engine.value)
    except KeyboardInterrupt:
        command = f"plrvo tune --resume --out {shlex.quote(str(out))}"
        secret = f"{out / '.search'} is secret until the search has ended"
        print(f"plrvo: stopped; {printable(secret)}. This continues: {printable(command)}", file=sys.stderr)
        raise typer.Exit(130) from None
    result = result_of(found)
    finish(found, result, as_json)
    return int(found.receipt is None)


def _tuning(
    words: dict[str, Any],
    vary: list[str] | None,
    trials_mean: float,
    distribution: Distribution,
    eta: float | None,
    grid: bool,
    held_out: float,
    keep_trials: bool,
) -> Tuning:
    if words.get("epsilon") is None:
        raise InvalidArgument("epsilon", None, "the epsilon that the whole search may cost")
    varied = read_vary(vary or [], grid=grid)
    return Tuning(Job.read(words), varied, trials_mean, distribution, eta, held_out, keep_trials)


def _warn(tuning: Tuning) -> None:
    warnings = [_SEEDED] if tuning.job.seed is not None else []
    warnings += [_KEPT] if tuning.keep_trials else []
    for warning in warnings:
        print(f"plrvo: warning: {warning}", file=sys.stderr)
