"""A job: which wishes may stand beside each other, what it comes to, and that a folder is enough to continue it."""

import json
from dataclasses import fields, replace
from pathlib import Path
from typing import get_args, get_type_hints

import numpy as np
import pytest
import typer
from tests.tasks.jobs import PLAN, WISHES, resolved_parts

import plrvo
from plrvo.audit.one_run import CanaryKind
from plrvo.audit.receipt import verify
from plrvo.cli.main import app
from plrvo.noise.specification import OPTIONS as OF_NOISES
from plrvo.records import asked
from plrvo.records.folder import CHECKPOINT, METRICS, RECEIPT, WEIGHTS
from plrvo.tasks import beforehand
from plrvo.tasks.job import MOMENTUM, NO_NOISE, Job, check_momentum
from plrvo.training.checkpoint import _pack, _unpack, read_plan
from plrvo.validate import InvalidArgument

OPTIONS = {parameter.name for parameter in typer.main.get_command(app).commands["train"].params}
OF_THE_COMMAND = {"task", "out", "resume", "verbose", "as_json"}  # TASK, where the run is, and how its result is told


def test_every_option_of_the_command_is_a_wish_that_these_tests_have_a_value_for():
    names = {field.name for field in fields(Job)}
    assert not names & OF_NOISES.keys()
    assert names - {"noise_options"} | OF_NOISES.keys() >= OPTIONS - OF_THE_COMMAND
    assert set(WISHES) == names - {"task", "noise_options"} | OF_NOISES.keys()


def used(wish: dict, **beside) -> bool:
    """Whether a job with one more wish comes to another run; InvalidArgument where it is refused."""
    bare = {"task": "digits", **beside}
    return resolved_parts(Job.read(bare | wish)) != resolved_parts(Job.read(bare))


def used_or_refused(name: str, **beside) -> str:
    beside |= {} if name == "model" else {"model": "logistic"}
    try:
        assert used({name: WISHES[name]}, **beside)
    except InvalidArgument as error:
        return f"refused: {error}"
    return "used"


@pytest.mark.parametrize("name", sorted(OPTIONS - OF_THE_COMMAND - {"plan"}))
def test_every_option_beside_a_plan_is_used_or_refused(name):
    answer = used_or_refused(name, plan=PLAN)
    fixed = {"noise", "epsilon", "delta", "clip", "sample_rate", "steps", *OF_NOISES}
    if name in fixed | {"correlation", "epochs", "batch_size", "restart_every", "separation"}:
        assert answer.startswith(f"refused: {name}=")
        assert "`plan`" in answer


# What a run without noise does not look at, and still may be given.
IDLE_WITHOUT_NOISE = {
    "clip": "baselines run by the command of the private run",
    "checkpoint_every": "likewise; such a run keeps no checkpoints",
}


@pytest.mark.parametrize("name", sorted(OPTIONS - OF_THE_COMMAND - {"noise"} - set(IDLE_WITHOUT_NOISE)))
def test_every_option_beside_no_noise_is_used_or_refused(name):
    answer = used_or_refused(name, noise=NO_NOISE)
    private = {"plan", "epsilon", "delta", *OF_NOISES, "exact", "audit", "budget"}
    if name in private | {"correlation", "clipping", "grad_sample_mode", "postprocess", "unsafe_diagnostics"}:
        assert answer.startswith("refused")


