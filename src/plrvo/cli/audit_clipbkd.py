"""`plrvo audit clipbkd`: train many models with a poisoning point and without, and tell them apart by their outputs."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from plrvo.accounting import Clipping, Workload
from plrvo.audit.mechanism import new_seed
from plrvo.audit.plot import check_plot, plot_audits
from plrvo.cli import audit_common as common
from plrvo.cli import options, show
from plrvo.cli.noise_options import NOT_GIVEN, with_noise_options
from plrvo.cli.options import WORK
from plrvo.noise import Noise, Specification
from plrvo.validate import positive_integer


class DataKind(StrEnum):
    """Data sets that the attack knows."""

    fashion_mnist = "fashion-mnist"
    location30 = "location30"
    purchase100 = "purchase100"
    sst2 = "sst2"


class ModelKind(StrEnum):
    """Models that train in ensembles."""

    lr = "lr"
    fnn = "fnn"


class Safeguard(StrEnum):
    """What can be left out of the training."""

    clipping = "clipping"
    noise = "noise"


class EngineKind(StrEnum):
    """joblib's engines."""

    loky = "loky"
    threading = "threading"
    dask = "dask"
    ray = "ray"


@with_noise_options()
def clipbkd(
    data: Annotated[
        DataKind, typer.Option("--data", help="What the models learn.", rich_help_panel=common.PANEL)
    ] = DataKind.fashion_mnist,
    data_dir: Annotated[
        Path | None,
        typer.Option("--data-dir", help="Folder of the data sets (or set PLRVO_DATA).", rich_help_panel=common.PANEL),
    ] = None,
    model: Annotated[
        ModelKind,
        typer.Option("--model", help="lr: logistic regression; fnn: 32 hidden units.", rich_help_panel=common.PANEL),
    ] = ModelKind.lr,
    noise: Specification = NOT_GIVEN,
    epsilon: Annotated[
        list[float] | None,
        typer.Option(
            "--epsilon", help="Fit the noise's width to certify this; repeat for several.", rich_help_panel=common.PANEL
        ),
    ] = None,
    clip: Annotated[
        float | None,
        typer.Option("--clip", help="l2 norm to which each gradient is clipped; 1 by default.", rich_help_panel=WORK),
    ] = None,
    sample_rate: options.RateOption = None,
    steps: options.StepsOption = None,
    learning_rate: Annotated[
        float | None, typer.Option("--learning-rate", help="Of plain gradient descent.", rich_help_panel=common.PANEL)
    ] = None,
    delta: common.DeltaOption = None,
    claim: common.ClaimOption = None,
    receipt: common.ReceiptOption = None,
    models: Annotated[
        int,
        typer.Option(
            "--models", help="Trained models in all; a quarter tests each world.", rich_help_panel=common.PANEL
        ),
    ] = 2000,
    without: Annotated[
        Safeguard | None,
        typer.Option(
            "--without", help="Leave a safeguard out, to see the audit refute it.", rich_help_panel=common.PANEL
        ),
    ] = None,
    confidence: common.ConfidenceOption = 0.99,
    seed: common.SeedOption = None,
    engine: Annotated[
        EngineKind, typer.Option("--engine", help="joblib engine that runs the workers.", rich_help_panel=common.PANEL)
    ] = EngineKind.loky,
    jobs: common.JobsOption = 1,
    state: common.StateOption = None,
    plot: common.PlotOption = None,
    as_json: options.JsonOption = False,
) -> int:
    """Black box: does one poisoning point show in the outputs of models that were trained privately?

    Training defaults to the paper's: 24 epochs of Poisson batches of about 250 (Fashion-MNIST), 100 epochs (records),
    3 epochs of about 1024 (sst2: heads on the features of a frozen MiniLM, and a poison made by exchanging words).

    Example: plrvo audit clipbkd --data-dir DATA --noise laplace --epsilon 1 --epsilon 4 --models 800 --plot audit.png
    """
    if plot is not None:
        check_plot(plot)
    positive_integer(models=models)
    from plrvo.audit import clipbkd as attack
    from plrvo.tasks.poisoned import load_poisoned

    amounts = {"clip": clip, "sample_rate": sample_rate, "steps": steps, "delta": delta, "epsilon": epsilon}
    run = common.read_receipt(receipt, claim, **noise.given, **amounts)
    if run is not None:
        clip, sample_rate, steps, delta = run.work.clip, run.work.sample_rate, run.work.steps, run.delta
    delta = common.DEFAULT_DELTA if delta is None else delta
    loaded, poison = load_poisoned(data.value, data_dir)
    recipe = attack.make_recipe(loaded, 1.0 if clip is None else clip, sample_rate, steps, learning_rate)
    work = attack.workload(loaded, model.value, recipe)
    if run is not None:
        _check_covered(run, work)
        noises: list[tuple[float | None, Noise]] = [(None, run.noise)]
    else:
        noises = common.fitted(noise, work, delta, epsilon or [])
    word = common.word_for(claim, run)
    seed = new_seed() if seed is None else seed
    results, rows = [], []
    for width, built in noises:
        claimed = common.claimed(claim, run, built, work, delta)
        with common.progress_bar("models") as report:
            result = attack.audit_clipbkd(
                loaded,
                None if without is Safeguard.noise else built,
                delta,
                claimed,
                kind=model.value,
                recipe=replace(recipe, clip=None) if without is Safeguard.clipping else recipe,
                poison=poison,
                models=models,
                confidence=confidence,
                seed=seed,
                engine=engine.value,
                jobs=jobs,
                state=_state_of(state, width, len(noises)),
                progress=report,
            )
        results.append(result)
        rows.append({**result.to_dict(), "claim": word, "noise": built.to_dict()})
        if not as_json:
            common.tell(result, word)
    if plot is not None:
        plot_audits([common.point(built.kind, r) for r, (_, built) in zip(results, noises, strict=True)], plot)
    if as_json:
        setting: dict[str, Any] = {
            "data": data.value,
            "model": model.value,
            "workload": work.to_dict(),
            "recipe": recipe.to_dict(),
            "poison": {"label": poison.label, "text": poison.text},
            "without": None if without is None else without.value,
            "seed": seed,
        }
        verdict = "refuted" if common.exit_code(results) else "consistent"
        show.print_json({**rows[0], **setting} if len(rows) == 1 else {"verdict": verdict, **setting, "rows": rows})
    return common.exit_code(results)


def _check_covered(receipt: common.Subject, work: Workload) -> None:
    """The receipt's claim must cover the models of the attack: their gradients are among those that it bounds."""
    if receipt.receipt.run.get("clipping", Clipping.flat) != Clipping.flat:
        raise receipt.refuse("flat clipping, as the models of this attack have")
    if work.dimension > receipt.work.dimension:
        raise receipt.refuse(
            f"a claim for at least {work.dimension} parameters, as the models of this attack have; this one is for "
            f"{receipt.work.dimension}"
        )
    if receipt.noise.shared and work.dimension != receipt.work.dimension:
        raise receipt.refuse(f"a claim for {work.dimension} parameters, where the noise has a shared scale")


def _state_of(state: Path | None, width: float | None, count: int) -> Path | None:
    """One file for each epsilon, where there are several."""
    return state if state is None or count == 1 else state.with_name(f"{state.stem}-{width:g}{state.suffix}")
