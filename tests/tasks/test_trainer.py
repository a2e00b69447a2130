"""A Hugging Face Trainer takes the steps of the plain loop, says nothing of private examples, and leaves a receipt."""

import json

import pytest
import torch
from tests.tasks.text.tiny import CLASSES, batch, bert
from tests.training.helpers import seeded
from torch.utils.data import DataLoader, Dataset
from transformers import TrainerCallback, TrainingArguments, default_data_collator

import plrvo
from plrvo.accounting.correlated import Correlation, Participation, Tree
from plrvo.audit.receipt import verify
from plrvo.budget import Account
from plrvo.tasks.trainer import PrivateTrainer
from plrvo.tasks.transformer import LogitsLoss
from plrvo.training import PrivacyEngine
from plrvo.training.loop import Run, train
from plrvo.training.unwrap import trained_parameters
from plrvo.validate import InvalidArgument

STEPS, RATE, SIZE = 6, 0.25, 24


class Rows(Dataset):
    """Examples as a Trainer knows them: dictionaries with their labels."""

    def __init__(self):
        self.inputs, self.labels = batch(tuple(3 + i % 7 for i in range(SIZE)))

    def __len__(self):
        return SIZE

    def __getitem__(self, index):
        return {name: value[index] for name, value in self.inputs.items()} | {"labels": self.labels[index]}


def plan(module, noise=None):
    work = plrvo.Workload(sample_rate=RATE, steps=STEPS, clip=1.0, dimension=trained_parameters(module))
    noise = noise or plrvo.calibrate(plrvo.Laplace(1.0), work, epsilon=20.0, delta=1e-3)
    return plrvo.Plan.certify(noise, work, 1e-3, 20.0)


def arguments(folder, **changes):
    settings = {"learning_rate": 0.01, "lr_scheduler_type": "linear", "per_device_train_batch_size": 4}
    settings |= {"report_to": "none", "save_strategy": "no", "logging_steps": 2, "disable_tqdm": True, "use_cpu": True}
    return TrainingArguments(output_dir=str(folder), **settings | changes)


def optimizer_of(module):
    return torch.optim.AdamW([p for p in module.parameters() if p.requires_grad], lr=0.01)


def trainer(module, folder, plan_, mode="auto", trackers=(), **changes):
    return PrivateTrainer(
        module,
        arguments(folder, **changes),
        plan=plan_,
        grad_sample_mode=mode,
        trackers=trackers,
        noise_generator=seeded(1),
        sample_generator=seeded(2),
        train_dataset=Rows(),
        eval_dataset=Rows(),
        optimizers=(optimizer_of(module), None),
    )


def by_the_loop(module, plan_, mode):
    def collate(rows):
        inputs = default_data_collator(rows)
        labels = inputs.pop("labels")
        return inputs, labels

    engine = PrivacyEngine(plan_)
    model, optimizer, *criterion, loader = engine.make_private(
        module=module,
        optimizer=optimizer_of(module),
        data_loader=DataLoader(Rows(), collate_fn=collate),
        criterion=LogitsLoss(),
        grad_sample_mode=mode,
        noise_generator=seeded(1),
        sample_generator=seeded(2),
        steps_per_epoch=STEPS,
    )
    run = Run(
        module=model,
        optimizer=optimizer,
        loader=loader,
        loss=criterion[0] if criterion else LogitsLoss(),
        evaluate=dict,
        epsilon=lambda: None,
        steps=STEPS,
        learning_rate=lambda step: 0.01 * (1 - step / STEPS),
    )
    train(run)
    return module


@pytest.mark.parametrize(("trainable", "mode"), [("all", "bookkeeping"), ("lora", "hooks"), ("bias", "ghost")])
def test_the_trainer_takes_the_same_steps_as_the_loop(tmp_path, trainable, mode):
    ours, other = bert(trainable), bert(trainable)
    plan_ = plan(ours)
    before = [p.clone() for p in ours.parameters()]
    trainer(ours, tmp_path, plan_, mode).train()
    by_the_loop(other, plan_, mode)
    for p, q in zip(ours.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-4, atol=2e-5)
    assert any(not p.equal(q) for p, q in zip(ours.parameters(), before, strict=True))


def test_a_receipt_lies_beside_the_weights_and_verifies(tmp_path):
    module = bert("head")
    done = trainer(module, tmp_path, plan(module), eval_strategy="steps", eval_steps=3).train()
    assert verify(tmp_path / "receipt.json") == []
    receipt = json.loads((tmp_path / "receipt.json").read_text())
    assert receipt["complete"]
    assert receipt["steps"] == STEPS == done.global_step
    assert receipt["epsilon"]["certified"] <= 20.0
    assert receipt["task"]["trainable_parameters"] == 16 * CLASSES + CLASSES
    assert receipt["run"]["metrics"].keys() == {"step", "loss"}
    assert [row["step"] for row in receipt["run"]["history"]] == [3, 6]
    assert receipt["run"]["schedule"] == "linear"


