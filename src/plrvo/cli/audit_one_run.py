"""`plrvo audit one-run`: train once with canaries in the data, and guess which of them were there."""

from __future__ import annotations

import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from plrvo.audit.mechanism import new_seed
from plrvo.audit.one_run import CanaryKind
from plrvo.audit.plot import check_plot, plot_audits
from plrvo.cli import audit_common as common
from plrvo.cli import options, show
from plrvo.cli.noise_options import noise_parameters
from plrvo.cli.progress import StepProgress
from plrvo.cli.signs import Signs
from plrvo.cli.train_options import options_of_a_job
from plrvo.noise.specification import OPTIONS, Specification
from plrvo.tasks.beforehand import check_beforehand
from plrvo.tasks.catalog import FAMILIES
from plrvo.tasks.job import Job
from plrvo.validate import InvalidArgument

_UNCHARGED = (
    "that run was charged to an account; this one is one more on its data, and is charged to none without --budget"
)
_WISHES = ("model", "noise", "epsilon", "clip", "sample_rate", "steps", "delta", "learning_rate")
_ATTACK = (
    "data_dir",
    "seed",
    "audit",
    "canary",
    "coordinates",
    "guesses",
    "confidence",
    "budget",
)  # beside a receipt too


@options_of_a_job("audit one-run", (*_WISHES, *_ATTACK), noise_parameters(auto=True), audit=1000)
def one_run(
    task: Annotated[str | None, typer.Argument(help="A task of `plrvo train`; or --receipt.")] = None,
    *,
    claim: common.ClaimOption = None,
    receipt: common.ReceiptOption = None,
    plot: common.PlotOption = None,
    as_json: options.JsonOption = False,
    **asked: Any,
) -> int:
    """One run of the training engine: do its releases show which canaries it was trained on?

    Each canary joins the training data by a fair coin. With --receipt, the run that it describes is repeated with
    canaries, and its claim is tried. It is one more run on the data: --budget charges it like any other, and settles.

    Example: plrvo audit one-run digits --model logistic --noise laplace --epsilon 4 --canaries 1000
    """
    if plot is not None:
        check_plot(plot)
    described = Specification(asked["noise"], {name: asked[name] for name in OPTIONS}, asked["noise_file"])
    wishes = {name: asked[name] for name in _WISHES if asked[name] is not None} | described.given
    run = common.read_receipt(receipt, claim, name=task, **wishes)
    if run is None and task is None:
        raise InvalidArgument("name", None, "a task of `plrvo train`, or --receipt")
    if run is None:
        wishes["task"] = task
        if wishes.pop("noise_file", None) is not None:
            described.check(fitted=asked["epsilon"] is not None)
            wishes["noise"] = described.noise(clip=1.0)  # whatever the clip is
    else:
        if run.receipt.get("budget") is not None and asked["budget"] is None:
            print(f"plrvo: warning: {_UNCHARGED}", file=sys.stderr)
        wishes = _as_in(run, asked["canary"])
    seed = new_seed() if asked["seed"] is None else asked["seed"]
    attack = {name: asked[name] for name in _ATTACK if asked[name] is not None}
    job = Job.read({**wishes, **attack, "seed": seed})
    check_beforehand(job)
    from plrvo.tasks.audited import CanaryObserver  # torch comes with it: mistakes in words are told by now
    from plrvo.training.loop import Interrupted

    with Signs(job.task), tempfile.TemporaryDirectory() as folder:
        resolved = job.resolve(Path(folder) / "one-run audit")  # so is its entry in an account called
        plan, observer = resolved.plan, resolved.task.observer
        if plan is None or not isinstance(observer, CanaryObserver):
            raise RuntimeError("an audited run has a plan and an observer")
        work = plan.workload
        settings = replace(resolved.settings, evaluate_every=work.steps, checkpoint_every=work.steps)
        if run is not None:
            settings = replace(settings, **_repeated(run, resolved.task.description))
        claimed = common.claimed(claim, run, plan.noise, plan.charged, plan.delta)
        observer.planting = replace(observer.planting, claim=claimed)
        try:
            with StepProgress(f"{job.task}, {plan.noise.kind}") as watch:
                trained = replace(resolved, settings=settings).train(watch)
        except Interrupted:
            raise KeyboardInterrupt from None
    word = common.word_for(claim, run)
    result = observer.result
    if result is None:  # the engine concludes after the last step
        raise RuntimeError("the run ended without a verdict")
    if plot is not None:
        plot_audits([common.point(plan.noise.kind, result)], plot)
    if as_json:
        shown = {
            "claim": word,
            "canary": observer.planting.describe(),
            "task": resolved.task.description["name"],
            "model": resolved.model,
            "noise": plan.noise.to_dict(),
            "workload": work.to_dict(),
            "clipping": plan.clipping.value,
            "metrics": trained.metrics,
            "seed": seed,
            **({} if job.budget is None or trained.receipt is None else {"budget": trained.receipt.get("budget")}),
        }
        show.print_json({**result.to_dict(), **shown})
    else:
        common.tell(result, word)
    return common.exit_code([result])


def _as_in(receipt: common.Subject, canary: CanaryKind | None) -> dict[str, Any]:
    """What a job asks for, to repeat the run of a receipt."""
    if receipt.noise.shared and canary is not CanaryKind.example:
        raise InvalidArgument("canary", "gradient", "example: the claim for a shared scale is for its own dimension")
    known, run, work = receipt.receipt["task"], receipt.receipt["run"], receipt.work
    family = next((family for family in FAMILIES if known.get("name") in family.tasks), None)
    if family is None:
        raise receipt.refuse("the receipt of a task of `plrvo train`")
    options_given = {name: known[name] for name in ("model", *family.options) if known.get(name)}
    names = ("optimizer", "momentum", "weight_decay", "schedule", "clipping", "grad_sample_mode")
    amounts = {"clip": work.clip, "sample_rate": work.sample_rate, "steps": work.steps, "delta": receipt.delta}
    settings = {name: run[name] for name in names if name in run}  # Adam has no momentum, older receipts have less
    settings["postprocess"] = receipt.receipt.get("postprocess")
    return {"task": known["name"], "noise": receipt.noise, **options_given, **amounts, **settings}


def _repeated(receipt: common.Subject, task: dict[str, Any]) -> dict[str, Any]:
    """Settings of the run of the receipt that no job asks for. It must have been on this data."""
    wanted, run = receipt.receipt["task"], receipt.receipt["run"]
    for name in task.keys() - {"data_source", "canaries"}:
        if wanted.get(name) != task[name]:
            raise receipt.refuse(f"a run with {name} {task[name]}; this one had {wanted.get(name)}")
    return {"learning_rate": run["learning_rate"], "expected_batch_size": round(run["expected_batch_size"])}
