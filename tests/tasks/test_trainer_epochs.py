"""A private trainer has epochs: what a Trainer does at their ends it does there, on one stream of batches."""

import json
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file
from tests.tasks.test_trainer import Rows, arguments, optimizer_of, weights
from tests.tasks.text.tiny import bert
from tests.training.helpers import seeded
from transformers import EarlyStoppingCallback, TrainerCallback

import plrvo
from plrvo.audit.receipt import verify
from plrvo.tasks.trainer import PrivateTrainer
from plrvo.tasks.trainer_epochs import EpochLoader, Epochs
from plrvo.training.unwrap import trained_parameters

SHARE, STEPS, ENDS = 0.4, 8, [3, 5, 8]  # two steps and a half in an epoch
BY_EPOCH = {"eval_strategy": "epoch", "save_strategy": "epoch", "logging_strategy": "epoch"}


@given(size=st.integers(1, 10_000), batch=st.integers(1, 200), epochs=st.integers(1, 60))
def test_so_many_epochs_are_so_many_and_their_steps_are_all_steps(size, batch, epochs):
    share = min(1.0, batch / size)
    steps = math.ceil(epochs / share - 1e-9)  # as the plan has them
    cut = Epochs(share, steps)
    assert len(cut.ends) == epochs
    assert cut.ends[-1] == steps
    lengths = [b - a for a, b in zip([0, *cut.ends], cut.ends, strict=False)]
    assert max(lengths) == cut.longest <= min(lengths) + 1
    assert [cut.passed(end) for end in cut.ends] == list(range(1, epochs + 1))
    assert [cut.left(0), *map(cut.left, cut.ends)] == [*lengths, 0]


def test_an_epoch_is_what_a_trainer_has_of_whole_batches():
    assert Epochs(32 / 600, 57).ends == [19, 38, 57]
    assert Epochs(0.25, 6).ends == [4, 6]
    assert Epochs(0.25, 6).passed(6) == 1.5


def test_a_pass_takes_from_the_loader_no_more_than_its_epoch_has():
    stream, taken = iter(range(STEPS)), 4  # resumed in the middle of the second epoch
    loader = EpochLoader(stream, Epochs(SHARE, STEPS), lambda: taken)
    assert len(loader) == 3
    assert list(loader) == [0]
    taken = 5
    assert list(loader) == [1, 2, 3]
    taken = STEPS
    assert list(loader) == []
    assert next(stream) == 4


class Stop(TrainerCallback):
    """After a step, as a user would who has seen enough."""

    def __init__(self, step):
        self.step = step

    def on_step_end(self, args, state, control, **kwargs):
        assert state.epoch == Epochs(SHARE, STEPS).passed(state.global_step)
        control.should_training_stop |= state.global_step == self.step


def made(folder, module, callbacks=(), scores=None, **changes):
    work = plrvo.Workload(sample_rate=SHARE, steps=STEPS, clip=1.0, dimension=trained_parameters(module))
    return PrivateTrainer(
        module,
        arguments(folder, **changes),
        plan=plrvo.Plan.certify(plrvo.Gaussian(2.0), work, 1e-3),
        train_dataset=Rows(),
        eval_dataset=Rows(),
        grad_sample_mode="hooks",
        noise_generator=seeded(1),
        sample_generator=seeded(2),
        optimizers=(optimizer_of(module), None),
        callbacks=list(callbacks),
        compute_metrics=None if scores is None else lambda _: {"score": next(scores)},
    )


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The weights of a run that nothing interrupts, and that knows of no epochs."""
    module = bert("head")
    made(tmp_path_factory.mktemp("whole"), module).train()
    return weights(module)


def checkpoints(folder):
    return sorted(int(path.name.split("-")[1]) for path in folder.glob("checkpoint-*"))


def test_evaluation_saving_and_logs_come_at_the_end_of_each_epoch(tmp_path, whole):
    module = bert("head")
    trainer = made(tmp_path, module, **BY_EPOCH)
    trainer.train()
    tested = [row for row in trainer.state.log_history if "eval_loss" in row]
    assert [(row["step"], row["epoch"]) for row in tested] == [(3, 1.0), (5, 2.0), (8, 3.0)]
    assert [row["step"] for row in trainer.state.log_history if "learning_rate" in row] == ENDS
    assert all("epsilon_certified" in row for row in trainer.state.log_history)
    assert checkpoints(tmp_path) == ENDS
    assert trainer.state.num_train_epochs == 3
    assert torch.equal(weights(module), whole)  # the same batches, as one stream


@pytest.mark.parametrize("step", [4, 5])
def test_a_run_resumed_in_and_between_epochs_is_the_one_that_was_not_interrupted(tmp_path, whole, step):
    stopped = made(tmp_path, bert("head"), [Stop(step)], **BY_EPOCH)
    assert stopped.train().global_step == step
    assert checkpoints(tmp_path) == [3, step]
    module = bert("head")
    resumed = made(tmp_path, module, **BY_EPOCH)
    assert resumed.train(resume_from_checkpoint=True).global_step == STEPS
    assert torch.equal(weights(module), whole)
    tested = [(row["step"], row["epoch"]) for row in resumed.state.log_history if "eval_loss" in row]
    due = [(3, 1.0), (5, 2.0), (8, 3.0)]
    assert tested == sorted({*due, (step, Epochs(SHARE, STEPS).passed(step))})
    assert verify(tmp_path / "receipt.json") == []


def test_a_finished_run_that_is_resumed_takes_no_step(tmp_path, whole):
    made(tmp_path, bert("head"), **BY_EPOCH).train()
    module = bert("head")
    assert made(tmp_path, module, **BY_EPOCH).train(resume_from_checkpoint=True).global_step == STEPS
    assert torch.equal(weights(module), whole)
    assert verify(tmp_path / "receipt.json") == []


def test_early_stopping_leaves_the_best_weights_and_a_certificate_of_the_steps_taken(tmp_path, whole):
    choosing = {"load_best_model_at_end": True, "metric_for_best_model": "score", "greater_is_better": True}
    module, patience = bert("head"), EarlyStoppingCallback(early_stopping_patience=1)
    trainer = made(tmp_path, module, [patience], scores=iter([0.5, 0.25]), **BY_EPOCH, **choosing)
    assert trainer.train().global_step == 5
    best, last = (load_file(tmp_path / f"checkpoint-{step}" / "model.safetensors") for step in (3, 5))
    assert torch.equal(module.classifier.weight, best["classifier.weight"])
    assert not torch.equal(module.classifier.weight, last["classifier.weight"])
    receipt = json.loads((tmp_path / "receipt.json").read_text())
    assert (receipt["steps"], receipt["complete"], receipt["run"]["weights_of_step"]) == (5, False, 3)
    assert receipt["run"]["metrics"]["score"] == 0.5
    assert [row["score"] for row in receipt["run"]["history"]] == [0.5, 0.25]
    assert receipt["epsilon"]["certified"] == trainer.engine.plan.ledger(5).epsilon(1e-3).certified
    assert verify(tmp_path / "receipt.json") == []
    again = bert("head")  # what was saved last is what a run goes on from, not the best
    made(tmp_path, again, **BY_EPOCH).train(resume_from_checkpoint=True)
    assert torch.equal(weights(again), whole)


def test_no_more_checkpoints_are_kept_than_were_asked_for(tmp_path):
    made(tmp_path, bert("head"), **BY_EPOCH, save_total_limit=1).train()
    assert checkpoints(tmp_path) == [STEPS]