@pytest.mark.parametrize(
    ("wishes", "named"),
    [
        ({}, "epsilon=None"),
        ({"epsilon": 1.0, "theta": 3.0}, "theta=3.0: expected no value beside `epsilon`"),
        ({"noise": "laplace", "k": 3.0, "shape": 1.5}, "noise='laplace': expected `scale` (missing); no `k` 3.0"),
        ({"noise": "laplace", "scale": "3"}, "scale='3'"),
        ({"noise": "laplace", "scale": True}, "scale=True"),
        ({"shared": 1.0, "epsilon": 1.0}, "shared=1.0"),
        ({"noise_options": {"colour": 3.0}}, "noise_options="),
        ({"noise_options": 3.0, "epsilon": 1.0}, "noise_options=3.0"),
        ({"noise": "cauchy", "epsilon": 1.0}, "noise='cauchy'"),
        ({"epsilon": 1.0, "grid": 0.1}, "grid=0.1"),
        ({"epsilon": 1.0, "canary": CanaryKind.example}, "canary='example'"),
        ({"epsilon": 1.0, "epochs": 2}, "epochs=2"),
        ({"epsilon": 1.0, "audit": 100, "views": 2}, "views=2"),
        ({"epsilon": 1.0, "views": 0}, "views=0"),
        ({"epsilon": 1.0, "correlation": "tree", "steps": 3}, "steps=3"),
        ({"epsilon": 1.0, "correlation": "tree", "epochs": 2, "clipping": "l1"}, "clipping='l1'"),
        ({"noise": plrvo.Laplace(1.0), "k": 3.0}, "k=3.0"),
        ({"plan": PLAN, "scale": 0.0}, "scale=0.0"),
        ({"epsilon": "1"}, "epsilon='1'"),
        ({"epsilon": 1.0, "steps": 3.0}, "steps=3.0"),
        ({"epsilon": 1.0, "steps": True}, "steps=True"),
    ],
)
def test_wishes_that_contradict_each_other_make_no_job(wishes, named):
    with pytest.raises(InvalidArgument) as refused:
        Job.read({"task": "digits", **wishes})
    assert str(refused.value).startswith(named)
    assert "--" not in str(refused.value)  # the library names its arguments; the command names options


@pytest.mark.parametrize(
    "job",
    [
        Job("digits", plan=PLAN, data_dir=Path("data"), seed=3),
        Job("sst2", noise=plrvo.GammaPLRV(20.0, 0.05), epsilon=2.0, trainable="head"),
        Job("sst2", noise=plrvo.Laplace(2.0)),
        Job("digits", noise_options={"k": 50, "theta": np.float64(0.01), "shared": True}),
        Job("digits", noise="laplace", epsilon=2.0, audit=100, canary=CanaryKind.example, learning_rate=0.3),
    ],
)
def test_a_job_is_what_its_record_says(job):
    record = json.loads(json.dumps(job.to_dict()))
    place = None if job.data_dir is None else job.data_dir.absolute()
    assert Job.read(record) == replace(job, data_dir=place)
    assert record.keys() == job.asked.keys()  # and silent about the rest


def test_options_of_a_noise_are_the_same_wish_typed_and_written():
    typed = Job.read({"task": "digits", "noise": "gamma", "k": 50.0, "theta": 0.01, "shared": False})
    assert typed == Job("digits", noise="gamma", noise_options={"k": 50.0, "theta": 0.01})
    assert typed.to_dict()["noise_options"] == {"k": 50.0, "theta": 0.01}
    assert hash(typed) == hash(Job.read(typed.to_dict()))
    with pytest.raises(TypeError):
        typed.noise_options["k"] = 1.0


@pytest.mark.parametrize("words", [{"task": "digits", "epsilon": 1.0, "colour": "red"}, {"epsilon": 1.0}, [], "digits"])
def test_words_that_are_no_job_are_refused(words):
    with pytest.raises(InvalidArgument):
        Job.read(words)


def test_receipts_know_the_form_of_every_wish():
    """`plrvo verify` reads jobs without the code of tasks; what may be asked for is the same in both."""
    hints = {name: get_args(hint) or (hint,) for name, hint in get_type_hints(Job).items()}

    def having(*kinds):
        return {name for name, of in hints.items() if of[0] in kinds}

    assert having(bool) == asked.FLAGS
    assert having(float) == asked.NUMBERS
    assert having(int) == asked.COUNTS
    assert having(str, CanaryKind) - {"noise", "noise_options"} == asked.TEXTS


SMALL = Job("digits", model="logistic", noise="laplace", epsilon=8.0, sample_rate=0.05, steps=6, seed=3)


