"""No leaf of a receipt can be changed, even with a digest that fits, unless no guarantee rests on it.

The receipts are of real runs. `FREE` has every leaf that may be changed within its form, with the reason.
"""

import functools
import json
import math

import pytest
from tests.records.receipts import KINDS, changed, containers, leaves

from plrvo.accounting import Ledger
from plrvo.accounting.certified import quick_epsilon
from plrvo.accounting.correlated import CorrelatedLedger
from plrvo.audit.receipt import examine, verify
from plrvo.noise.specification import USUAL
from plrvo.validate import InvalidArgument

pytestmark = pytest.mark.computed  # by `quick`
AFTER = "what is done with a released gradient costs no privacy"
WORD = "the caller's word, which nothing can be compared with"
WISH = "a wish, which nothing else in the receipt says"
EVERY = frozenset(KINDS)
ALL = EVERY - {"asked"}  # what was asked for is compared with what was done
UNASKED = ALL - {"described"}
CORRELATED = frozenset({"correlated", "cyclic"})
# Leaf: the kinds of receipt in which another value of the same form passes, and why it may.
FREE = {
    "plan.epsilon": (UNASKED, "a budget is a wish; that the certified epsilon does not exceed it is checked"),
    "plan.workload.dimension": (
        {"grouped", "asked", "l1"},
        "a plan may be for more parameters; Gaussian noise, and an l1 clip, cost the same in any dimension",
    ),
    "postprocess": (UNASKED, AFTER),
    "run.expected_batch_size": (UNASKED, "a public divisor: whatever it is, the sum has its noise already"),
    "run.learning_rate": (ALL, AFTER),
    "run.momentum": (ALL, AFTER),
    "run.weight_decay": (ALL, AFTER),
    "run.optimizer": (ALL, AFTER),
    "run.schedule": (ALL, AFTER),
    "run.grad_sample_mode": (EVERY - {"exact", "l1"}, "each mode releases the same clipped sum"),
    "run.processes": (
        EVERY - {"exact", "audited"} - CORRELATED,
        "noise is added once, however many processes there are",
    ),
    "run.randomness": ({"exact", "audited"}, "seeded runs: whichever seed; only one sentence says that there was none"),
    "run.unsafe_diagnostics": (
        UNASKED - {"audited"},
        "may warn of a file that has been deleted; one that is there is told",
    ),
    "task.name": (UNASKED, WORD),
    "task.model": (UNASKED, WORD),
    "task.examples": (EVERY - {"correlated"}, "how much data there was; the sampling rate is in the plan"),
    "task.data_sha256": (EVERY, WORD),
    "task.data_source": (EVERY, WORD),
    "task.treated_as_public": (EVERY, WORD),
    "task.canaries.included": ({"audited"}, WORD),
    "versions": (EVERY, WORD),
    "job.seed": (EVERY - UNASKED, "whichever seed it was; that there was one is said twice"),
    "job.evaluate_every": (EVERY - UNASKED, WISH),
    "job.checkpoint_every": ({"asked"}, WISH),
}
# Where words may be added: descriptions of data and model, settings, and what was installed.
OPEN = {
    ("task",),
    ("task", "canaries"),
    ("run",),
    ("versions",),
}


@pytest.fixture(scope="module", autouse=True)
def quick():
    """Accounts of equal ledgers are computed once, and by moments: thousands of receipts share a few hundred.

    The lower bound is half of what moments say, and that of a group as many times as it is large, so that both are
    others for every ledger as well.
    """
    with pytest.MonkeyPatch.context() as patch:
        for module in ("ledger", "correlated.ledger"):
            by_moments = f"plrvo.accounting.{module}.certified_epsilon"
            patch.setattr(by_moments, lambda entries, delta, **_: quick_epsilon(entries, delta))
        of_a_group = "plrvo.records.derived.group_epsilon"
        patch.setattr(of_a_group, lambda ledger, size, delta: size * ledger.certified(delta).value)
        for kind in (Ledger, CorrelatedLedger):
            patch.setattr(kind, "attacked", lambda ledger, delta: ledger.quick(delta).value / 2)
            for name in ("epsilon", "certified", "quick"):
                patch.setattr(kind, name, functools.lru_cache(maxsize=None)(getattr(kind, name)))
        yield


@pytest.fixture(scope="module", params=KINDS)
def kind(request, tmp_path_factory):
    """Without its checkpoint, as a receipt travels: the checkpoint says most of it once more."""
    path = KINDS[request.param](tmp_path_factory.mktemp(request.param))
    path.with_name("checkpoint.safetensors").unlink(missing_ok=True)
    return request.param, path


