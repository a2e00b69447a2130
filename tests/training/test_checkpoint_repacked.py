"""Checkpoints that somebody packed again, with a digest that fits: one line, and never a step beyond the budget."""

import functools
import shutil

import pytest
import torch
from tests.tasks.test_experiment_resume import Killed, run
from tests.training.ftrl.correlated import correlated
from tests.training.helpers import GAMMA, private

import plrvo
from plrvo.accounting.correlated import Tree
from plrvo.files import write_bytes
from plrvo.training import checkpoint
from plrvo.validate import InvalidArgument

STEPS = 9


def prepared(kind):
    if kind == "correlated":
        return correlated(Tree(), plrvo.Laplace(20.0), epsilon=50.0, momentum=0.9)
    engine, model, optimizer, loss, loader = private(GAMMA, steps=STEPS, epsilon=500.0)
    optimizer.original_optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    return engine, model, optimizer, loss, loader


@functools.cache
def saved(kind, folder):
    """The checkpoint of a run after four steps."""
    engine, model, optimizer, loss, loader = prepared(kind)
    for _, (x, y) in zip(range(4), loader, strict=False):
        optimizer.zero_grad()
        loss(model(x), y).backward()
        optimizer.step()
    path = folder / f"{kind}.safetensors"
    engine.save_checkpoint(path=path, module=model, optimizer=optimizer, extra={})
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("saved")


def without(name):
    return lambda tensors, record: tensors.pop(name)


def record(**changes):
    return lambda tensors, record: record.update(changes)


def lost(key):
    return lambda tensors, record: record.pop(key)


def tensor(name, change):
    def put(tensors, record):
        tensors[name] = change(tensors[name]).contiguous()

    return put


def ledger(**workload):
    def put(tensors, record):
        record["ledger"][0]["workload"].update(workload)

    return put


def fewer_steps(tensors, record):
    """A run of four steps that says it has taken none, and has all of them left."""
    record |= {"steps_taken": 0, "ledger": [], "remaining": STEPS}
    tensors["generator.noise"] = tensors["generator.noise"][:-1]


def group(**changes):
    def put(tensors, record):
        groups = dict(record["optimizer"]["items"])["param_groups"]["list"]
        groups[0]["items"] = [[key, changes.get(key, value)] for key, value in groups[0]["items"]]

    return put


def buffers_of_another_shape(tensors, record):
    for name in tensors:
        if name.endswith("exp_avg"):
            tensors[name] = torch.zeros(7, 7)


WEIGHT = "module.4.weight"
REPACKED = {
    "steps that are negative": record(steps_taken=-1),
    "steps that are a half": record(steps_taken=4.0),
    "steps that are true": record(steps_taken=True),
    "steps that are a word": record(steps_taken="4"),
    "steps beyond the plan": record(steps_taken=STEPS + 1),
    "fewer steps than the ledger": record(steps_taken=3),
    "no steps at all": fewer_steps,
    "more remaining than the budget": record(remaining=STEPS),
    "one more remaining": record(remaining=6),
    "negative remaining": record(remaining=-1),
    "infinitely many remaining": record(remaining=10**400),
    "remaining words": record(remaining="5"),
    "an empty ledger": record(ledger=[]),
    "a ledger of less": ledger(steps=2),
    "a ledger of a smaller clip": ledger(clip=1e-3),
    "a ledger of a smaller dimension": ledger(dimension=1),
    "a ledger of another rate": ledger(sample_rate=1e-4),
    "a ledger that is a word": record(ledger="none"),
    "a ledger of nothing": record(ledger=[{}]),
    "another plan": record(plan=None),
    "a plan of another delta": lambda tensors, record: record["plan"].update(delta=2e-5),
    "an optimizer that is none": record(optimizer=None),
    "an optimizer without its tensors": record(optimizer={"tensor": "nowhere"}),
    "an optimizer without groups": record(
        optimizer={"items": [["state", {"items": []}], ["param_groups", {"list": []}]]}
    ),
    "a rate that is a word": group(lr="fast"),
    "a rate that is infinite": group(lr=10**400),
    "parameters of another": group(params={"list": [0, 1]}),
    "buffers of another shape": buffers_of_another_shape,
    "correlated, and the plan is not": record(correlated={"key": "1", "seed": "1", "digest": "0" * 64}),
    "a name that is missing": without(WEIGHT),
    "a name too many": lambda tensors, record: tensors.update({"module.extra": torch.zeros(1)}),
    "another shape": tensor(WEIGHT, lambda t: t[:-1]),
    "another type": tensor(WEIGHT, lambda t: t.double()),
    "whole numbers for weights": tensor(WEIGHT, lambda t: t.long()),
    "no state of the noise": without("generator.noise"),
    "no state of the batches": without("generator.sample"),
    "no state for dropout": without("generator.global"),
    "a short state": tensor("generator.noise", lambda t: t[:10]),
    "an empty state": tensor("generator.sample", lambda t: t[:0]),
    "a state of floats": tensor("generator.global", lambda t: t.float()),
    **{f"no {key}": lost(key) for key in sorted(checkpoint.checks._KEYS)},
}
CORRELATED = {
    "no key": record(correlated={}),
    "not correlated": record(correlated=None),
    "the key of a finished run": lambda tensors, record: record["correlated"].update(key="0"),
    "a negative key": lambda tensors, record: record["correlated"].update(key="-5"),
    "a key that is a word": lambda tensors, record: record["correlated"].update(key="secret"),
    "no digest": lambda tensors, record: record["correlated"].update(digest=None),
    "another digest": lambda tensors, record: record["correlated"].update(digest="0" * 64),
    "another order": lambda tensors, record: record["correlated"].update(seed="5"),
    "an order that is a word": lambda tensors, record: record["correlated"].update(seed="five"),
    "fewer taken": lambda tensors, record: record["ledger"][0].update(taken=2),
    "a smaller clip": lambda tensors, record: record["ledger"][0]["workload"].update(clip=0.1),
    "more remaining": record(remaining=10),
    "another strategy": lambda tensors, record: record["ledger"][0]["correlation"].update(restart_every=2),
}
ROWS = [("poisson", name, change) for name, change in REPACKED.items()]
ROWS += [("correlated", name, change) for name, change in CORRELATED.items()]