@pytest.mark.parametrize(
    "wish",
    [
        {"learning_rate": -1.0},
        {"learning_rate": 1e300},
        {"learning_rate": float("nan")},
        {"momentum": 5.0},
        {"momentum": 0.5, "optimizer": "adam"},
        {"weight_decay": -1.0},
        {"average": 1.0},
        {"average": 0.0},
    ],
    ids=str,
)
def test_numbers_that_no_optimizer_can_use_are_refused_as_they_were_typed(wish):
    with pytest.raises(InvalidArgument) as refused:
        Job("digits", epsilon=3.0, **wish)
    name = next(iter(wish))
    assert str(refused.value).startswith(f"{name}={wish[name]}: ")


def test_a_momentum_beside_the_optimizer_of_a_preset_that_has_none_is_refused(tmp_path):
    for momentum in (0.5, MOMENTUM):
        with pytest.raises(InvalidArgument, match=f"momentum={momentum}"):
            check_momentum("adamw", Job("digits", epsilon=3.0, momentum=momentum).asked)
    check_momentum("adamw", Job("digits", epsilon=3.0).asked)


@pytest.mark.parametrize("momentum", [0.5, MOMENTUM])
def test_words_with_a_momentum_beside_an_optimizer_that_has_none_are_refused_whatever_it_is(momentum):
    with pytest.raises(InvalidArgument, match=f"momentum={momentum}: expected no value beside `optimizer` adam"):
        Job.read({"task": "digits", "epsilon": 3.0, "optimizer": "adam", "momentum": momentum})


def test_the_usual_momentum_is_no_wish_beside_an_optimizer_that_is_named():
    for optimizer in ("sgd", "adam"):  # a recipe has both, whichever optimizer it is for
        job = Job("digits", epsilon=3.0, optimizer=optimizer, momentum=MOMENTUM)
        assert job == Job("digits", epsilon=3.0, optimizer=optimizer)
        assert Job.read(job.to_dict()) == job


def test_a_run_without_a_momentum_has_the_usual_one():
    assert resolved_parts(Job("digits", model="logistic", noise=NO_NOISE))["momentum"] == MOMENTUM


def test_the_rate_of_sgd_is_in_units_of_the_clip_and_that_of_adam_is_not(tmp_path):
    def rate(**wishes):
        return replace(SMALL, clip=0.5, learning_rate=0.2, **wishes).resolve(tmp_path).settings.learning_rate

    assert rate() == 0.4
    assert rate(optimizer="adam") == 0.2
    plain = Job("digits", model="logistic", noise=NO_NOISE, learning_rate=0.2, clip=0.5).resolve(tmp_path)
    assert plain.settings.learning_rate == 0.2


def test_a_job_comes_to_a_plan_that_certifies_its_budget_for_what_is_trained(tmp_path):
    plan = SMALL.resolve(tmp_path).plan
    assert plan.bracket.certified <= plan.epsilon == 8.0
    assert plan.workload == plrvo.Workload(sample_rate=0.05, steps=6, clip=1.0, dimension=650)
    audited = replace(SMALL, audit=300).resolve(tmp_path)
    assert audited.plan.workload.dimension == 950
    l1 = replace(SMALL, clipping="l1", grad_sample_mode="hooks").resolve(tmp_path)
    assert (l1.plan.workload.dimension, l1.plan.charged.dimension) == (650, 1)


def test_a_plan_brings_its_own_and_needs_room_for_canaries(tmp_path):
    resolved = Job("digits", model="logistic", plan=PLAN).resolve(tmp_path)
    assert resolved.plan == PLAN
    with pytest.raises(InvalidArgument, match="a plan of dimension 950"):
        Job("digits", model="logistic", plan=PLAN, audit=300).resolve(tmp_path)