def test_adapters_of_peft_train_in_it_as_well(tmp_path):
    from peft import LoraConfig, get_peft_model
    from tests.tasks.text.tiny import config
    from transformers import BertForSequenceClassification

    module = get_peft_model(BertForSequenceClassification(config()), LoraConfig(task_type="SEQ_CLS", r=2))
    before = {name: p.clone() for name, p in module.named_parameters()}
    trainer(module, tmp_path, plan(module)).train()
    assert verify(tmp_path / "receipt.json") == []
    receipt = json.loads((tmp_path / "receipt.json").read_text())
    assert receipt["weights"]["file"] == "adapter_model.safetensors"
    for name, p in module.named_parameters():
        assert p.equal(before[name]) != p.requires_grad, name


def test_nothing_of_private_examples_is_logged_and_epsilon_is(tmp_path):
    module = bert("head")
    made = trainer(module, tmp_path, plan(module))
    done = made.train()
    history = made.state.log_history
    assert not any({"loss", "train_loss", "grad_norm"} & row.keys() for row in history)
    assert made.state.total_flos == 0
    spent = [row["epsilon_certified"] for row in history]
    assert spent == sorted(spent)
    assert spent[-1] <= 20.0
    assert history[-1]["epoch"] == pytest.approx(STEPS * RATE)  # passes over the data, on average
    assert done.training_loss is None  # not released, and no NaN, which would look like divergence
    assert "train_loss" not in done.metrics


def test_after_training_the_model_is_an_ordinary_one(tmp_path):
    module = bert("head")
    trainer(module, tmp_path, plan(module)).train()
    inputs, labels = batch()
    module(**inputs, labels=labels).loss.backward()
    assert module.classifier.weight.grad.abs().sum() > 0


def test_a_plan_is_spent_once(tmp_path):
    module = bert("head")
    made = trainer(module, tmp_path, plan(module))
    made.train()
    with pytest.raises(InvalidArgument, match="have been taken"):
        made.train()


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"gradient_accumulation_steps": 2}, "gradient_accumulation_steps=2"),
        ({"max_steps": 3}, "max_steps=3"),
        ({"label_smoothing_factor": 0.1}, "label_smoothing_factor=0.1"),
        ({"fp16": True}, "fp16"),
        ({"num_train_epochs": 2}, "num_train_epochs=2.*1.5, which is what the plan's 6 steps are"),
    ],
)
def test_arguments_that_would_break_the_account_are_refused(tmp_path, changes, named):
    module = bert("head")
    with pytest.raises(InvalidArgument, match=named):
        trainer(module, tmp_path, plan(module), **changes)


def test_epochs_that_agree_with_the_plan_are_taken(tmp_path):
    module = bert("head")
    assert trainer(module, tmp_path, plan(module), num_train_epochs=1.5).args.max_steps == STEPS


def weights(module):
    return torch.cat([p.detach().flatten() for p in module.parameters()])


