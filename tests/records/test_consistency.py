"""Receipts that were changed in several places at once, files beside them that were exchanged, and old receipts."""

import copy
import functools
import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.patience import HANGS
from tests.records.receipts import DELTA, KINDS, WORK, changed, run

import plrvo
from plrvo.audit.receipt import examine, verify
from plrvo.records import derived, history, metrics
from plrvo.records.journal import Journal
from plrvo.records.metrics import summary
from plrvo.records.seeding import UNSEEDED, is_seeded
from plrvo.training import checkpoint
from plrvo.training.checkpoint import read_extra
from plrvo.validate import InvalidArgument

FIRST = Path(__file__).parent / "first_receipts"  # of format 1 before it had revisions


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return {name: KINDS[name](tmp_path_factory.mktemp(name)).parent for name in ("poisson", "correlated", "l1")}


@pytest.fixture
def folder(made, tmp_path, request):
    return Path(shutil.copytree(made[getattr(request, "param", "poisson")], tmp_path / "run"))


def forge(folder, change):
    """Change the receipt, and sign it again."""
    path = folder / "receipt.json"
    path.write_text(changed(json.loads(path.read_text()), (), lambda receipt, _: change(receipt)))
    return verify(path)


def both(receipt, **workload):
    receipt["plan"]["workload"] |= workload
    receipt["ledger"][0]["workload"] |= workload


def claimed(receipt, plan):
    """Make the receipt say what the plan says."""
    described = plan.to_dict()
    receipt["plan"] = described
    receipt["ledger"] = [{"noise": described["noise"], "workload": described["workload"]}]


def nothing_certified(receipt):
    """At a clip of 1e308 no bound is finite."""
    plan = plrvo.Plan.certify(plrvo.Laplace(1.0), plrvo.Workload(0.1, 6, 1e308, 650), 1e-5)
    assert plan.bracket.certified == float("inf")
    claimed(receipt, plan)
    receipt["plan"]["epsilon_lower"] = receipt["epsilon"]["lower"] = plan.bracket.lower
    receipt["epsilon"] |= {"certified": 0.1, "published": None}


def delta_of_another_plan(receipt):
    """The epsilon that is true at the larger delta, written under the smaller one."""
    plan = plrvo.Plan.from_dict(receipt["plan"])
    larger = plrvo.Plan.certify(plan.noise, plan.workload, 1e-3)
    receipt["epsilon"] = derived.epsilons(plrvo.Ledger().plus(plan.noise, plan.workload), 1e-3)
    assert larger.bracket.certified == receipt["epsilon"]["certified"]
    receipt["delta"] = 1e-3


def cheaper_ledger(**workload):
    """A ledger that costs less than the plan, with the epsilon that follows from it."""

    def change(receipt):
        plan = plrvo.Plan.from_dict(receipt["plan"])
        work = replace(plan.workload, **workload)
        receipt["ledger"][0]["workload"] |= workload
        receipt["epsilon"] = derived.epsilons(plrvo.Ledger().plus(plan.noise, work), plan.delta)
        receipt["steps"], receipt["complete"] = work.steps, work.steps == plan.workload.steps

    return change


def fewer_parameters(receipt):
    cheaper_ledger(dimension=64)(receipt)
    receipt["plan"]["workload"]["dimension"] = 64


def first_revision(receipt):
    """As if it were one of the first receipts, which say less."""
    for key in ("revision", "metrics", "job"):
        receipt.pop(key, None)
    for key in ("clipping", "grad_sample_mode", "expected_batch_size", "processes", "seeded", "isolation"):
        receipt["run"].pop(key)
    receipt["task"].pop("trainable_parameters")
    receipt["weights"].pop("trained")
    both(receipt, dimension=1)


