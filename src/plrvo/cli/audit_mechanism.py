"""`plrvo audit mechanism`: simulate every step of the mechanism, and tell the worlds apart."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from plrvo.accounting import Workload
from plrvo.audit import Canary, audit_mechanism, gaussian_dp_bound
from plrvo.audit.mechanism import describe, new_seed
from plrvo.audit.plot import check_plot, plot_audits
from plrvo.cli import audit_common as common
from plrvo.cli import options, show
from plrvo.cli.noise_options import NOT_GIVEN, with_noise_options
from plrvo.cli.options import read_workload
from plrvo.noise import Specification
from plrvo.validate import InvalidArgument


class CanaryKind(StrEnum):
    """Gradients that have a name."""

    spread = "spread"
    one_hot = "one-hot"


class SamplerKind(StrEnum):
    """How batches are drawn."""

    poisson = "poisson"
    shuffled = "shuffled"


@with_noise_options()
def mechanism(
    noise: Specification = NOT_GIVEN,
    clip: options.ClipOption = None,
    sample_rate: options.RateOption = None,
    steps: options.StepsOption = None,
    dimension: options.DimensionOption = None,
    delta: common.DeltaOption = None,
    claim: common.ClaimOption = None,
    receipt: common.ReceiptOption = None,
    trials: Annotated[
        int,
        typer.Option(
            "--trials", help="Simulated runs in all; a quarter tests each world.", rich_help_panel=common.PANEL
        ),
    ] = 400_000,
    canary: Annotated[
        CanaryKind | None,
        typer.Option("--canary", help="Gradient of the planted example.", rich_help_panel=common.PANEL),
    ] = None,
    coordinates: Annotated[
        int | None, typer.Option("--coordinates", help="Spread the canary over so many.", rich_help_panel=common.PANEL)
    ] = None,
    canary_file: Annotated[
        Path | None, typer.Option("--canary-file", help="A gradient saved by numpy.save.", rich_help_panel=common.PANEL)
    ] = None,
    sampler: Annotated[
        SamplerKind,
        typer.Option("--sampler", help="Batches that the attacked run draws.", rich_help_panel=common.PANEL),
    ] = SamplerKind.poisson,
    confidence: common.ConfidenceOption = 0.99,
    seed: common.SeedOption = None,
    jobs: common.JobsOption = 1,
    state: common.StateOption = None,
    plot: common.PlotOption = None,
    as_json: options.JsonOption = False,
) -> int:
    """White box: simulate every step of the mechanism, with a planted gradient and without, and tell them apart.

    Example: plrvo audit mechanism --noise gamma --k 40000 --theta 1e-4 --clip 0.5 --sample-rate 0.01 --steps 300
    --dimension 26010 --claim published
    """
    if plot is not None:
        check_plot(plot)
    amounts = {"clip": clip, "sample_rate": sample_rate, "steps": steps, "dimension": dimension, "delta": delta}
    run = common.read_receipt(receipt, claim, **noise.given, **amounts)
    if run is not None:
        work, built, delta = run.work, run.noise, run.delta
    else:
        work = read_workload(clip, sample_rate, steps, dimension, noise)
        built = noise.noise(work.clip)
        delta = common.DEFAULT_DELTA if delta is None else delta
    planted = _canary(canary, coordinates, canary_file, sampler, work)
    seed = new_seed() if seed is None else seed
    claimed, word = common.claimed(claim, run, built, work, delta), common.word_for(claim, run)
    with common.progress_bar("runs") as report:
        result = audit_mechanism(
            built,
            work,
            delta,
            claimed,
            trials=trials,
            canary=planted,
            confidence=confidence,
            seed=seed,
            sampler=sampler.value,
            jobs=jobs,
            state=state,
            progress=report,
        )
    if plot is not None:
        plot_audits([common.point(built.kind, result)], plot)
    if as_json:
        fit = None
        if built.gaussian_sigma is not None and work.sample_rate == 1:
            fit = gaussian_dp_bound(result.counts, delta, 1 - confidence, built, work.sample_rate)
        show.print_json(
            {
                **result.to_dict(),
                "claim": word,
                "epsilon_gaussian_dp": fit,
                "noise": built.to_dict(),
                "workload": work.to_dict(),
                "sampler": sampler.value,
                "canary": describe(planted),
                "seed": seed,
            }
        )
    else:
        common.tell(result, word)
    return common.exit_code([result])


def _canary(
    kind: CanaryKind | None, coordinates: int | None, file: Path | None, sampler: SamplerKind, work: Workload
) -> Canary:
    """The canary that the options describe; spread over all coordinates unless told otherwise."""
    if file is not None:
        if kind is not None or coordinates is not None:
            raise InvalidArgument("canary_file", str(file), "no --canary or --coordinates beside it")
        return Canary.from_file(file, work)
    if kind is CanaryKind.one_hot or (kind is None and coordinates is None and sampler is SamplerKind.shuffled):
        if coordinates not in (None, 1):
            raise InvalidArgument("coordinates", coordinates, "no number beside --canary one-hot")
        return Canary.one_hot(work)
    return Canary.spread(work, coordinates)
