"""Whatever becomes of a private trainer's run: no step of which something was seen is left out of its receipt."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.tasks.test_trainer import STEPS, Rows, arguments, optimizer_of, plan, weights
from tests.tasks.test_trainer_refusals import made
from tests.tasks.text.tiny import bert
from transformers import TrainerCallback

import plrvo
from plrvo.accounting.correlated import Correlation, Participation, Tree
from plrvo.audit.receipt import verify
from plrvo.budget import Account
from plrvo.records import Receipt
from plrvo.records.journal import Journal
from plrvo.tasks.trainer import PrivateTrainer
from plrvo.training.unwrap import trained_parameters
from plrvo.validate import InvalidArgument

SAVING = {"save_strategy": "steps", "save_steps": 2}
TESTED = {**SAVING, "eval_strategy": "steps", "eval_steps": 1}


class Killed(TrainerCallback):
    """A crash after a step was shown, before the next is saved."""

    def __init__(self, step):
        self.step, self.seen = step, []

    def on_evaluate(self, args, state, control, metrics, **kwargs):
        self.seen.append((state.global_step, metrics["eval_loss"]))
        if state.global_step == self.step:
            raise KeyboardInterrupt


def unseeded(folder, module=None, settings=None, given=None, **keywords):
    module = bert("head") if module is None else module
    given = given or plan(module, plrvo.Gaussian(2.0))
    return PrivateTrainer(
        module,
        arguments(folder, **settings or {}),
        plan=given,
        train_dataset=Rows(),
        eval_dataset=Rows(),
        optimizers=(optimizer_of(module), None),
        grad_sample_mode="hooks",
        **keywords,
    )


def plain_rows():
    """Examples in a list: no code of their own runs in a step."""
    return [Rows()[index] for index in range(len(Rows()))]


def killed_after(step, trainer, resume=None):
    kill = Killed(step)
    trainer.add_callback(kill)
    with pytest.raises(KeyboardInterrupt):
        trainer.train(resume_from_checkpoint=resume)
    return kill.seen


def receipt_in(folder):
    return json.loads((folder / "receipt.json").read_text())


def test_steps_that_were_shown_before_a_crash_are_counted(tmp_path):
    seen = killed_after(3, unseeded(tmp_path, settings=TESTED))
    with pytest.warns(UserWarning, match="1 step was released after the checkpoint"):
        seen += killed_after(5, unseeded(tmp_path, settings=TESTED), True)
    trainer = unseeded(tmp_path, settings=TESTED)
    with pytest.warns(UserWarning, match="1 step was released after the checkpoint"):
        trainer.train(resume_from_checkpoint=True)
    seen += [
        (row["step"], row["eval_loss"]) for row in trainer.state.log_history if row["step"] > 5 and "eval_loss" in row
    ]
    assert [step for step, _ in seen] == [1, 2, 3, 4, 5, 6]
    assert receipt_in(tmp_path)["steps"] == STEPS == len(trainer.engine.accountant)
    assert trainer.get_learning_rates()[0] == 0.0  # the schedule has all steps
    assert verify(tmp_path / "receipt.json") == []


def test_steps_that_nobody_saw_are_taken_again(tmp_path):
    class Off(TrainerCallback):
        """What a machine does that loses its power in a step: no handler runs."""

        def on_save(self, args, state, control, **kwargs):
            trainer._leave = lambda: None
            raise KeyboardInterrupt

    trainer = unseeded(tmp_path, settings=SAVING, callbacks=[Off()])
    with pytest.raises(KeyboardInterrupt):
        trainer.train()
    assert Journal.open(tmp_path / "journal.jsonl").steps == 2
    again = unseeded(tmp_path, settings=SAVING)
    again.train_dataset = plain_rows()
    assert again.train(resume_from_checkpoint=True).global_step == STEPS
    assert list(Journal.open(tmp_path / "journal.jsonl").weights_at) == [1, 2, 4, 6]  # the callback could see the first


def test_a_callback_that_is_given_the_model_has_seen_it(tmp_path):
    class Looks(TrainerCallback):
        def on_step_end(self, args, state, control, model=None, **kwargs):
            assert Journal.open(tmp_path / "journal.jsonl").steps == state.global_step  # before it looks
            if state.global_step == 3:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        unseeded(tmp_path, settings=SAVING, callbacks=[Looks()]).train()
    assert list(Journal.open(tmp_path / "journal.jsonl").weights_at) == [1, 2, 3]


def test_an_interrupted_trainer_leaves_its_model_to_be_looked_at(tmp_path):
    trainer = unseeded(tmp_path, settings=SAVING)
    collate = trainer.data_collator

    def interrupted(rows):
        if trainer._noisy is not None and trainer._noisy.steps_taken == 3:
            raise KeyboardInterrupt
        return collate(rows)

    trainer.data_collator = interrupted
    with pytest.raises(KeyboardInterrupt):
        trainer.train()
    journal = Journal.open(tmp_path / "journal.jsonl")
    assert list(journal.weights_at) == [1, 2, 3]
    assert journal.weights_at[3] == trainer._digest()


def test_a_seeded_run_takes_shown_steps_again_bit_by_bit_and_shows_nothing_else(tmp_path):
    whole = bert("head")
    settings = {**TESTED, "eval_steps": 3}
    made(tmp_path / "whole", whole, settings=settings, eval_dataset=Rows()).train()
    seen = killed_after(3, made(tmp_path / "run", settings=settings, eval_dataset=Rows()))
    module = bert("head")
    trainer = made(tmp_path / "run", module, settings=settings, eval_dataset=Rows())
    trainer.train(resume_from_checkpoint=True)
    again = [(row["step"], row["eval_loss"]) for row in trainer.state.log_history if "eval_loss" in row]
    assert again[0] == seen[0]
    assert torch.equal(weights(module), weights(whole))
    assert verify(tmp_path / "run" / "receipt.json") == []


def test_a_seeded_run_that_comes_to_other_weights_is_refused_before_they_are_shown(tmp_path):
    killed_after(3, made(tmp_path, settings=TESTED, eval_dataset=Rows()))
    other = made(tmp_path, settings=TESTED, eval_dataset=Rows(), callbacks=[look := Killed(None)])
    other._backward, own = lambda *args: (own(*args), other.model.classifier.bias.data.add_(1e-3)), other._backward
    with (
        pytest.raises(InvalidArgument, match="step 3 has been released with other weights"),
        pytest.warns(UserWarning, match="weights of step 3 were erased.*no repetition"),
    ):
        other.train(resume_from_checkpoint=True)
    assert look.seen == []
    assert weights(other.model).isnan().any()  # nor by whoever has the trainer


def correlated(module):
    work = plrvo.Workload(sample_rate=1.0, steps=STEPS, clip=1.0, dimension=trained_parameters(module))
    visits = Correlation(Tree(), Participation(steps_per_epoch=3, epochs=2))
    return plrvo.Plan.certify(plrvo.Laplace(2.0), work, 1e-3, None, visits)


def test_correlated_noise_is_the_same_again(tmp_path):
    given = correlated(bert("head"))
    seen = killed_after(3, unseeded(tmp_path, settings=TESTED, given=given))
    trainer = unseeded(tmp_path, settings=TESTED, given=given)
    trainer.train(resume_from_checkpoint=True)
    assert [row["eval_loss"] for row in trainer.state.log_history if "eval_loss" in row][2] == seen[2][1]
    assert verify(tmp_path / "receipt.json") == []


def test_a_journal_that_has_lost_something_is_refused(tmp_path):
    killed_after(3, unseeded(tmp_path, settings=TESTED))
    (tmp_path / "journal.jsonl").unlink()
    with pytest.raises(InvalidArgument, match="the journal of this run, with its first 4 releases"):
        unseeded(tmp_path, settings=TESTED).train(resume_from_checkpoint=True)


def test_a_receipt_that_is_older_than_what_was_shown_does_not_verify(tmp_path):
    unseeded(tmp_path, settings=TESTED).train()
    assert verify(tmp_path / "receipt.json") == []
    assert Journal.open(tmp_path / "journal.jsonl").permits(STEPS + 1, True, lambda: "0" * 64)
    assert any("resume the run" in line for line in verify(tmp_path / "receipt.json"))


def test_a_resumed_run_goes_on_with_its_charge(tmp_path):
    account = Account.create(tmp_path / "a.budget", name="a", epsilon=40.0, delta=1e-3)
    first = unseeded(tmp_path / "run", settings=TESTED, budget=account)
    killed_after(3, first)
    assert (account.state().entry(1).released, account.state().entry(1).charged) == (3, STEPS)
    with pytest.raises(InvalidArgument, match="budget=None: expected the account of the run"):
        unseeded(tmp_path / "run", settings=TESTED).train(resume_from_checkpoint=True)
    again = unseeded(tmp_path / "run", settings=TESTED, budget=account)
    with pytest.warns(UserWarning, match="released after the checkpoint"):
        again.train(resume_from_checkpoint=True)
    assert [entry.settled for entry in account.state().entries] == [STEPS]
    assert verify(tmp_path / "run" / "receipt.json", budget=account.path) == []


def choosing(folder, module, then, **keywords):
    """A run whose second test is the best; `then` is called before the last step."""
    scores = iter([0.1, 0.9, 0.2])
    best = {"load_best_model_at_end": True, "metric_for_best_model": "score", "greater_is_better": True}

    class Meanwhile(TrainerCallback):
        def on_step_begin(self, args, state, control, **kwargs):
            if state.global_step == STEPS - 1:
                then(folder / "checkpoint-4")

    settings = {**SAVING, "eval_strategy": "steps", "eval_steps": 2, **best}
    metrics = {"compute_metrics": lambda _: {"score": next(scores)}}
    return unseeded(folder, module, settings, callbacks=[Meanwhile()], **metrics, **keywords)


def test_the_best_weights_are_those_of_the_step_that_the_receipt_names(tmp_path):
    module = bert("head")
    choosing(tmp_path, module, lambda checkpoint: None).train()
    receipt = receipt_in(tmp_path)
    assert receipt["run"]["weights_of_step"] == 4
    assert receipt["run"]["metrics"]["score"] == 0.9
    assert torch.equal(
        load_file(tmp_path / "checkpoint-4/model.safetensors")["classifier.bias"], module.classifier.bias
    )
    assert verify(tmp_path / "receipt.json") == []
    for other in (2, 3, "4"):
        parts = {name: part for name, part in receipt.items() if name not in ("receipt", "digest")}
        parts["run"] = {**receipt["run"], "weights_of_step": other}
        Receipt.signed(parts).write(tmp_path / "receipt.json")
        assert any("not those of step" in line for line in verify(tmp_path / "receipt.json"))


def test_where_the_best_checkpoint_is_gone_the_receipt_says_that_the_last_weights_are_there(tmp_path):
    module = bert("head")
    with pytest.warns(UserWarning, match="no weights of the best step 4 were found"):
        choosing(tmp_path, module, shutil.rmtree).train()
    assert "weights_of_step" not in receipt_in(tmp_path)["run"]
    assert receipt_in(tmp_path)["run"]["metrics"]["step"] == STEPS
    assert torch.equal(
        load_file(tmp_path / "checkpoint-6/model.safetensors")["classifier.bias"], module.classifier.bias
    )
    assert verify(tmp_path / "receipt.json") == []


def test_weights_that_were_put_in_the_place_of_the_best_are_refused(tmp_path):
    def others(checkpoint):
        path = checkpoint / "model.safetensors"
        save_file({name: tensor + 1 for name, tensor in load_file(path).items()}, path, {"format": "pt"})

    with pytest.raises(InvalidArgument, match=r"load_best_model_at_end=.*the weights of step 4, as they were shown"):
        choosing(tmp_path, bert("head"), others).train()
    assert not (tmp_path / "receipt.json").exists()


def test_a_run_that_was_stopped_stays_charged_until_it_is_resumed_or_settled(tmp_path):
    account = Account.create(tmp_path / "a.budget", name="a", epsilon=40.0, delta=1e-3)

    class Stop(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            control.should_training_stop = state.global_step == self.step

    for step, settled in ((3, None), (5, 5)):
        stop = Stop()
        stop.step = step
        trainer = unseeded(tmp_path / "run", settings=SAVING, budget=account, callbacks=[stop])
        trainer.train(resume_from_checkpoint=step > 3)
        if settled is not None:
            trainer.engine.settle()
        entry = account.state().entry(1)
        assert (entry.released, entry.settled, entry.charged) == (step, settled, settled or STEPS)
        assert verify(tmp_path / "run" / "receipt.json", budget=account.path) == []
    with pytest.raises(InvalidArgument, match="a run that is not settled: this one has ended"):
        unseeded(tmp_path / "run", settings=SAVING, budget=account).train(resume_from_checkpoint=True)
    assert len(account.state().entries) == 1