FORGERIES = {
    "an older revision than the code that it names": (first_revision, "it is of revision 1"),
    "another epsilon among the settings": (lambda r: r["run"].update(epsilon_certified=0.01), "stands elsewhere"),
    "another epsilon in the task": (lambda r: r["task"].update(epsilon=0.01), "stands elsewhere"),
    "an infinite epsilon, recomputed": (nothing_certified, "nothing is certified"),
    "another delta": (delta_of_another_plan, "delta"),
    "a smaller clip in the ledger": (cheaper_ledger(clip=0.5), "clip"),
    "a smaller dimension in the ledger": (cheaper_ledger(dimension=64), "dimension"),
    "a smaller dimension in both": (fewer_parameters, "dimension"),
    "fewer steps than were journalled": (cheaper_ledger(steps=2), "6 steps have been released"),
    "more steps than were journalled": (lambda r: (both(r, steps=9), r.update(steps=9)), "9"),
    "l1 clipping at a dimension of one": (
        lambda r: (both(r, dimension=1), r["run"].update(clipping="flat")),
        "dimension",
    ),
    "no journal": (lambda r: r.update(journal=None), "journal.jsonl lies beside"),
    "no journal, no metrics": (lambda r: r.update(journal=None, metrics=None), "journal.jsonl lies beside"),
    "no metrics": (lambda r: r.update(metrics=None), "metrics.jsonl is not covered"),
    "metrics of another run": (lambda r: r["run"]["metrics"].update(accuracy=0.99), "last metrics"),
    "seeded, and it does not say so": (lambda r: r["run"].update(randomness="a fixed seed"), "seeded"),
    "a format that is true": (lambda r: r.update(receipt=True), None),
    "weights somewhere else": (lambda r: r["weights"].update(file="../run/model.safetensors"), "beside the receipt"),
    "an audit of nothing": (lambda r: r.update(audit={}), "audit"),
    "an audit that is false": (lambda r: r.update(audit=False), "audit"),
    "canaries without an audit": (
        lambda r: r["task"].update(canaries={"count": 5, "kind": "example", "included": "by a fair coin each"}),
        "audit",
    ),
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_what_contradicts_itself_is_found(folder, forgery):
    change, said = FORGERIES[forgery]
    if said is None:
        with pytest.raises(InvalidArgument, match="a receipt of format 1"):
            forge(folder, change)
    else:
        assert any(said in line for line in forge(folder, change))


@pytest.mark.parametrize("folder", ["poisson", "correlated", "l1"], indirect=True)
@pytest.mark.parametrize("change", [torch.zeros_like, lambda t: t + 1e-3], ids=["zeroed", "moved"])
def test_weights_that_were_not_released_are_found(folder, change):
    """Whoever signs again: the journal has a digest of what was trained."""
    path = folder / "model.safetensors"
    save_file({name: change(t) for name, t in load_file(path).items()}, path)
    said = forge(folder, lambda receipt: receipt["weights"].update(sha256=derived.file_digest(path)))
    assert any("not those of the last release" in line for line in said)


@pytest.mark.parametrize(
    "names", [[], None, "0.weight", [0], ["0.weight", "0.weight"], ["0.bias", "0.weight"]], ids=str
)
def test_the_names_of_trained_weights_are_checked(folder, names):
    assert forge(folder, lambda receipt: receipt["weights"].update(trained=names))


def kept(folder, change):
    """Change what the checkpoint says, and pack it again with a digest that fits."""
    path = folder / "checkpoint.safetensors"
    tensors, record = checkpoint._unpack(path)
    change(record)
    path.chmod(0o600)
    path.write_bytes(checkpoint._pack(tensors, record))
    return verify(folder / "receipt.json")


CHECKPOINTS = {
    "a seed": (lambda r: r["extra"]["fixed"].update(seed=7), "has a seed"),
    "another plan": (lambda r: r["plan"]["workload"].update(clip=0.1), "another plan"),
    "another ledger": (lambda r: r["ledger"][0]["workload"].update(clip=0.1), "another ledger"),
    "more steps": (lambda r: r.update(steps_taken=60), "has taken 60 steps"),
    "another learning rate": (lambda r: r["extra"]["fixed"].update(learning_rate=1e-9), "learning_rate"),
    "diagnostics": (lambda r: r["extra"]["fixed"].update(unsafe_diagnostics=True), "unsafe_diagnostics"),
    "a smaller group": (lambda r: r["extra"]["fixed"]["task"].update(group_size=30), "'task.group_size' 30"),
    "fewer examples": (lambda r: r["extra"]["fixed"]["task"].update(examples=30), "'task.examples' 30"),
    "another journal": (lambda r: r["extra"]["journal"].update(releases=1), "another journal"),
    "no form": (lambda r: r.pop("steps_taken"), "wrong form"),
}


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_a_checkpoint_that_contradicts_the_receipt_is_found(folder, name):
    change, said = CHECKPOINTS[name]
    assert kept(folder, lambda record: None) == []
    assert any(said in line for line in kept(folder, change))


def test_a_seed_that_the_checkpoint_has_is_not_denied(tmp_path):
    plan = plrvo.Plan.certify(plrvo.Laplace(2.0), WORK, DELTA)
    folder = run(tmp_path / "run", plan, seed=3).parent
    assert verify(folder / "receipt.json") == []
    denied = {"seeded": False, "randomness": UNSEEDED}
    assert any("has a seed" in line for line in forge(folder, lambda receipt: receipt["run"].update(denied)))


def test_one_step_of_forty_in_the_journal_is_found(folder):
    """The journal was begun anew after its first line, and the receipt knows that one."""
    path = folder / "journal.jsonl"
    path.write_bytes(path.read_bytes().splitlines(keepends=True)[0])
    known = Journal.open(path).summary()
    assert any("a receipt is a release itself" in line for line in forge(folder, lambda r: r.update(journal=known)))


def rewritten(folder, change):
    """Metrics that were changed, with a receipt that knows the new ones."""
    path = folder / "metrics.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    change(rows)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))

    def sign(receipt):
        receipt["metrics"] = summary(path, len(rows))
        receipt["run"]["metrics"] = rows[-1] if rows else None

    return forge(folder, sign)


@pytest.mark.parametrize("folder", ["poisson", "correlated"], indirect=True)
def test_metrics_are_covered(folder):
    path = folder / "metrics.jsonl"
    assert examine(folder / "receipt.json").metrics_covered
    path.write_text(path.read_text().replace('"accuracy": 0.', '"accuracy": 0.9'))
    assert any("metrics.jsonl are not those" in line for line in verify(folder / "receipt.json"))
    path.unlink()
    assert any("not beside" in line for line in verify(folder / "receipt.json"))


METRICS = {
    "an accuracy of more than one": (lambda rows: rows[0].update(accuracy=1.5), "'accuracy' 1.5"),
    "an accuracy in words": (lambda rows: rows[0].update(accuracy="best"), "accuracy"),
    "a smaller epsilon at the end": (lambda rows: rows[-1].update(epsilon_certified=0.1), "recomputed"),
    "a smaller epsilon on the way": (lambda rows: rows[0].update(epsilon_certified=0.1), "recomputed"),
    "an infinite one": (lambda rows: rows[0].update(epsilon_certified=1e999), "JSON object in every line"),
    "an epsilon that is a word": (lambda rows: rows[0].update(epsilon_certified="small"), "recomputed"),
    "a step that was not released": (lambda rows: rows[0].update(step=1), "not in the journal"),
    "steps beyond the last": (lambda rows: rows[-1].update(step=60), "rising steps"),
    "steps that fall": (lambda rows: rows.reverse(), "rising steps"),
    "a step that is a half": (lambda rows: rows[0].update(step=2.5), "rising steps"),
    "no step": (lambda rows: rows[0].pop("step"), "rising steps"),
}


@pytest.mark.parametrize("folder", ["poisson", "correlated"], indirect=True)
@pytest.mark.parametrize("name", METRICS)
def test_metrics_that_contradict_the_ledger_are_found(folder, name):
    change, said = METRICS[name]
    assert any(said in line for line in rewritten(folder, change))


def test_metrics_that_were_rewritten_as_they_were_verify(folder):
    assert rewritten(folder, lambda rows: None) == []


@pytest.mark.parametrize("folder", ["poisson"], indirect=True)
def test_diagnostics_beside_a_receipt_that_denies_them_are_found(folder):
    (folder / "unsafe-diagnostics.jsonl").write_text("")
    assert any("unsafe-diagnostics" in line for line in verify(folder / "receipt.json"))


@pytest.mark.parametrize("folder", ["l1"], indirect=True)
@pytest.mark.parametrize("change", [{"clipping": "flat"}, {"grad_sample_mode": "ghost"}], ids=str)
def test_an_l1_clip_that_is_called_another_is_found(folder, change):
    assert forge(folder, lambda receipt: receipt["run"].update(change))


def revision_before(receipt):
    """As an older version wrote it, whose plans did not say the clipping, and had dimension 1 under an l1 clip."""
    plan = plrvo.Plan.from_dict(receipt["plan"])
    receipt |= {"revision": 3, "plan": plan.to_dict(form=1)}
    receipt["versions"]["plrvo_code"] = "older"
    receipt["weights"].pop("trained", None)
    receipt["run"].pop("isolation", None)


@pytest.mark.parametrize("folder", ["poisson", "correlated", "l1"], indirect=True)
def test_receipts_of_the_revision_before_verify_still(folder):
    kept(folder, lambda record: record.update(plan=plrvo.Plan.from_dict(record["plan"]).to_dict(form=1)))
    assert forge(folder, revision_before) == []
    assert examine(folder / "receipt.json").plan.clipping == examine(folder / "receipt.json").run["clipping"]
    assert forge(folder, lambda receipt: receipt["run"].update(clipping="other"))


@pytest.mark.parametrize("folder", ["l1"], indirect=True)
def test_a_plan_that_does_not_say_its_clipping_is_of_an_older_receipt(folder):
    def older_plan(receipt):
        revision_before(receipt)
        receipt["revision"] = 4

    assert any("how gradients are clipped" in line for line in forge(folder, older_plan))


@pytest.mark.parametrize("folder", ["poisson", "l1"], indirect=True)
@pytest.mark.parametrize("clipping", ["flat", "per_layer", "l1"])
def test_a_clipping_that_is_not_the_plans_is_found(folder, clipping):
    ran = json.loads((folder / "receipt.json").read_text())["run"]["clipping"]
    if clipping != ran:
        assert forge(folder, lambda receipt: receipt["run"].update(clipping=clipping))
        assert forge(folder, lambda r: (r["plan"].update(clipping=clipping), r["run"].update(clipping=ran)))


@pytest.mark.parametrize("name", ["audited", "corr", "exact"])
def test_the_first_receipts_verify_still(name):
    examined = examine(FIRST / name / "receipt.json")
    assert "revision" not in examined
    assert examined.differences == ()
    assert not examined.metrics_covered


def test_a_new_receipt_does_not_pass_for_an_old_one(folder):
    assert forge(folder, lambda receipt: receipt.pop("revision"))
    assert forge(folder, lambda receipt: receipt.pop("metrics"))


def test_a_receipt_is_read_once(folder, monkeypatch):
    """What is shown is what was recomputed, whatever lies there a moment later."""
    path, opened = folder / "receipt.json", []
    plain = Path.open
    monkeypatch.setattr(Path, "open", lambda self, *a, **k: opened.append(self) or plain(self, *a, **k))
    assert examine(path).differences == ()
    assert opened.count(path) == 1


def test_metrics_are_read_once(folder, monkeypatch):
    """The rows that are checked are those that have the digest."""
    opened, plain = [], metrics.open_regular
    for module in (metrics, derived, history):  # whoever reads or digests a file
        monkeypatch.setattr(module, "open_regular", lambda path: opened.append(path.name) or plain(path))
    assert verify(folder / "receipt.json") == []
    assert opened.count("metrics.jsonl") == 1


@pytest.mark.parametrize("where", ["plan.epsilon_lower", "epsilon.lower"])
@pytest.mark.parametrize("of_other_code", [False, True])
def test_a_lower_bound_above_the_certified_one_is_found(folder, where, of_other_code):
    part, name = where.split(".")

    def raise_it(receipt):
        receipt[part][name] = 1.01 * receipt[part][name.replace("lower", "certified")]
        if of_other_code:
            receipt["versions"]["plrvo_code"] = "0" * 16

    assert any(where in line and "above" in line for line in forge(folder, raise_it))


def test_a_lower_bound_above_what_is_certified_today_is_found(folder):
    def both_higher(receipt):
        receipt["versions"]["plrvo_code"] = "0" * 16
        now = receipt["epsilon"]["certified"]
        receipt["epsilon"] |= {"certified": 1.3 * now, "lower": 1.2 * now}

    assert any("epsilon.lower" in line and "above" in line for line in forge(folder, both_higher))


@functools.cache
def many_rows():
    ledger = plrvo.Ledger().plus(plrvo.Gaussian(2.0), plrvo.Workload(0.1, 20, 1.0, 650))
    rows = []
    for step in range(1, 21):
        taken = plrvo.Ledger().plus(plrvo.Gaussian(2.0), plrvo.Workload(0.1, step, 1.0, 650))
        rows.append({"step": step, "epsilon_certified": taken.certified(1e-5).value})
    return ledger, rows


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda row: None, None),
        (lambda row: row.update(epsilon_certified=0.01), "falls"),
        (lambda row: row.update(epsilon_certified=1e6), "falls"),
        (lambda row: row.update(epsilon_certified="small"), "small"),
        (lambda row: row.update(epsilon_certified=None), "None"),
        (lambda row: row.update(epsilon_certified=True), "True"),
        (lambda row: row.pop("epsilon_certified"), "some rows only"),
    ],
)
def test_every_row_of_metrics_is_checked(tmp_path, change, said):
    """Also a row that is not among the eight which are recomputed: the second of twenty."""
    ledger, known = many_rows()
    rows = copy.deepcopy(known)
    change(rows[1])
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = list(metrics.differences(tmp_path, summary(path, 20), rows[-1], ledger, 1e-5, set(range(1, 21))))
    assert found == [] if said is None else [line for line in found if said in line]


