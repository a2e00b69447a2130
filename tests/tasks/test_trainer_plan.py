"""A budget is all that a private trainer has to be told: the rest is in the arguments that a Trainer has anyway."""

import math

import pytest
from tests.tasks.test_trainer import SIZE, Rows, arguments, plan
from tests.tasks.text.tiny import bert

import plrvo
from plrvo.audit.receipt import verify
from plrvo.tasks.trainer import PrivateTrainer
from plrvo.training.unwrap import trained_parameters
from plrvo.validate import InvalidArgument


def made(folder, changes=(), **keywords):
    return PrivateTrainer(bert("head"), arguments(folder, **dict(changes)), train_dataset=Rows(), **keywords)


def test_one_argument_trains_within_a_budget(tmp_path):
    trainer = made(tmp_path, {"num_train_epochs": 2, "max_grad_norm": 0.5}, target_epsilon=8.0)
    planned = trainer.engine.plan
    assert planned.workload == plrvo.Workload(4 / SIZE, 12, 0.5, trained_parameters(trainer.model))
    assert planned.noise.kind == "gaussian"
    assert (planned.epsilon, planned.delta) == (8.0, 1 / (2 * SIZE))
    assert trainer.train().global_step == 12
    assert 7.9 < trainer.engine.get_epsilon(1 / (2 * SIZE)) <= 8
    assert verify(tmp_path / "receipt.json") == []


@pytest.mark.parametrize(
    ("changes", "rate", "steps"),
    [
        ({"gradient_accumulation_steps": 3}, 12 / SIZE, 6),
        ({"max_steps": 5}, 4 / SIZE, 5),
        ({"num_train_epochs": 0.1}, 4 / SIZE, 1),
        ({"per_device_train_batch_size": 100}, 1.0, 3),
    ],
)
def test_batches_and_steps_are_those_of_a_trainer(tmp_path, changes, rate, steps):
    trainer = made(tmp_path, changes, target_epsilon=5.0, target_delta=1e-3, noise="laplace")
    work, args = trainer.engine.plan.workload, trainer.args
    assert (work.sample_rate, work.steps) == (pytest.approx(rate), steps)
    assert (args.max_steps, args.gradient_accumulation_steps) == (steps, 1)
    assert args.per_device_train_batch_size == changes.get("per_device_train_batch_size", 4)
    assert trainer.engine.plan.noise.kind == "laplace"
    assert trainer.engine.plan.delta == 1e-3


@pytest.mark.parametrize(
    ("name", "changes", "keywords"),
    [
        ("target_epsilon", {}, {"target_delta": 1e-3}),
        ("target_epsilon", {}, {"plan": plan(bert("head")), "target_epsilon": 3.0}),
        ("noise", {}, {"plan": plan(bert("head")), "noise": "laplace"}),
        ("epsilon", {}, {"target_epsilon": -1.0}),
        ("max_grad_norm", {"max_grad_norm": 0.0}, {"target_epsilon": 3.0}),
        ("delta", {}, {"target_epsilon": 3.0, "target_delta": 2.0}),
        ("noise", {}, {"target_epsilon": 3.0, "noise": "pink"}),
        ("max_grad_norm", {"max_grad_norm": math.nan}, {"target_epsilon": 3.0}),
    ],
)
def test_what_cannot_be_meant_is_named(tmp_path, name, changes, keywords):
    with pytest.raises(InvalidArgument, match=f"^{name}="):
        made(tmp_path, changes, **keywords)


def test_examples_are_needed_to_know_how_often_one_is_drawn(tmp_path):
    with pytest.raises(InvalidArgument, match=r"^train_dataset=None"):
        PrivateTrainer(bert("head"), arguments(tmp_path), target_epsilon=3.0)