@pytest.mark.parametrize("kind", ["poisson", "correlated"])
def test_epsilons_that_have_become_tighter_since_do_not_matter(folder, tmp_path, kind):
    tensors, content = checkpoint._unpack(saved(kind, folder))
    content["plan"]["epsilon_certified"] *= 1.1
    content["plan"]["epsilon_lower"] *= 0.9
    path = tmp_path / "checkpoint"
    write_bytes(path, checkpoint._pack(tensors, content))
    engine, model, optimizer, *_ = prepared(kind)
    engine.load_checkpoint(path=path, module=model, optimizer=optimizer)
    assert optimizer.steps_taken == 4


@pytest.mark.parametrize(("kind", "name", "change"), ROWS, ids=lambda value: value if isinstance(value, str) else "")
def test_a_repacked_checkpoint_is_refused_in_one_line(folder, tmp_path, kind, name, change):
    tensors, content = checkpoint._unpack(saved(kind, folder))
    change(tensors, content)
    path = tmp_path / "checkpoint.safetensors"
    write_bytes(path, checkpoint._pack(tensors, content))
    engine, model, optimizer, _, _ = prepared(kind)
    before = [p.detach().clone() for p in model.parameters()]
    with pytest.raises(InvalidArgument, match=r"checkpoint\.safetensors") as refused:
        engine.load_checkpoint(path=path, module=model, optimizer=optimizer)
    assert str(refused.value).isprintable()
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


@pytest.mark.parametrize("kind", ["poisson", "correlated"])
def test_one_that_was_repacked_as_it_was_goes_on(folder, tmp_path, kind):
    tensors, content = checkpoint._unpack(saved(kind, folder))
    path = tmp_path / "checkpoint.safetensors"
    write_bytes(path, checkpoint._pack(tensors, content))
    engine, model, optimizer, loss, loader = prepared(kind)
    assert engine.load_checkpoint(path=path, module=model, optimizer=optimizer) == {}
    for x, y in loader:
        optimizer.zero_grad()
        loss(model(x), y).backward()
        optimizer.step()
    assert optimizer.steps_taken == engine.plan.workload.steps == len(engine.accountant)


@pytest.mark.parametrize("text", ["[]", "null", "5", '"x"', "{", '{"format": 1, "format": 1}', "[" * 100_000])
def test_a_record_that_is_no_record_is_refused(folder, tmp_path, text):
    tensors, _ = checkpoint._unpack(saved("poisson", folder))
    path = tmp_path / "checkpoint.safetensors"
    metadata = {"record": text, "digest": checkpoint._digest(tensors, text)}
    write_bytes(path, checkpoint.save_tensors(tensors, metadata=metadata))
    engine, model, optimizer, _, _ = prepared("poisson")
    with pytest.raises(InvalidArgument, match=r"checkpoint\.safetensors"):
        engine.load_checkpoint(path=path, module=model, optimizer=optimizer)


EXTRA = [None, [], {}, {"fixed": {}}, "x", {"fixed": None, "journal": None, "history": 5, "observed": None}]


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("killed")
    with pytest.raises(Killed):
        run(folder, kill_at=6)
    return folder


@pytest.mark.parametrize("extra", [*EXTRA, "history", "journal"], ids=str)
def test_a_run_is_not_resumed_from_words_of_another(killed, tmp_path, extra):
    shutil.copytree(killed, tmp_path, dirs_exist_ok=True)
    path = tmp_path / "checkpoint.safetensors"
    tensors, content = checkpoint._unpack(path)
    if extra in ("history", "journal"):
        content["extra"][extra] = {"history": [5], "journal": {"releases": "1"}}[extra]
    else:
        content["extra"] = extra
    write_bytes(path, checkpoint._pack(tensors, content))
    with pytest.raises(InvalidArgument) as refused:
        run(tmp_path, resume=True)
    assert str(refused.value).isprintable()
