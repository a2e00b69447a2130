"""A task trained with a plan or without one: what is refused before any work, what is written, and who may go on."""

from dataclasses import replace

import pytest
import torch
from torch import nn

import plrvo
from plrvo.audit.receipt import verify
from plrvo.files import locked
from plrvo.records.folder import CHECKPOINT, JOURNAL, LOCK, METRICS, RECEIPT, WEIGHTS
from plrvo.records.history import read_history
from plrvo.tasks.choices import SCHEDULES, check_folder
from plrvo.tasks.experiment import run_plain, run_private
from plrvo.tasks.preset import InMemory, Task
from plrvo.tasks.settings import OPTIMIZERS, Settings, Streams, build_optimizer, read_job
from plrvo.validate import InvalidArgument

SIZE = 60
WORK = plrvo.Workload(sample_rate=0.2, steps=5, clip=1.0, dimension=10)
PLAN = plrvo.Plan.certify(plrvo.Laplace(2.0), WORK, 1e-3)


def task(**changes) -> Task:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(SIZE, 4, generator=generator)
    y = (x[:, 0] > 0).long()

    def evaluate(module):
        with torch.no_grad():
            return {"loss": float(nn.functional.cross_entropy(module(x), y))}

    description = {"name": "toy", "model": "linear", "examples": SIZE, "data_source": "memory"}
    toy = Task(InMemory(x, y), SIZE, evaluate, description, nn.CrossEntropyLoss(), metric="loss")
    return replace(toy, **changes)


def model() -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return nn.Linear(4, 2)


def private(folder, plan=PLAN, of=None, seed=3, **settings):
    how = Settings(folder, 0.1, evaluate_every=2, checkpoint_every=2, seed=seed, **settings)
    return run_private(of or task(), model(), plan, how, Streams.from_seed(seed))