def test_a_receipt_of_the_second_revision_has_no_job_and_verifies(folder):
    def second(receipt):
        del receipt["job"], receipt["weights"]["trained"], receipt["run"]["isolation"]
        receipt["revision"] = 2
        receipt["versions"]["plrvo_code"] = "of another version"

    assert forge(folder, second) == []
    assert "'job' is not a part of a receipt" in forge(folder, lambda receipt: receipt.update(job=None))


def test_a_journal_beside_a_receipt_of_the_first_revision_is_read(tmp_path):
    folder = Path(shutil.copytree(FIRST / "corr", tmp_path / "run"))
    assert forge(folder, lambda receipt: receipt.pop("journal")) == []
    journal = Journal.open(folder / "journal.jsonl")
    assert journal.permits(journal.steps + 1, True, lambda: "0" * 64)
    assert any("released steps" in line for line in verify(folder / "receipt.json"))


@pytest.mark.parametrize("sentence", ["the operating system of a dice", "the operating system: seed 0"])
def test_only_the_one_sentence_is_unseeded(folder, sentence):
    assert any("seeded" in line for line in forge(folder, lambda receipt: receipt["run"].update(randomness=sentence)))
    assert is_seeded({"randomness": sentence})


WEIGHTS = {
    "any file": (lambda folder: (folder / "other").write_bytes(b"anything"), "other", "not a safetensors file"),
    "the checkpoint": (lambda folder: None, "checkpoint.safetensors", "another file of the run"),
    "the metrics": (lambda folder: None, "metrics.jsonl", "another file of the run"),
    "the checkpoint by another name": (
        lambda folder: (folder / "other").hardlink_to(folder / "checkpoint.safetensors"),
        "other",
        "another file of the run",
    ),
    "too few numbers": (
        lambda folder: save_file({"weight": torch.zeros(649)}, folder / "other"),
        "other",
        "650 parameters were trained",
    ),
}


