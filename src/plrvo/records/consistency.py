"""Where a receipt contradicts itself, the files beside it, or what is recomputed from it.

Every leaf of a receipt is one of three kinds:

| leaf | what happens to it |
|---|---|
| `plan` | its bracket is recomputed, and it is written once more and compared, key by key |
| `ledger` | likewise; noise, rate, clip and delta are the plan's, the dimension that of the trained parameters |
| `plan.stages` | noises and clips of a schedule: those of the ledger, with its steps |
| `steps`, `complete`, `delta`, `epsilon`, `group`, `adjacency`, `sampler`, `visits`, `arithmetic` | recomputed |
| `run.metrics`, `metrics`, `journal`, `weights` | compared with the files there, and with each other (`beside`) |
| `audit` | recomputed from its counts, and compared with the claim and the canaries (`plrvo.audit.receipt`) |
| `run.clipping` | the plan's; the first plans do not say it |
| `run.grad_sample_mode`, `.isolation`, `.processes`, `.seeded`, `postprocess` | a choice that fits the rest |
| `search` | its cost gives the epsilons in the place of the ledger, which is one of its trials (`searched`) |
| `budget` | of the right form; `plrvo verify --budget` compares it with the account |
| `job` | what it asks for is what the run was; else of the right form (`asked`) |
| `task.unit`, `.group`, `.group_size` | those of the job's task; without a job, its author's word (`unit`) |
| the rest of `run`, `task` and `versions` | words which no guarantee rests on: of the right form (`setting`) |

A certified epsilon that is not finite certifies nothing, and no comparison holds for NaN or infinity.

A receipt may travel without its weights: its account is recomputed all the same, and what is `away` is told. Where the
weights are there, so must be the journal and the metrics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from plrvo.accounting import Plan
from plrvo.accounting.correlated import read_ledger
from plrvo.accounting.plan import LAST_DIGITS
from plrvo.files import json_digest
from plrvo.records import asked, beside, claims, derived, searched, setting
from plrvo.records.choices import Postprocess
from plrvo.records.compared import differing, is_count, is_finite, same
from plrvo.records.opened import Opened, is_of_this_code, mapping
from plrvo.validate import InvalidArgument, shortened

# Of the format: 2 covers metrics, and says whether a seed was used; 3 has the job as it was asked for; in 4 the plan
# says how gradients are clipped, and the weights that were trained are named, to be compared with the journal; 5 says
# why no example changes another's gradient.
REVISION = 5
# What a receipt of the revision has, and what has been added since the first ones.
_ALWAYS = {"receipt", "task", "plan", "ledger", "steps", "complete", "delta", "epsilon", "adjacency", "sampler"}
_ALWAYS |= {"arithmetic", "run", "weights", "versions", "digest"}
_ADDED = {"group", "postprocess", "audit", "journal"}
_SINCE_2 = {"revision", "metrics"}
_SINCE_3 = {"job"}
_SOME = {"budget", "search"}  # of a run that was charged to an account; of the best trial of a search
_HEXADECIMAL = set("0123456789abcdef")
_MOST_CORRELATED_STEPS = 10_000_000
# Another spelling of a number or a path is a mistake; to read it as the same one would be another.
_WRONG_FORM = (LookupError, TypeError, AttributeError, ValueError, ArithmeticError, RecursionError, MemoryError)


@dataclass(frozen=True)
class Findings:
    """A sentence for each contradiction, none if there is none; and the files that are not here to be compared."""

    differences: tuple[str, ...]
    away: tuple[str, ...] = ()


def examine(receipt: dict[str, Any], folder: Path) -> Findings:
    """Everything that is wrong with a receipt in a folder."""
    with np.errstate(all="ignore"):  # whatever overflows ends in an infinity, which is a difference
        return _examine(receipt, folder)


def _examine(receipt: dict[str, Any], folder: Path) -> Findings:
    found = _attempted(lambda: list(_whole(receipt)))
    try:
        _refuse_what_is_too_long(receipt)
        clipping = mapping(receipt["run"], "run").get("clipping")
        plan = Plan.from_dict(receipt["plan"], clipping)
        ledger = read_ledger(receipt["ledger"], layered=plan.clipping.layered)
    except _WRONG_FORM as error:
        return Findings((*found, f"the plan or the ledger is not valid: {_told(error)}"))
    read = Opened(receipt, folder, plan, ledger)
    for check in (
        *_ACCOUNT,
        setting.of_task,
        setting.of_run,
        _job,
        _budget,
        _search,
        beside.of_journal,
        beside.of_metrics,
        beside.of_weights,
        beside.of_checkpoint,
    ):
        found += _attempted(lambda check=check: list(check(read)))  # type: ignore[misc]
    return Findings(tuple(found), () if found else read.away)


def _refuse_what_is_too_long(receipt: dict[str, Any]) -> None:
    """Correlated noise is recomputed step by step: a number in a file must not take all memory."""
    for described in (receipt["plan"], *receipt["ledger"]):
        steps = described["workload"]["steps"]
        if "correlation" in described and steps > _MOST_CORRELATED_STEPS:
            raise InvalidArgument("steps", steps, f"at most {_MOST_CORRELATED_STEPS} steps of correlated noise")


def _attempted(check: Callable[[], list[str]]) -> list[str]:
    try:
        return check()
    except _WRONG_FORM as error:
        return [f"a part of the receipt is missing or has the wrong form ({_told(error)})"]


def _told(error: Exception) -> str:
    return str(error) if isinstance(error, InvalidArgument) else shortened(error)


def _whole(receipt: dict[str, Any]) -> Iterator[str]:
    if receipt["digest"] != json_digest({key: value for key, value in receipt.items() if key != "digest"}):
        yield "the receipt has been changed since it was written (its digest differs)"
    needed, known = _ALWAYS, _ALWAYS | _ADDED
    if "revision" in receipt:
        if type(receipt["revision"]) is not int or receipt["revision"] not in range(2, REVISION + 1):
            yield f"it is of revision {shortened(receipt['revision'])}; this version knows {REVISION}"
        known |= _SINCE_2 if receipt["revision"] == 2 else _SINCE_2 | _SINCE_3
        needed = known
    if receipt.get("revision") in range(4, REVISION + 1):
        known = known | _SOME
    visits = {"visits"} if "visits" in receipt and _in_order(receipt) else set()
    for key in sorted(needed - receipt.keys()):
        yield f"{key} is missing"
    for key in sorted(receipt.keys() - known - visits):
        yield f"{shortened(key)} is not a part of a receipt"
    run, task = mapping(receipt["run"], "run"), mapping(receipt["task"], "task")
    if "revision" not in receipt and "seeded" in run:
        yield "its revision is missing"
    if receipt.get("revision") != REVISION and is_of_this_code(receipt):
        yield f"it is of revision {shortened(receipt.get('revision', 1))}; the code that it names writes {REVISION}"
    for key in sorted(key for key in (*run, *task) if key.startswith(("epsilon", "delta"))):
        yield f"{shortened(key)} is no part of a run or a task: what is certified stands elsewhere"


def _in_order(receipt: dict[str, Any]) -> bool:
    correlation = mapping(receipt["plan"], "plan").get("correlation")
    return correlation is not None and "groups" not in correlation["participation"]


def _plan(read: Opened) -> Iterator[str]:
    written = read.receipt["plan"]
    yield from differing("plan", written, read.plan.to_dict(form=written["plan"]), read.older)
    if read.revision > 3 and "clipping" not in written:
        yield "its plan does not say how gradients are clipped"
    if not is_finite(read.plan.bracket.certified):
        yield "the plan certifies no finite epsilon"


def _ledger(read: Opened) -> Iterator[str]:
    yield from differing("ledger", read.receipt["ledger"], read.ledger.to_list())
    plan, trained = read.plan.charged, _trained(read)
    due = None if trained is None else read.plan.clipping.coordinates(trained)
    if trained is not None and not read.plan.covers(trained):
        yield f"it trained {trained} parameters; the plan has the dimension {plan.dimension}"
    correlated = read.ledger.correlation is not None
    staged = bool(read.plan.stages)
    if (correlated or staged) and read.ledger != read.plan.ledger(read.ledger.steps):
        yield "the ledger has another noise, workload or correlation than the plan, or other stages"
    for noise, work in read.ledger.entries:
        if not staged and noise != read.plan.noise:
            yield f"the ledger has the noise {noise.to_dict()}; the plan has {read.plan.noise.to_dict()}"
        other_clip = not staged and (work.clip > plan.clip or not same(work.clip, plan.clip))
        if other_clip or work.sample_rate != plan.sample_rate:
            yield f"the ledger has clip {work.clip} and rate {work.sample_rate}; the plan has others"
        if not correlated and work.dimension > plan.dimension:
            yield f"the ledger has the dimension {work.dimension}; the plan has {plan.dimension}"
        if not correlated and due is not None and work.dimension != due:
            yield f"the ledger has the dimension {work.dimension}; {due} is that of what was trained"


def _trained(read: Opened) -> int | None:
    """The coordinates that one gradient has: all trained parameters, those of canaries too."""
    trained, planted = read.task.get("trainable_parameters"), read.task.get("canaries")
    if trained is None:
        return None
    own = planted["count"] * planted["coordinates"] if planted is not None and planted["kind"] == "gradient" else 0
    return int(trained + own)


def _counts(read: Opened) -> Iterator[str]:
    steps, planned = read.ledger.steps, read.plan.workload.steps
    if not is_count(read.receipt["steps"]) or read.receipt["steps"] != steps:
        yield f"it claims {shortened(read.receipt['steps'])} steps; its ledger has {steps}"
    if read.receipt["complete"] is not (steps == planned):
        yield f"it says complete={shortened(read.receipt['complete'])}; {steps} of {planned} steps were taken"


def _epsilons(read: Opened) -> Iterator[str]:
    delta, budget = read.plan.delta, read.plan.epsilon
    if not same(read.receipt["delta"], delta):
        yield f"it claims delta {shortened(read.receipt['delta'])}; the plan has {delta}"
    due, written = derived.epsilons(read.priced, delta), read.receipt["epsilon"]
    yield from differing("epsilon", written, due, read.older)
    certified = written["certified"]
    if not is_finite(due["certified"]) or not is_finite(certified):
        yield f"certified epsilon {shortened(certified)}: recomputed, it is {due['certified']}; nothing is certified"
    elif budget is not None and max(certified, due["certified"] or 0.0) > budget * (1 + LAST_DIGITS):
        yield f"certified epsilon {certified} (recomputed, {due['certified']}) exceeds the budget {budget}"
    group = derived.group(read.priced, delta, read.task)
    yield from differing("group", read.receipt.get("group"), group, read.older)


def _claims(read: Opened) -> Iterator[str]:
    receipt = read.receipt
    yield from differing("arithmetic", receipt["arithmetic"], derived.arithmetic(read.plan.noise))
    yield from claims.differences(receipt, read.plan, read.ledger)
    post = receipt.get("postprocess")
    if post is not None and post not in list(Postprocess):
        yield f"postprocess is {shortened(post)}, and none of {', '.join(Postprocess)}"


def _budget(read: Opened) -> Iterator[str]:
    """Which account was charged, with the newest event that the run knew of."""
    if "budget" not in read.receipt:
        return
    charged = mapping(read.receipt["budget"], "budget")
    if charged.keys() != {"account", "entry", "event", "digest"}:
        yield f"its budget has the parts {shortened(sorted(charged))}"
        return
    if not all(is_count(charged[name]) and charged[name] for name in ("entry", "event")):
        yield f"its budget has the entry {shortened(charged['entry'])} and the event {shortened(charged['event'])}"
    for name, length in (("account", 32), ("digest", 64)):
        if not isinstance(charged[name], str) or len(charged[name]) != length or set(charged[name]) - _HEXADECIMAL:
            yield f"budget.{name} is {shortened(charged[name])}"


def _search(read: Opened) -> Iterator[str]:
    if "search" in read.receipt:
        yield from searched.differences(read.receipt, read.plan, read.ledger)
    elif "held_out" in read.task:
        yield "its task holds examples out for a search, of which it does not tell"


def _job(read: Opened) -> Iterator[str]:
    if read.receipt.get("job") is not None:
        yield from asked.differences(read.receipt["job"], read.plan, read.receipt)


_ACCOUNT = (_plan, _ledger, _counts, _epsilons, _claims)