def test_a_private_run_leaves_all_its_files_and_a_receipt_that_verifies(tmp_path):
    receipt = private(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {CHECKPOINT, WEIGHTS, METRICS, JOURNAL, RECEIPT}
    assert (receipt["steps"], receipt["complete"], receipt["job"]) == (5, True, None)  # nobody asked by a job
    assert [row["step"] for row in read_history(tmp_path / METRICS)] == [2, 4, 5]
    assert verify(tmp_path / RECEIPT) == []


def test_a_run_without_privacy_leaves_weights_and_metrics_and_nothing_that_claims(tmp_path):
    history = run_plain(task(), model(), WORK, Settings(tmp_path, 0.5, evaluate_every=2), Streams.from_seed(3))
    assert {path.name for path in tmp_path.iterdir()} == {WEIGHTS, METRICS}
    assert history == read_history(tmp_path / METRICS)
    assert history[-1]["step"] == 5
    assert "epsilon_certified" not in history[-1]


class Watched(InMemory):
    """Remembers which batches were drawn."""

    def __init__(self, *tensors):
        super().__init__(*tensors)
        self.drawn = []

    def __getitems__(self, indices):
        self.drawn.append(tuple(indices))
        return super().__getitems__(indices)


def test_a_run_without_privacy_sees_the_batches_of_the_private_run(tmp_path):
    plain, noisy = (Watched(*task().data.tensors) for _ in range(2))
    run_plain(task(data=plain), model(), WORK, Settings(tmp_path / "plain", 0.1), Streams.from_seed(3))
    private(tmp_path / "private", of=task(data=noisy))
    assert len(plain.drawn) == 5
    drawn = iter(noisy.drawn)  # the engine tries the model out before, and asks for single examples between batches
    assert all(batch in drawn for batch in plain.drawn)


@pytest.mark.parametrize("seed", [0, 7])
def test_streams_of_a_seed_repeat_and_differ_from_each_other(seed):
    one, again, other = Streams.from_seed(seed), Streams.from_seed(seed), Streams.from_seed(seed + 1)
    assert one.weights.initial_seed() == again.weights.initial_seed() != other.weights.initial_seed()
    draws = [stream.words(8).tolist() for stream in (one.batches, one.noise, again.noise, other.noise)]
    assert draws[1] == draws[2]
    assert len({tuple(draw) for draw in draws}) == 3


def test_unseeded_streams_never_repeat():
    one, other = Streams.from_seed(None), Streams.from_seed(None)
    assert one.weights.initial_seed() != other.weights.initial_seed()
    assert one.noise.words(8).tolist() != other.noise.words(8).tolist()


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_optimizer_has_the_settings_and_only_what_is_trained(tmp_path, name):
    module = model()
    module.bias.requires_grad_(False)
    settings = Settings(tmp_path, 0.3, name, momentum=0.4, weight_decay=0.1)
    (group,) = build_optimizer(name, module, settings).param_groups
    assert (group["lr"], group["weight_decay"]) == (0.3, 0.1)
    assert [id(p) for p in group["params"]] == [id(module.weight)]
    assert group.get("momentum") == (0.4 if name == "sgd" else None)
    assert group["fused"]  # in one pass over memory, which torch does not choose by itself on processors


def test_what_would_fail_later_is_refused_before_anything_is_written(tmp_path):
    out = tmp_path / "run"
    infinite = replace(PLAN, noise=plrvo.Gaussian(1e-200))
    for attempt, said in (
        (lambda: private(out, replace(PLAN, delta=1 / SIZE)), "delta"),
        (lambda: private(out, infinite), "noise"),
        (lambda: private(out, optimizer="magic"), "optimizer"),
        (lambda: private(out, schedule="sometimes"), "schedule"),
        (lambda: private(out, resume=True), "resume"),
        (lambda: run_plain(task(), model(), WORK, Settings(out, 0.1, "magic"), Streams.from_seed(1)), "optimizer"),
    ):
        with pytest.raises(InvalidArgument) as refused:
            attempt()
        assert refused.value.argument == said
        assert not out.exists()


@pytest.mark.parametrize("name", [CHECKPOINT, WEIGHTS, RECEIPT, JOURNAL])
def test_a_folder_with_a_file_of_another_run_takes_none(tmp_path, name):
    (tmp_path / name).write_bytes(b"of another run")
    with pytest.raises(InvalidArgument, match="this one holds a run"):
        check_folder(tmp_path, resume=False)
    if name != CHECKPOINT:
        with pytest.raises(InvalidArgument, match=f"a folder that holds {CHECKPOINT}"):
            check_folder(tmp_path, resume=True)


def test_nobody_else_works_on_the_folder_meanwhile(tmp_path):
    with locked(tmp_path / LOCK, "out"), pytest.raises(InvalidArgument, match="no other process"):
        private(tmp_path)
    with locked(tmp_path / LOCK, "out"), pytest.raises(InvalidArgument, match="no other process"):
        run_plain(task(), model(), WORK, Settings(tmp_path, 0.1), Streams.from_seed(1))


def test_data_may_have_moved_when_a_run_goes_on_and_must_be_the_same(tmp_path):
    private(tmp_path, job={"task": "toy", "data_dir": "here"})
    known = task().description
    private(tmp_path, of=task(description={**known, "data_source": "elsewhere"}), resume=True)
    with pytest.raises(InvalidArgument) as refused:
        private(tmp_path, of=task(description={**known, "examples": SIZE + 1}), resume=True)
    assert refused.value.argument == "task"


def test_what_was_asked_for_is_kept_in_the_folder(tmp_path):
    job = {"task": "toy", "model": "linear", "seed": 3, "data_dir": "here"}
    receipt = private(tmp_path / "a", job=job)
    assert read_job(tmp_path / "a") == job
    assert receipt["job"] == {name: value for name, value in job.items() if name != "data_dir"}
    private(tmp_path / "b")
    assert read_job(tmp_path / "b") is None
    with pytest.raises(InvalidArgument, match="resume"):
        read_job(tmp_path)


def test_schedules_fall_to_zero_or_rise_and_every_step_has_a_rate(tmp_path):
    def rates(schedule: str) -> list[float]:
        rate = Settings(tmp_path, learning_rate=2.0, schedule=schedule).rate_at(20)
        return [rate(step) for step in range(20)]

    assert rates("constant") == [2.0] * 20
    assert rates("linear") == pytest.approx([2 - step / 10 for step in range(20)])
    cosine = rates("cosine")
    assert (cosine[0], cosine[10]) == (2.0, pytest.approx(1.0))
    assert cosine == sorted(cosine, reverse=True)
    assert rates("warmup") == [1.0] + [2.0] * 19
    assert all(rate > 0 for schedule in SCHEDULES for rate in rates(schedule))