@pytest.fixture(scope="module")
def plainest(tmp_path_factory):
    """Leaves of the plainest receipt, with the form that they have there."""
    path = KINDS["poisson"](tmp_path_factory.mktemp("plainest"))
    return {(name_of(at), type(value)) for at, value in leaves(json.loads(path.read_text()))}


def wrong_forms(value):
    """Values that no writer of receipts would put in the place of this one."""
    options = [None, True, "\x1b[2K\r", [], {"x": 1}, -1.5, math.inf, 10**400]
    return [other for other in options if type(other) is not type(value) or other in (math.inf, 10**400)]


def other_values(value):
    """Values that it could have had."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value + 1, value - 1, 2 * value + 1, -value - 1, 10**6]  # to account for 10**12 steps takes long
    if isinstance(value, float):
        return [value * 1.001 + 1e-3, value * 0.999 - 1e-300, value / 2, -value - 1e-3, 1e12]
    if isinstance(value, str):
        return [value + "x", value[:-1], "", "flat", "per_layer", "hooks", "ghost", "score", "poisson"]
    return [0, 0.5, 1e6, "x", "score", False]


def accepted(path, text):
    """Whether the changed receipt verifies; or else there is a difference, a refusal, or a file that is away."""
    other = path.with_name("changed.json")
    other.write_text(text)
    try:
        found = examine(other)
    except InvalidArgument:
        return False
    return not found.differences and not found.away


def name_of(at):
    return ".".join(str(key) for key in at if not isinstance(key, int))


def free_in(kind):
    return {name for name, (kinds, _) in FREE.items() if kind in kinds}


def put(value):
    def change(container, key):
        container[key] = value

    return change


def test_a_receipt_that_is_as_it_was_verifies(kind):
    path = kind[1]
    assert verify(path) == []
    assert accepted(path, changed(json.loads(path.read_text()), ("steps",), lambda container, key: None))


def test_no_leaf_can_be_changed_but_those_that_are_free(kind):
    name, path = kind
    receipt = json.loads(path.read_text())
    free = set()
    for at, value in leaves(receipt):
        for other in other_values(value):
            if other != value and accepted(path, changed(receipt, at, put(other))):
                free.add("versions" if at[0] == "versions" else name_of(at))
    assert free == free_in(name)


WORDS = ("task.data_sha256", "task.data_source", "task.canaries.included")  # or anything else
LESS = {("plan.epsilon", None), ("postprocess", None), ("run.metrics", None)}  # says nothing


def test_no_leaf_can_have_another_form(kind, plainest):
    """A leaf that several kinds have is read by the same line for all of them: once is enough."""
    name, path = kind
    receipt = json.loads(path.read_text())
    for at, value in leaves(receipt):
        if name_of(at) in WORDS or (name != "poisson" and (name_of(at), type(value)) in plainest):
            continue
        for other in wrong_forms(value):
            if (name_of(at), other) not in [*LESS, (name_of(at), value)]:
                assert not accepted(path, changed(receipt, at, put(other))), (at, other)


# May be left out: what is not there is not claimed.
SILENT = {name for name in FREE if name.startswith(("task.", "run.", "versions"))} | {"task.canaries.coordinates"}
SILENT -= {"run.expected_batch_size", "run.grad_sample_mode", "run.processes", "run.randomness"}
SILENT -= {"task.trainable_parameters"}
# What was done without being asked for by name: only what suits the task.
ONLY_IF_ASKED = {"job.task", "job.noise", "job.epsilon", "job.postprocess", "job.seed"}
ONLY_IF_ASKED |= {f"job.noise_options.{name}" for name in ("k", "theta", "shared")}


def test_no_leaf_can_be_left_out(kind):
    path = kind[1]
    receipt = json.loads(path.read_text())
    for at, _ in leaves(receipt):
        silent = ("versions" if at[0] == "versions" else name_of(at)) in SILENT
        silent = name_of(at) not in ONLY_IF_ASKED if at[0] == "job" and len(at) > 1 else silent
        silent |= name_of(at) == "job.noise" and receipt["job"]["noise"] == USUAL  # which older jobs did not name
        if not silent:
            assert not accepted(path, changed(receipt, at, lambda container, key: container.pop(key))), at


def test_nothing_can_be_added_but_words(kind):
    path = kind[1]
    receipt = json.loads(path.read_text())

    def add(container, key):
        (container if key is None else container[key])["extra"] = "x"

    for at in containers(receipt):
        assert accepted(path, changed(receipt, at, add)) == (at in OPEN), at


def test_a_list_can_be_neither_longer_nor_shorter(kind):
    path = kind[1]
    receipt = json.loads(path.read_text())
    for change in (lambda c, k: c[k].append(c[k][0]), lambda c, k: c[k].clear(), lambda c, k: c[k].append({})):
        assert not accepted(path, changed(receipt, ("ledger",), change))
