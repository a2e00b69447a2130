"""Where a receipt contradicts itself, the files beside it, or what is recomputed from it.

Every leaf of a receipt is one of three kinds:

| leaf | what happens to it |
|---|---|
| `plan` | its bracket is recomputed, and it is written once more and compared, key by key |
| `ledger` | likewise; noise, rate, clip and delta are the plan's, the dimension that of the trained parameters |
| `steps`, `complete`, `delta`, `epsilon`, `group`, `adjacency`, `sampler`, `visits`, `arithmetic` | recomputed |
| `run.metrics`, `metrics`, `journal`, `weights` | compared with the files beside the receipt, and with each other |
| `audit` | recomputed from its counts, and compared with the claim and the canaries (`plrvo.audit.receipt`) |
| `run.clipping` | the plan's; the first plans do not say it |
| `run.grad_sample_mode`, `.processes`, `.seeded`, `postprocess` | a choice that fits the rest |
| `job` | what it asks for is what the run was; else of the right form (`asked`) |
| the rest of `run`, `task` and `versions` | words and settings which no guarantee rests on: of the right form |

A certified epsilon that is not finite certifies nothing, and no comparison holds for NaN or infinity.

A receipt may travel without its weights: its account is recomputed all the same, and what is `away` is told. Where the
weights are there, so must be the journal and the metrics.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from plrvo.accounting import Clipping, Plan
from plrvo.accounting.bracket import AnyLedger
from plrvo.accounting.correlated import read_ledger
from plrvo.accounting.plan import LAST_DIGITS
from plrvo.files import json_digest
from plrvo.records import asked, claims, derived, journal, metrics, seeding
from plrvo.records.choices import GradSampleMode, Postprocess
from plrvo.records.compared import differing, is_count, is_finite, same
from plrvo.records.folder import DIAGNOSTICS, JOURNAL, METRICS, NO_WEIGHTS
from plrvo.records.weights import elements
from plrvo.validate import InvalidArgument, shortened

# Of the format: 2 covers metrics, and says whether a seed was used; 3 has the job as it was asked for; in 4 the plan
# says how gradients are clipped.
REVISION = 4
# What a receipt of the revision has, and what has been added since the first ones.
_ALWAYS = {"receipt", "task", "plan", "ledger", "steps", "complete", "delta", "epsilon", "adjacency", "sampler"}
_ALWAYS |= {"arithmetic", "run", "weights", "versions", "digest"}
_ADDED = {"group", "postprocess", "audit", "journal"}
_SINCE_2 = {"revision", "metrics"}
_SINCE_3 = {"job"}
_RUN_SINCE_2 = ("clipping", "grad_sample_mode", "expected_batch_size", "processes", "seeded")
_MOST_CORRELATED_STEPS = 10_000_000
# Another spelling of a number or a path is a mistake; to read it as the same one would be another.
_WRONG_FORM = (LookupError, TypeError, AttributeError, ValueError, ArithmeticError, RecursionError, MemoryError)


@dataclass(frozen=True)
class _Read:
    """A receipt whose plan and ledger are valid."""

    receipt: dict[str, Any]
    folder: Path
    plan: Plan
    ledger: AnyLedger

    @property
    def task(self) -> dict[str, Any]:
        return _mapping(self.receipt["task"], "task")

    @property
    def run(self) -> dict[str, Any]:
        return _mapping(self.receipt["run"], "run")

    @property
    def older(self) -> bool:
        """Whether other code wrote it, whose certificates may have been larger."""
        return not _written_by_this_code(self.receipt)

    @property
    def revision(self) -> int:
        return int(self.receipt.get("revision", 1))

    @property
    def away(self) -> tuple[str, ...]:
        """The files of the run that are not here, if no weights are: these, or any others in their place."""
        if any(file.name not in NO_WEIGHTS for file in self.folder.glob("*.safetensors")):
            return ()
        parts = (self.receipt.get(name) for name in ("weights", "journal", "metrics"))
        names = [_name(part["file"]) for part in parts if isinstance(part, dict)]
        missing = tuple(name for name in names if not os.path.lexists(self.folder / name))
        return missing if names and names[0] in missing else ()

    @property
    def released(self) -> journal.Journal | None:
        """The journal beside the receipt, if it has one that can be read."""
        known = self.receipt.get("journal")
        return None if known is None else journal.Journal.open(self.folder / _name(known["file"]))


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
        clipping = _mapping(receipt["run"], "run").get("clipping")
        plan, ledger = Plan.from_dict(receipt["plan"], clipping), read_ledger(receipt["ledger"])
    except _WRONG_FORM as error:
        return Findings((*found, f"the plan or the ledger is not valid: {_told(error)}"))
    read = _Read(receipt, folder, plan, ledger)
    for check in (_plan, _ledger, _counts, _epsilons, _claims, _task, _run, _job, _journal, _metrics, _weights):
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
    visits = {"visits"} if "visits" in receipt and _in_order(receipt) else set()
    for key in sorted(needed - receipt.keys()):
        yield f"{key} is missing"
    for key in sorted(receipt.keys() - known - visits):
        yield f"{shortened(key)} is not a part of a receipt"
    run, task = _mapping(receipt["run"], "run"), _mapping(receipt["task"], "task")
    if "revision" not in receipt and "seeded" in run:
        yield "its revision is missing"
    if receipt.get("revision") != REVISION and _written_by_this_code(receipt):
        yield f"it is of revision {shortened(receipt.get('revision', 1))}; the code that it names writes {REVISION}"
    for key in sorted(key for key in (*run, *task) if key.startswith(("epsilon", "delta"))):
        yield f"{shortened(key)} is no part of a run or a task: what is certified stands elsewhere"


def _written_by_this_code(receipt: dict[str, Any]) -> bool:
    versions = receipt.get("versions")
    return isinstance(versions, dict) and versions.get("plrvo_code") == derived.code_digest()


def _in_order(receipt: dict[str, Any]) -> bool:
    correlation = _mapping(receipt["plan"], "plan").get("correlation")
    return correlation is not None and "groups" not in correlation["participation"]


def _plan(read: _Read) -> Iterator[str]:
    written = read.receipt["plan"]
    yield from differing("plan", written, read.plan.to_dict(form=written["plan"]), read.older)
    if read.revision == REVISION and "clipping" not in written:
        yield "its plan does not say how gradients are clipped"
    if not is_finite(read.plan.bracket.certified):
        yield "the plan certifies no finite epsilon"


def _ledger(read: _Read) -> Iterator[str]:
    yield from differing("ledger", read.receipt["ledger"], read.ledger.to_list())
    plan, trained = read.plan.charged, _trained(read)
    due = None if trained is None else read.plan.clipping.coordinates(trained)
    if trained is not None and not read.plan.covers(trained):
        yield f"it trained {trained} parameters; the plan has the dimension {plan.dimension}"
    correlated = read.ledger.correlation is not None
    if correlated and read.ledger != read.plan.ledger(read.ledger.steps):
        yield "the ledger has another noise, workload or correlation than the plan"
    for noise, work in read.ledger.entries:
        if noise != read.plan.noise:
            yield f"the ledger has the noise {noise.to_dict()}; the plan has {read.plan.noise.to_dict()}"
        if work.clip > plan.clip or not same(work.clip, plan.clip) or work.sample_rate != plan.sample_rate:
            yield f"the ledger has clip {work.clip} and rate {work.sample_rate}; the plan has others"
        if not correlated and work.dimension > plan.dimension:
            yield f"the ledger has the dimension {work.dimension}; the plan has {plan.dimension}"
        if not correlated and due is not None and work.dimension != due:
            yield f"the ledger has the dimension {work.dimension}; {due} is that of what was trained"


def _trained(read: _Read) -> int | None:
    """The coordinates that one gradient has: all trained parameters, those of canaries too."""
    trained, planted = read.task.get("trainable_parameters"), read.task.get("canaries")
    if trained is None:
        return None
    own = planted["count"] * planted["coordinates"] if planted is not None and planted["kind"] == "gradient" else 0
    return int(trained + own)


def _counts(read: _Read) -> Iterator[str]:
    steps, planned = read.ledger.steps, read.plan.workload.steps
    if not is_count(read.receipt["steps"]) or read.receipt["steps"] != steps:
        yield f"it claims {shortened(read.receipt['steps'])} steps; its ledger has {steps}"
    if read.receipt["complete"] is not (steps == planned):
        yield f"it says complete={shortened(read.receipt['complete'])}; {steps} of {planned} steps were taken"


def _epsilons(read: _Read) -> Iterator[str]:
    delta, budget = read.plan.delta, read.plan.epsilon
    if not same(read.receipt["delta"], delta):
        yield f"it claims delta {shortened(read.receipt['delta'])}; the plan has {delta}"
    due, written = derived.epsilons(read.ledger, delta), read.receipt["epsilon"]
    yield from differing("epsilon", written, due, read.older)
    certified = written["certified"]
    if not is_finite(due["certified"]) or not is_finite(certified):
        yield f"certified epsilon {shortened(certified)}: recomputed, it is {due['certified']}; nothing is certified"
    elif budget is not None and max(certified, due["certified"] or 0.0) > budget * (1 + LAST_DIGITS):
        yield f"certified epsilon {certified} (recomputed, {due['certified']}) exceeds the budget {budget}"
    group = derived.group(read.ledger, delta, read.task)
    yield from differing("group", read.receipt.get("group"), group, read.older)


def _claims(read: _Read) -> Iterator[str]:
    receipt = read.receipt
    yield from differing("arithmetic", receipt["arithmetic"], derived.arithmetic(read.plan.noise))
    yield from claims.differences(receipt, read.plan, read.ledger)
    post = receipt.get("postprocess")
    if post is not None and post not in list(Postprocess):
        yield f"postprocess is {shortened(post)}, and none of {', '.join(Postprocess)}"


def _task(read: _Read) -> Iterator[str]:
    task = read.task
    for name in ("trainable_parameters", "examples", "group_size"):
        if name in task and not (is_count(task[name]) and task[name] > 0):
            yield f"task.{name} is {shortened(task[name])}, and not a number of them"
    for name in ("name", "model"):
        if not isinstance(task.get(name, ""), str):
            yield f"task.{name} is {shortened(task[name])}, and not a text"
    public = task.get("treated_as_public", [])
    if (
        not isinstance(public, list)
        or (not public and "treated_as_public" in task)
        or not all(isinstance(name, str) and name for name in public)
    ):
        yield f"task.treated_as_public is {shortened(public)}"
    if read.revision > 1 and "trainable_parameters" not in task:
        yield "task.trainable_parameters is missing"
    examples, visits = task.get("examples"), read.receipt.get("visits")
    if examples is None:
        return
    for what, count in (
        ("group_size", task.get("group_size")),
        ("canaries", (task.get("canaries") or {}).get("count")),
    ):
        if count is not None and count > examples:
            yield f"task.{what} has {count} of the {examples} examples"
    if visits is not None and visits["size"] != examples:
        yield f"it visited {shortened(visits['size'])} examples; the task has {examples}"


def _run(read: _Read) -> Iterator[str]:
    run, plan = read.run, read.plan
    if read.revision > 1:
        for name in _RUN_SINCE_2:
            if run.get(name) is None and (name != "seeded" or name not in run):
                yield f"run.{name} is missing"
    mode, processes = run.get("grad_sample_mode"), run.get("processes")
    exact, alone = plan.noise.cell > 0, plan.correlation is not None or read.task.get("canaries")
    if mode is not None and mode not in list(GradSampleMode):
        yield f"run.grad_sample_mode is {shortened(mode)}, and none of {', '.join(GradSampleMode)}"
    if plan.clipping is Clipping.l1 and mode not in (None, "hooks"):
        yield f"it clipped to an l1 norm by {mode}, which knows l2 norms only"
    if exact and (mode not in (None, "hooks") or processes not in (None, 1)):
        yield "its noise is exact; that takes single gradients in one process"
    if processes is not None and not (is_count(processes) and processes > 0):
        yield f"run.processes is {shortened(processes)}"
    if alone and processes not in (None, 1):
        yield f"it ran in {processes} processes; correlated and audited runs have one"
    yield from _seed_and_settings(read, run)


def _seed_and_settings(read: _Read, run: dict[str, Any]) -> Iterator[str]:
    seeded, sentence = run.get("seeded"), run.get("randomness")
    if not isinstance(seeded, bool | None) or not isinstance(sentence, str | None):
        yield f"it says seeded {shortened(seeded)}, randomness {shortened(sentence)}"
    elif read.revision > 1 and seeded is not seeding.is_seeded({"randomness": sentence}):
        yield f"it says seeded={seeded}; its noise came from {shortened(sentence)}"
    batch = run.get("expected_batch_size", 1)
    if not is_finite(batch) or batch <= 0:
        yield f"run.expected_batch_size is {shortened(batch)}"
    for name in ("learning_rate", "momentum", "weight_decay"):
        if not is_finite(run.get(name, 0)):
            yield f"run.{name} is {shortened(run[name])}"
    for name in ("optimizer", "schedule"):
        if not isinstance(run.get(name, ""), str):
            yield f"run.{name} is {shortened(run[name])}"
    versions = _mapping(read.receipt["versions"], "versions")
    if not all(isinstance(version, str) for version in versions.values()):
        yield "a version is not a text"
    unsafe = run.get("unsafe_diagnostics", False)
    if not isinstance(unsafe, bool):
        yield f"run.unsafe_diagnostics is {shortened(unsafe)}"
    elif not unsafe and (read.folder / DIAGNOSTICS).exists():
        yield f"{DIAGNOSTICS} lies beside the receipt, which does not tell of it"


def _job(read: _Read) -> Iterator[str]:
    if read.receipt.get("job") is not None:
        yield from asked.differences(read.receipt["job"], read.plan, read.receipt)


def _journal(read: _Read) -> Iterator[str]:
    known = read.receipt.get("journal")
    if known is None:
        beside = read.folder / JOURNAL
        if beside.exists() and read.revision > 1:
            yield f"{JOURNAL} lies beside the receipt, which does not tell of it"
        elif beside.exists():  # the first receipts may not know it; it counts the steps of the same run
            released = journal.Journal.open(beside).steps
            if released != read.ledger.steps:
                yield f"{JOURNAL} beside it has {released} released steps; the receipt counts {read.ledger.steps}"
        return
    if set(known) != {"file", "releases", "steps", "digest"}:
        yield f"its journal has the parts {shortened(sorted(known))}"
    if known["file"] in read.away:
        return
    if known["file"] != JOURNAL and (read.folder / JOURNAL).exists():
        yield f"its journal is {shortened(known['file'])}, and {JOURNAL} lies beside it"
    yield from journal.unreconciled(read.folder, {**known, "file": _name(known["file"])}, read.ledger.steps)


def _metrics(read: _Read) -> Iterator[str]:
    receipt, last = read.receipt, read.run.get("metrics")
    if last is not None and not isinstance(last, dict):
        yield f"run.metrics is {shortened(last)}"
        return
    known, journal_of = receipt.get("metrics"), receipt.get("journal") or {}
    if known is None or (read.away and {known["file"], journal_of.get("file")} & {*read.away}):
        if last and last.keys() & {"step", "epsilon_certified"}:  # words of the caller's have neither
            yield from metrics.epsilon_differences(last, read.ledger, read.plan.delta, read.older)
        if known is None and read.revision > 1 and (journal_of or (read.folder / METRICS).exists()):
            yield f"{METRICS} is not covered"
        return
    if set(known) != {"file", "sha256", "rows"}:
        yield f"its metrics have the parts {shortened(sorted(known))}"
    if known["file"] != METRICS:
        yield f"its metrics are in {shortened(known['file'])}; readers look into {METRICS}"
    if receipt["journal"] is None:
        yield "it has metrics, and no journal of what was released"
        return
    released = read.released
    seen = set() if released is None else set(released.weights_at)
    known = {**known, "file": _name(known["file"])}
    yield from metrics.differences(read.folder, known, last, read.ledger, read.plan.delta, seen, read.older)


def _weights(read: _Read) -> Iterator[str]:
    known = read.receipt["weights"]
    if set(known) != {"file", "sha256"}:
        yield f"its weights have the parts {shortened(sorted(known))}"
    weights = read.folder / _name(known["file"])
    if weights.name in read.away:
        return
    if not weights.is_file():
        yield f"the weights {weights.name} are not a file"
        return
    if derived.file_digest(weights) != known["sha256"]:
        yield f"the weights {weights.name} are not those that the receipt was written for"
    others = [other for name in NO_WEIGHTS if (other := read.folder / name).exists()]
    if weights.name in NO_WEIGHTS or any(weights.samefile(other) for other in others):
        yield f"its weights are {weights.name}, another file of the run"
        return
    held, trained = elements(weights), read.task.get("trainable_parameters")
    if held is None:
        yield f"the weights {weights.name} are not a safetensors file"
    elif trained is not None and held < trained:
        yield f"the weights {weights.name} have {held} numbers; {trained} parameters were trained"


def _name(file: Any) -> str:
    """The name of a file beside the receipt: no path to another place."""
    if not isinstance(file, str) or not file or Path(file).name != file or "\0" in file:
        raise InvalidArgument("file", file, "the name of a file beside the receipt")
    return file


def _mapping(value: Any, name: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InvalidArgument(name, value, "an object with names")
    return value