def test_a_resumed_run_is_the_one_that_was_not_interrupted(tmp_path):
    whole, first, second = bert("head"), bert("head"), bert("head")
    plan_ = plan(whole)
    saving = {"save_strategy": "steps", "save_steps": 2}
    trainer(whole, tmp_path / "whole", plan_).train()

    class Stop(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            control.should_training_stop = state.global_step == 3

    stopped = trainer(first, tmp_path / "run", plan_, **saving)
    stopped.add_callback(Stop())
    assert stopped.train().global_step == 3
    assert not json.loads((tmp_path / "run" / "receipt.json").read_text())["complete"]
    assert (tmp_path / "run" / "checkpoint-2" / "private.safetensors").stat().st_mode & 0o077 == 0  # it is secret
    with pytest.raises(InvalidArgument, match=r"the state after step 3.*in no ledger"):
        trainer(bert("head"), tmp_path / "run", plan_).train(resume_from_checkpoint=str(tmp_path / "run/checkpoint-2"))
    resumed = trainer(second, tmp_path / "run", plan_, **saving)
    done = resumed.train(resume_from_checkpoint=True)
    assert done.global_step == STEPS == len(resumed.engine.accountant)
    assert torch.equal(weights(whole), weights(second))
    assert verify(tmp_path / "run" / "receipt.json") == []
    assert json.loads((tmp_path / "run" / "receipt.json").read_text())["complete"]
    spent = [row["epsilon_certified"] for row in resumed.state.log_history]
    assert spent == sorted(spent)


def test_what_holds_no_ledger_is_not_resumed_from(tmp_path):
    module = bert("head")
    for given in (True, str(tmp_path)):
        with pytest.raises(InvalidArgument, match="ledger"):
            trainer(module, tmp_path, plan(module)).train(resume_from_checkpoint=given)


def test_a_checkpoint_of_another_plan_is_refused(tmp_path):
    first, second = bert("head"), bert("head")
    trainer(first, tmp_path, plan(first), save_strategy="steps", save_steps=STEPS).train()
    other = plan(second, plrvo.Laplace(5.0))
    with pytest.raises(InvalidArgument, match="written by another"):
        trainer(second, tmp_path, other).train(resume_from_checkpoint=True)


def test_examples_that_never_meet_are_trained_as_others_are(tmp_path):
    ours, other = bert("bias"), bert("bias")
    plan_ = plan(ours)
    made = trainer(ours, tmp_path / "one", plan_, "alone", per_device_train_batch_size=2)
    made.train()
    assert made.engine.grad_sample_mode == "alone"
    trainer(other, tmp_path / "two", plan_, "hooks").train()
    torch.testing.assert_close(weights(ours), weights(other), rtol=1e-4, atol=2e-5)
    receipt = json.loads((tmp_path / "one" / "receipt.json").read_text())
    assert receipt["run"]["isolation"] == "construction"
    assert verify(tmp_path / "one" / "receipt.json") == []


@pytest.mark.parametrize("mode", ["bookkeeping", "hooks"])
def test_checkpointed_activations_change_nothing(tmp_path, mode):
    ours, other = bert("all"), bert("all")
    plan_ = plan(ours)
    trainer(ours, tmp_path / "one", plan_, mode, gradient_checkpointing=True).train()
    assert ours.is_gradient_checkpointing
    trainer(other, tmp_path / "two", plan_, mode).train()
    torch.testing.assert_close(weights(ours), weights(other), rtol=1e-4, atol=2e-5)


def test_trackers_and_report_to_have_both_epsilons(tmp_path):
    rows = []

    class Kept:
        def log(self, step, values):
            rows.append((step, values))

    module = bert("head")
    plan_ = plan(module)
    made = trainer(module, tmp_path, plan_, trackers=[Kept()], eval_strategy="steps", eval_steps=3)
    made.train()
    due = plan_.ledger(2).epsilon(plan_.delta)
    logged = [values for step, values in rows if step == 2]
    assert logged[0]["epsilon_certified"] == due.certified
    assert logged[0]["epsilon_lower"] == due.lower > 0
    assert any("eval_loss" in values for _, values in rows)
    assert not any({"loss", "train_loss", "grad_norm"} & values.keys() for _, values in rows)


def test_tensorboard_by_report_to(tmp_path, monkeypatch):
    pytest.importorskip("tensorboard", reason="the extra tensorboard is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    monkeypatch.setenv("TENSORBOARD_LOGGING_DIR", str(tmp_path / "events"))
    module = bert("head")
    trainer(module, tmp_path, plan(module), report_to="tensorboard").train()
    events = EventAccumulator(str(tmp_path / "events")).Reload()
    assert {"train/epsilon_certified", "train/epsilon_lower"} <= set(events.Tags()["scalars"])
    assert [event.step for event in events.Scalars("train/epsilon_certified")] == [2, 4, 6, 6]
    assert "train/loss" not in events.Tags()["scalars"]


def test_a_trainer_takes_a_plan_with_a_correlation(tmp_path):
    module = bert("head")
    work = plrvo.Workload(sample_rate=1.0, steps=STEPS, clip=1.0, dimension=trained_parameters(module))
    visits = Correlation(Tree(), Participation(steps_per_epoch=3, epochs=2))
    correlated = plrvo.Plan.certify(plrvo.Laplace(2.0), work, 1e-3, None, visits)
    done = trainer(module, tmp_path, correlated)
    done.train()
    assert done.engine.sampler.visits.steps == STEPS
    assert verify(tmp_path / "receipt.json") == []
    assert json.loads((tmp_path / "receipt.json").read_text())["visits"]["smallest_separation"] == 3


def test_a_trainer_charges_its_plan_to_an_account_and_settles(tmp_path):
    account = Account.create(tmp_path / "a.budget", name="a", epsilon=40.0, delta=1e-3)
    module = bert("head")
    private = PrivateTrainer(
        module,
        arguments(tmp_path),
        plan=plan(module, plrvo.Gaussian(2.0)),
        train_dataset=Rows(),
        budget=account,
        grad_sample_mode="hooks",
    )
    private.train()
    assert account.state().entry(1).settled == STEPS
    assert verify(tmp_path / "receipt.json", budget=account.path) == []


def test_a_unit_that_no_receipt_could_have_is_refused_before_training(tmp_path):
    module = bert("all")
    for task in ({"unit": "one person; certified epsilon 0.1"}, {"group": "one author"}):
        with pytest.raises(InvalidArgument, match=r"task\['(unit|group)'\]"):
            PrivateTrainer(module, arguments(tmp_path), plan=plan(module), train_dataset=Rows(), task=task)


def test_the_tries_before_the_first_step_are_announced_once(tmp_path, caplog):
    module = bert("head")
    with caplog.at_level("INFO", logger="plrvo.tasks.trainer"):
        trainer(module, tmp_path, plan(module)).train()
    assert [record.message for record in caplog.records if record.name == "plrvo.tasks.trainer"] == [
        "trying the model on a few examples: the first steps take longer"
    ]
