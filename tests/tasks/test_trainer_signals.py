"""Ctrl-C, once or twice, and a full disk: nobody is left with weights that the journal does not have."""

import errno
import os
import signal
import threading

import pytest
import torch
from safetensors.torch import load_file
from tests.tasks.test_trainer import STEPS, weights
from tests.tasks.test_trainer_kept import SAVING, TESTED, correlated, killed_after, receipt_in, unseeded
from tests.tasks.test_trainer_refusals import made
from tests.tasks.text.tiny import bert
from transformers import TrainerCallback

from plrvo.audit.receipt import verify
from plrvo.records.journal import Journal
from plrvo.tasks.trainer_kept import KeptTrainer
from plrvo.tasks.trainer_signals import Signals
from plrvo.validate import InvalidArgument


@pytest.fixture(autouse=True)
def heard():
    """Whoever starts the tests in the background has them ignore Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def interrupt():
    os.kill(os.getpid(), signal.SIGINT)


def stepping(optimizer, at, then):
    """Calls `then` within the step of that number, when a part of the weights has moved."""
    step, count = type(optimizer).step, 0

    class Interrupted(type(optimizer)):
        def step(self, closure=None):
            nonlocal count
            count += 1
            first = self.param_groups[0]["params"][0]
            before = first.detach().clone()
            step(self, closure)
            if count == at:
                after = first.detach().clone()
                first.data.copy_(before)
                then()
                first.data.copy_(after)

    optimizer.__class__ = Interrupted


def of_kind(kind, folder, module, settings=SAVING, **keywords):
    if kind == "seeded":
        return made(folder, module, settings=settings, **keywords)
    given = correlated(module) if kind == "correlated" else None
    return unseeded(folder, module, settings, given, **keywords)


def shown(folder):
    return list(Journal.open(folder / "journal.jsonl").weights_at)


@pytest.mark.parametrize("kind", ["fresh", "seeded", "correlated"])
def test_ctrl_c_within_a_step_waits_for_its_end(tmp_path, kind):
    trainer = of_kind(kind, tmp_path, bert("head"))
    stepping(trainer.optimizer, 3, interrupt)
    with pytest.raises(KeyboardInterrupt):
        trainer.train()
    assert shown(tmp_path) == ([1, 2, 3] if kind == "fresh" else [2, 3])
    again = of_kind(kind, tmp_path, bert("head"))
    if kind == "fresh":
        with pytest.warns(UserWarning, match="1 step was released after the checkpoint"):
            again.train(resume_from_checkpoint=True)
    else:
        again.train(resume_from_checkpoint=True)
    assert receipt_in(tmp_path)["steps"] == STEPS
    assert verify(tmp_path / "receipt.json") == []


def breaking():
    raise RuntimeError("no memory for the state")


@pytest.mark.parametrize("kind", ["seeded", "correlated"])
def test_half_a_step_of_noise_that_is_taken_again_is_erased(tmp_path, kind):
    trainer = of_kind(kind, tmp_path, module := bert("head"))
    stepping(trainer.optimizer, 3, breaking)
    with pytest.raises(RuntimeError, match="no memory"), pytest.warns(UserWarning, match="step 3 were erased.*its end"):
        trainer.train()
    assert shown(tmp_path) == [2]
    assert all(p.isnan().all() and p.grad is None for p in module.parameters() if p.requires_grad)
    with pytest.raises(InvalidArgument, match=r"model='erased weights': expected a new trainer"):
        trainer.save_model()
    of_kind(kind, tmp_path, bert("head")).train(resume_from_checkpoint=True)
    assert verify(tmp_path / "receipt.json") == []


def test_half_a_step_of_fresh_noise_is_counted(tmp_path):
    trainer = unseeded(tmp_path, settings=SAVING)
    stepping(trainer.optimizer, 3, breaking)
    with pytest.raises(RuntimeError, match="no memory"):
        trainer.train()
    assert shown(tmp_path) == [1, 2, 3]
    assert not weights(trainer.model).isnan().any()
    with pytest.warns(UserWarning, match="1 step was released after the checkpoint"):
        unseeded(tmp_path, settings=SAVING).train(resume_from_checkpoint=True)
    assert verify(tmp_path / "receipt.json") == []


def interrupting(trainer, at, then):
    """Between two steps, outside of all that is kept together: while a batch is collated."""
    collate, calls = trainer.data_collator, [then]

    def interrupted(rows):
        if trainer._noisy is not None and trainer._noisy.steps_taken == at and calls:
            calls.pop()()
        return collate(rows)

    trainer.data_collator = interrupted


def test_a_second_ctrl_c_does_not_lose_the_line_of_what_is_left(tmp_path, monkeypatch):
    trainer = unseeded(tmp_path, settings=SAVING)
    interrupting(trainer, 3, interrupt)
    append, leave = Journal._append, KeptTrainer._leave

    def slowly(self, step, weights):
        if step == 3:
            interrupt()
        append(self, step, weights)

    def impatient(self):
        interrupt()
        leave(self)

    monkeypatch.setattr(Journal, "_append", slowly)
    monkeypatch.setattr(KeptTrainer, "_leave", impatient)
    with pytest.raises(KeyboardInterrupt):
        trainer.train()
    assert shown(tmp_path) == [1, 2, 3]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert not weights(trainer.model).isnan().any()


@pytest.mark.parametrize("resume", [True, False])
def test_a_full_disk_leaves_no_weights_that_are_not_counted(tmp_path, monkeypatch, resume):
    trainer = made(tmp_path, settings=SAVING)  # fresh noise is counted before own code gets to it
    with monkeypatch.context() as patch:

        def full(self, step, digest):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))

        def fill():
            patch.setattr(Journal, "_append", full)
            interrupt()

        interrupting(trainer, 3, fill)
        with pytest.raises(KeyboardInterrupt), pytest.warns(UserWarning, match="step 3 were erased.*No space left"):
            trainer.train()
    assert shown(tmp_path) == [2]
    assert weights(trainer.model).isnan().any()
    if resume:
        assert made(tmp_path, settings=SAVING).train(resume_from_checkpoint=True).global_step == STEPS
        assert verify(tmp_path / "receipt.json") == []


def test_a_run_that_was_killed_in_its_last_evaluation_ends_with_the_weights_of_its_last_checkpoint(tmp_path):
    killed_after(STEPS, unseeded(tmp_path, settings=TESTED))
    trainer = unseeded(tmp_path, module := bert("head"), settings=TESTED)
    with pytest.warns(UserWarning, match="2 steps were released after the checkpoint"):
        assert trainer.train(resume_from_checkpoint=True).global_step == STEPS
    receipt = receipt_in(tmp_path)
    assert (receipt["steps"], receipt["complete"], receipt["run"]["weights_of_step"]) == (STEPS, True, 4)
    assert receipt["run"]["metrics"]["step"] == 4
    assert verify(tmp_path / "receipt.json") == []
    kept = load_file(tmp_path / "checkpoint-4/model.safetensors")["classifier.bias"]
    assert torch.equal(kept, module.classifier.bias)


def test_a_handler_of_ones_own_is_told_after_the_journal(tmp_path):
    found = []
    before = signal.signal(signal.SIGUSR1, lambda *_: found.append(shown(tmp_path)))
    try:
        trainer = unseeded(tmp_path, settings=SAVING)
        interrupting(trainer, 3, lambda: os.kill(os.getpid(), signal.SIGUSR1))
        trainer.train()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert found == [[1, 2, 3]]


def test_so_is_one_that_is_registered_meanwhile_and_calls_the_one_before(tmp_path):
    told, found = [], []

    class Registers(TrainerCallback):
        def on_train_begin(self, args, state, control, **kwargs):
            before = signal.signal(signal.SIGUSR1, lambda *_: (found.append(shown(tmp_path)), before(*_)))

    first = signal.signal(signal.SIGUSR1, lambda *_: told.append(shown(tmp_path)))
    try:
        trainer = unseeded(tmp_path, settings=SAVING, callbacks=[Registers()])
        stepping(trainer.optimizer, 3, lambda: (os.kill(os.getpid(), signal.SIGUSR1), found.append("in the step")))
        trainer.train()
    finally:
        signal.signal(signal.SIGUSR1, first)
    assert found == ["in the step", [1, 2, 3]]
    assert told == [[1, 2, 3]]


def test_who_catches_an_interruption_goes_on_and_can_be_interrupted_again(tmp_path):
    class Patient(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            try:
                interrupt()
            except KeyboardInterrupt:
                if state.global_step == 4:
                    raise

    trainer = unseeded(tmp_path, settings=SAVING, callbacks=[Patient()])
    with pytest.raises(KeyboardInterrupt):
        trainer.train()
    assert trainer.state.global_step == 4


def test_signals_wait_while_they_are_held_and_other_threads_have_none():
    heard = []
    before = signal.signal(signal.SIGUSR1, lambda *_: heard.append("told"))
    try:
        with Signals(lambda: heard.append("before")) as signals:
            with signals.held(), signals.held():
                os.kill(os.getpid(), signal.SIGUSR1)
                assert heard == []
            assert heard == ["before", "told"]
        other = threading.Thread(target=lambda: Signals(breaking).__enter__())
        other.start()
        other.join()
        os.kill(os.getpid(), signal.SIGUSR1)
        assert heard == ["before", "told", "told"]
    finally:
        signal.signal(signal.SIGUSR1, before)