def test_a_job_that_names_no_noise_leaves_it_to_the_workload(tmp_path):
    job = Job("digits", epsilon=3.0, model="logistic", steps=2)
    assert job == Job.read({"task": "digits", "epsilon": 3.0, "noise": "auto", "model": "logistic", "steps": 2})
    assert job.to_dict()["noise"] == "auto"  # in so many words: older jobs without one mean gamma noise
    resolved = job.resolve(tmp_path)
    assert resolved.plan.noise.kind == "gaussian"
    assert "in 650 dimensions" in resolved.reason
    assert Job("digits", noise_options={"noise_multiplier": 1.1}).noise == "gaussian"
    assert Job("digits", noise="gaussian", epsilon=3.0, model="logistic", steps=2).resolve(tmp_path).reason is None


class Killed(BaseException):
    """Ends a run where a signal would."""


def begun(folder, job=SMALL, kill_at=4):
    def watch(step, steps, metrics):
        if step == kill_at:
            raise Killed

    with pytest.raises(Killed):
        job.resolve(folder).train(watch)


def test_a_run_goes_on_from_its_folder_alone(tmp_path):
    parts, whole = tmp_path / "parts", tmp_path / "whole"
    begun(parts)
    job = Job.resumed(parts, {})
    assert job == SMALL
    trained = job.resolve(parts, resume=True).train()
    SMALL.resolve(whole).train()
    for name in (WEIGHTS, METRICS):
        assert (parts / name).read_bytes() == (whole / name).read_bytes()
    assert trained.receipt["job"] == json.loads((whole / RECEIPT).read_text())["job"] == SMALL.to_dict()
    assert verify(parts / RECEIPT) == []


@pytest.mark.parametrize("how", [{}, {"exact": True, "grad_sample_mode": "hooks"}], ids=["float", "exact"])
def test_a_run_goes_on_with_the_noise_that_was_fitted_when_it_began(tmp_path, monkeypatch, how):
    """Another version may fit another noise; by now the one that was fitted is what was released."""
    job = replace(SMALL, **how)
    begun(tmp_path, job)
    fitted = read_plan(tmp_path / CHECKPOINT, None)
    monkeypatch.setattr(plrvo.Plan, "fitted", None)
    trained = Job.resumed(tmp_path, {}).resolve(tmp_path, resume=True).train()
    assert trained.plan == fitted
    assert verify(tmp_path / RECEIPT) == []


def test_the_job_is_in_the_folder_before_the_first_step(tmp_path):
    begun(tmp_path, kill_at=1)
    assert Job.resumed(tmp_path, {}) == SMALL


def test_what_is_given_beside_a_run_is_as_it_was(tmp_path):
    plan = tmp_path / "plan.json"
    PLAN.save(plan)
    begun(tmp_path / "run", Job("digits", model="logistic", plan=PLAN, learning_rate=0.3))
    same = {"task": "digits", "plan": plan, "learning_rate": 0.3, "momentum": 0.9}
    anew = {"data_dir": tmp_path, "physical_batch": 7}
    job = Job.resumed(tmp_path / "run", same | anew)
    assert (job.data_dir, job.physical_batch, job.plan) == (tmp_path, 7, PLAN)
    other = plrvo.Plan.certify(plrvo.Laplace(3.0), PLAN.workload, PLAN.delta)
    other.save(tmp_path / "other.json")
    for words, said in (
        ({"learning_rate": 0.2}, "learning_rate=0.2: expected 0.3, as in the run"),
        ({"clip": 1.0}, "clip=1.0: expected no value, as in the run"),
        ({"task": "mnist"}, "task='mnist': expected digits, as in the run"),
        ({"plan": tmp_path / "other.json"}, "expected laplace, as in the run"),
    ):
        with pytest.raises(InvalidArgument) as refused:
            Job.resumed(tmp_path / "run", words)
        assert said in str(refused.value)


def change_record(folder, change, plan=None):
    tensors, record = _unpack(folder / CHECKPOINT)
    change(record["extra"])
    record["plan"] = record["plan"] if plan is None else plan
    (folder / CHECKPOINT).write_bytes(_pack(tensors, record))