@pytest.mark.parametrize("name", WEIGHTS)
def test_weights_are_weights(folder, name):
    make, file, said = WEIGHTS[name]
    make(folder)
    known = {"file": file, "sha256": derived.file_digest(folder / file)}
    assert any(said in line for line in forge(folder, lambda receipt: receipt["weights"].update(known)))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes")
def test_a_pipe_among_the_files_of_a_run_is_not_waited_for(made, tmp_path):
    """All commands in one process, which is given up where it hangs."""
    commands = []
    for name in ("receipt.json", "journal.jsonl", "metrics.jsonl", "model.safetensors"):
        folder = Path(shutil.copytree(made["poisson"], tmp_path / name))
        (folder / name).unlink()
        os.mkfifo(folder / name)
        commands += [["verify", str(folder / "receipt.json")], ["report", str(folder), "--out", str(folder / "p.html")]]
    code = "import json, sys; from plrvo.cli.main import main; print([main(c) for c in json.loads(sys.argv[1])])"
    done = subprocess.run([sys.executable, "-c", code, json.dumps(commands)], capture_output=True, timeout=HANGS)
    assert b"Traceback" not in done.stderr
    codes = json.loads(done.stdout.splitlines()[-1])
    assert len(codes) == 8
    assert set(codes) <= {1, 2}


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="no such device")
def test_a_device_without_end_is_no_checkpoint(tmp_path):
    path = tmp_path / "checkpoint.safetensors"
    path.symlink_to("/dev/zero")
    with pytest.raises(InvalidArgument, match="not a regular file"):
        read_extra(path)


