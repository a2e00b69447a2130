"""A Hugging Face Trainer takes the steps of the plain loop, says nothing of private examples, and leaves a receipt."""

import json

import pytest
import torch
from tests.tasks.text.tiny import CLASSES, batch, bert
from tests.training.helpers import seeded
from torch.utils.data import DataLoader, Dataset
from transformers import TrainingArguments, default_data_collator

import plrvo
from plrvo.accounting.correlated import Correlation, Participation, Tree
from plrvo.audit.receipt import verify
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


def trainer(module, folder, plan_, mode="auto", **changes):
    return PrivateTrainer(
        module,
        arguments(folder, **changes),
        plan=plan_,
        grad_sample_mode=mode,
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
    assert "eval_loss" in receipt["run"]["metrics"]


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
    assert done.training_loss != done.training_loss  # not a number
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
        ({"bf16": True}, "bf16"),
    ],
)
def test_arguments_that_would_break_the_account_are_refused(tmp_path, changes, named):
    module = bert("head")
    with pytest.raises(InvalidArgument, match=named):
        trainer(module, tmp_path, plan(module), **changes)


def test_checkpoints_of_a_trainer_are_not_resumed_from(tmp_path):
    module = bert("head")
    with pytest.raises(InvalidArgument, match="ledger"):
        trainer(module, tmp_path, plan(module)).train(resume_from_checkpoint=True)


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