def test_a_folder_of_an_older_version_needs_the_options_again(tmp_path):
    begun(tmp_path)
    change_record(tmp_path, lambda extra: extra.pop("job"))
    with pytest.raises(InvalidArgument, match="the options of the run as well"):
        Job.resumed(tmp_path, {"seed": 3})
    assert Job.resumed(tmp_path, SMALL.to_dict()).resolve(tmp_path, resume=True).train().receipt["complete"]


L1 = {"clipping": "l1", "grad_sample_mode": "hooks"}


@pytest.mark.parametrize(
    "job",
    [
        replace(SMALL, **L1),
        Job("digits", model="logistic", plan=plrvo.Plan.certify(PLAN.noise, PLAN.workload, 1e-5, clipping="l1"), **L1),
    ],
    ids=["fitted", "planned"],
)
def test_a_run_of_a_version_whose_plans_did_not_say_the_clipping_goes_on(tmp_path, job):
    begun(tmp_path, job, kill_at=3)
    before = job.resolve(tmp_path / "other").plan.to_dict(form=1)
    assert before["workload"]["dimension"] == 1
    words = job.to_dict() if job.plan is None else {**job.to_dict(), "plan": before}
    change_record(tmp_path, lambda extra: extra.update(job=words), before)
    trained = Job.resumed(tmp_path, {}).resolve(tmp_path, resume=True).train()
    assert trained.receipt["complete"]
    assert verify(tmp_path / RECEIPT) == []


@pytest.mark.parametrize("job", [{"task": "digits"}, {"epsilon": 1.0}, 7, {"task": "digits", "epsilon": "much"}])
def test_a_job_that_cannot_be_read_is_one_refusal(tmp_path, job):
    begun(tmp_path)
    change_record(tmp_path, lambda extra: extra.update(job=job))
    with pytest.raises(InvalidArgument, match="resume"):
        Job.resumed(tmp_path, {})


@pytest.mark.parametrize("more", [{}, {"plan": True}, {"correlation": "tree"}], ids=str)
def test_a_run_with_automatic_clipping_costs_what_a_flat_one_costs_and_verifies(tmp_path, more):
    own = {"task": "digits", "model": "logistic", "seed": 3}
    if "plan" in more:
        own["plan"] = plrvo.Plan.certify(PLAN.noise, PLAN.workload, 1e-5, clipping="automatic")
    elif "correlation" in more:
        own |= {"epsilon": 3.0, "noise": "gaussian", "clip": 0.5, "epochs": 1, "batch_size": 300, **more}
    else:
        own |= {"epsilon": 3.0, "noise": "gaussian", "clip": 0.5, "sample_rate": 0.1, "steps": 3}
    runs = [Job(**own, clipping="automatic").resolve(tmp_path / "automatic")]
    if "plan" not in more:
        runs += [Job(**own).resolve(tmp_path / "flat")]
        assert runs[0].plan.noise == runs[1].plan.noise
        assert runs[0].plan.bracket == runs[1].plan.bracket
    receipts = [run.train().receipt for run in runs]
    assert receipts[0]["run"]["clipping"] == receipts[0]["plan"]["clipping"] == "automatic"
    assert verify(tmp_path / "automatic" / RECEIPT) == []
    assert len({receipt["weights"]["sha256"] for receipt in receipts}) == len(runs)  # it is another training


def test_automatic_clipping_needs_a_clip_that_is_a_unit():
    with pytest.raises(InvalidArgument, match="clip=10001"):
        beforehand.check_beforehand(Job("digits", epsilon=1.0, clipping="automatic", clip=10_001.0))
    with pytest.raises(InvalidArgument, match="clipping='adaptive'"):
        Job("digits", epsilon=1.0, clipping="adaptive")


def test_a_receipt_does_not_say_where_the_data_lay(tmp_path):
    job = replace(SMALL, data_dir=tmp_path)
    trained = job.resolve(tmp_path / "run").train()
    assert "data_dir" not in trained.receipt["job"]
    assert Job.resumed(tmp_path / "run", {}).data_dir == tmp_path