@pytest.mark.parametrize("content", [None, "garbage {"])
def test_metrics_that_are_here_are_compared_though_the_journal_is_away(folder, content):
    """Of a receipt that travels, each file that came along is held to its digest."""
    for name in ("model.safetensors", "journal.jsonl", "checkpoint.safetensors"):
        (folder / name).unlink()
    assert verify(folder / "receipt.json") == []
    assert examine(folder / "receipt.json").away == ("model.safetensors", "journal.jsonl")
    path = folder / "metrics.jsonl"
    path.write_text(content or path.read_text().replace('"accuracy": 0.', '"accuracy": 0.9'))
    assert any("metrics.jsonl are not those" in line for line in verify(folder / "receipt.json"))


def test_the_batch_size_follows_from_rate_and_examples(tmp_path):
    folder = KINDS["asked"](tmp_path / "run").parent
    (folder / "checkpoint.safetensors").unlink()
    assert verify(folder / "receipt.json") == []
    for change in ({"expected_batch_size": 1.0}, {"expected_batch_size": 14.4}):
        found = forge(folder, lambda receipt, change=change: receipt["run"].update(change))
        assert any("expected_batch_size" in line for line in found)


def test_a_receipt_names_the_code_that_wrote_it(folder):
    """Or it could call itself older, and owe less."""
    assert "versions.plrvo_code is missing" in forge(folder, lambda receipt: receipt.update(versions={}))


CHARGED = {"account": "0" * 32, "entry": 1, "event": 2, "digest": "a" * 64}


def test_a_receipt_may_name_its_account_if_its_checkpoint_does(folder):
    assert "was charged otherwise" in forge(folder, lambda receipt: receipt.update(budget=CHARGED))[0]
    (folder / "checkpoint.safetensors").unlink()
    assert verify(folder / "receipt.json") == []
    assert forge(folder, lambda receipt: receipt.update(revision=3))


@pytest.mark.parametrize(
    "wrong",
    [
        *({"entry": 0}, {"entry": True}, {"event": -1}, {"event": "2"}, {"account": "no"}, {"account": None}),
        *({"digest": "A" * 64}, {"digest": "a" * 63}, {"more": 1}),
    ],
    ids=str,
)
def test_an_account_of_another_form_is_found(folder, wrong):
    (folder / "checkpoint.safetensors").unlink()
    found = forge(folder, lambda receipt: receipt.update(budget=CHARGED | wrong))
    assert len(found) == 1
    assert "budget" in found[0]
