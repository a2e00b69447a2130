"""Whatever a private trainer does not do, it refuses in one line; what it takes, it uses."""

import pytest
import torch
from tests.tasks.architectures import batch, model
from tests.tasks.test_trainer import STEPS, Rows, arguments, optimizer_of, plan
from tests.tasks.text.tiny import CLASSES, bert, config
from tests.training.helpers import seeded
from torch import nn
from torch.utils.checkpoint import CheckpointError
from torch.utils.data import IterableDataset
from transformers import (
    BertForSequenceClassification,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    TrainerCallback,
    default_data_collator,
)
from transformers.modeling_outputs import SequenceClassifierOutput

from plrvo.audit.receipt import verify
from plrvo.tasks.trainer import PrivateTrainer
from plrvo.tasks.transformer import logits_of
from plrvo.validate import InvalidArgument


class Labelled(Rows):
    """The same texts with other labels."""

    def __init__(self, labels):
        super().__init__()
        self.labels = labels


FLOATS = Labelled(torch.rand(24))
SEVERAL = Labelled(torch.randint(0, 2, (24, CLASSES)).float())


def head(module_class=BertForSequenceClassification, **changes):
    """A tiny BERT of which the head is trained."""
    with torch.random.fork_rng():
        torch.manual_seed(3)
        module = module_class(config(**changes))
    for name, parameter in module.named_parameters():
        parameter.requires_grad = name.startswith("classifier")
    return module


def made(folder, module=None, kind=PrivateTrainer, settings=None, **keywords):
    module = bert("head") if module is None else module
    keywords = {"train_dataset": Rows(), "optimizers": (optimizer_of(module), None)} | keywords
    generators = {"noise_generator": seeded(1), "sample_generator": seeded(2)}
    return kind(module, arguments(folder, **settings or {}), plan=plan(module), **generators, **keywords)


def refused(folder, *said, **how):
    with pytest.raises(InvalidArgument) as error:
        made(folder, **how)
    assert str(error.value).isprintable()
    assert all(word in str(error.value) for word in said), str(error.value)


@pytest.mark.parametrize(
    "name",
    ["compute_loss", "training_step", "get_train_dataloader", "_get_train_sampler", "get_batch_samples", "_run_epoch"],
)
def test_a_method_of_a_subclass_that_would_not_be_called_is_refused(tmp_path, name):
    def own(self, *args, **kwargs):
        raise AssertionError("never called")

    refused(tmp_path, name, "criterion", kind=type("Own", (PrivateTrainer,), {name: own}))


def test_a_method_that_is_put_into_the_trainer_is_refused_when_it_trains(tmp_path):
    trainer = made(tmp_path)
    trainer.compute_loss = lambda model, inputs: 0
    with pytest.raises(InvalidArgument, match="no compute_loss of its own"):
        trainer.train()


def test_a_subclass_that_changes_nothing_of_the_steps_trains(tmp_path):
    class Logging(PrivateTrainer):
        def log(self, logs, start_time=None):
            super().log({**logs, "mine": 1.0}, start_time)

    trainer = made(tmp_path, kind=Logging)
    trainer.train()
    assert any("mine" in row for row in trainer.state.log_history)
    assert verify(tmp_path / "receipt.json") == []


def test_labels_that_the_model_does_not_take_are_refused(tmp_path):
    trainer = made(tmp_path, train_dataset=FLOATS)
    with pytest.raises(InvalidArgument, match=r"its labels.*criterion"):
        trainer.train()


class Weighted(BertForSequenceClassification):
    """Counts the first class ten times."""

    def forward(self, input_ids=None, attention_mask=None, token_type_ids=None, labels=None):
        logits = super().forward(input_ids, attention_mask, token_type_ids).logits
        weights = torch.tensor([10.0] + [1.0] * (CLASSES - 1))
        loss = None if labels is None else nn.functional.cross_entropy(logits, labels, weights, reduction="sum")
        return SequenceClassifierOutput(loss=loss, logits=logits)


def test_a_loss_inside_of_the_model_is_refused_before_the_first_step(tmp_path):
    trainer = made(tmp_path, module=head(Weighted))
    with pytest.raises(InvalidArgument, match="its own loss is"):
        trainer.train()
    assert trainer.state.global_step == 0
    assert not (tmp_path / "receipt.json").exists()


class SeveralLabels(nn.BCEWithLogitsLoss):
    def forward(self, outputs, labels):
        losses = nn.functional.binary_cross_entropy_with_logits(logits_of(outputs), labels, reduction="none").sum(dim=1)
        return losses if self.reduction == "none" else getattr(losses, self.reduction)()


def test_with_a_criterion_several_labels_are_trained(tmp_path):
    module = head(problem_type="multi_label_classification")
    before = module.classifier.weight.detach().clone()
    made(tmp_path, module=module, criterion=SeveralLabels(), train_dataset=SEVERAL).train()
    assert not module.classifier.weight.equal(before)
    assert verify(tmp_path / "receipt.json") == []


def test_a_criterion_may_give_a_loss_for_each_example(tmp_path):
    found = []
    for reduction in ("mean", "none"):
        module = head()
        made(
            tmp_path / reduction,
            module=module,
            criterion=lambda outputs, labels, r=reduction: nn.functional.cross_entropy(
                outputs.logits, labels, reduction=r
            ),
        ).train()
        found.append(module.classifier.weight.detach())
    torch.testing.assert_close(*found)


def test_it_is_called_as_a_trainer_is(tmp_path):
    """By position, with a model in eval mode as `from_pretrained` gives it, and with the file of a plan."""
    module, file = bert("head").eval(), tmp_path / "plan.json"
    plan(module).save(file)
    trainer = PrivateTrainer(module, arguments(tmp_path), default_data_collator, Rows(), Rows(), plan=str(file))
    assert trainer.train().global_step == STEPS
    assert trainer.evaluate()["eval_loss"] > 0
    assert verify(tmp_path / "receipt.json") == []


class Stream(IterableDataset):
    def __iter__(self):
        return iter(Rows())


def test_what_a_trainer_lacks_is_said_in_a_line(tmp_path):
    settings, module = arguments(tmp_path), bert("head")
    for name, keywords in {
        "target_epsilon": {"model": module, "args": settings},
        "model": {"args": settings, "plan": plan(module)},
        "train_dataset": {"model": module, "args": settings, "plan": plan(module), "train_dataset": Stream()},
    }.items():
        with pytest.raises(InvalidArgument, match=f"^{name}="):
            PrivateTrainer(**keywords)
    with pytest.raises(InvalidArgument, match=r"^model_init="):
        PrivateTrainer(model_init=lambda: bert("head"), args=settings, plan=plan(module))
    with pytest.raises(InvalidArgument, match=r"^train_dataset=None"):
        PrivateTrainer(module, settings, plan=plan(module)).train()


def test_generated_texts_are_evaluated_by_the_class_that_generates_them(tmp_path):
    module = model("T5")
    settings = Seq2SeqTrainingArguments(
        str(tmp_path), predict_with_generate=True, use_cpu=True, report_to="none", disable_tqdm=True
    )
    rows = batch("T5", rows=6)
    examples = [{name: value[i] for name, value in rows.items()} for i in range(6)]
    given = {"plan": plan(module), "train_dataset": examples, "data_collator": default_data_collator}
    with pytest.raises(InvalidArgument, match=r"predict_with_generate.*Seq2SeqTrainer"):
        PrivateTrainer(module, settings, **given)

    class Own(PrivateTrainer, Seq2SeqTrainer):
        pass

    found = Own(module, settings, **given).predict(examples, max_new_tokens=3).predictions
    assert found.ndim == 2  # tokens, no scores
    assert found.dtype.kind == "i"


ARGUMENTS = {
    "per_device_train_batch_size": {"per_device_train_batch_size": 0},
    "label_smoothing_factor": {"label_smoothing_factor": 0.1},
    "train_sampling_strategy": {"train_sampling_strategy": "group_by_length"},
    "optim_target_modules": {"optim_target_modules": ["attn"]},
    "optim": {"optim": "lomo"},
    "label_names": {"label_names": ["start_positions", "end_positions"]},
    "neftune_noise_alpha": {"neftune_noise_alpha": 5.0},
    "use_liger_kernel": {"use_liger_kernel": True},
    "debug": {"debug": "underflow_overflow"},
    "torch_compile": {"torch_compile": True},
    "include_num_input_tokens_seen": {"include_num_input_tokens_seen": True},
    "auto_find_batch_size": {"auto_find_batch_size": True},
    "enable_jit_checkpoint": {"enable_jit_checkpoint": True},
}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_an_argument_that_would_be_ignored_or_break_the_account_is_refused(tmp_path, name):
    refused(tmp_path, name, settings=ARGUMENTS[name])


def test_half_precision_is_refused(tmp_path):
    settings = arguments(tmp_path)
    settings.fp16 = True  # which no constructor takes without a graphics card
    module = bert("head")
    with pytest.raises(InvalidArgument, match="fp16"):
        PrivateTrainer(module, settings, plan=plan(module), train_dataset=Rows())
    with pytest.raises(InvalidArgument, match=r"bf16=True: expected False and float32: in halves"):
        PrivateTrainer(module, arguments(tmp_path, bf16=True), plan=plan(module), train_dataset=Rows())


def test_another_function_for_the_loss_and_a_model_to_be_made_are_refused(tmp_path):
    refused(tmp_path, "compute_loss_func", "criterion", compute_loss_func=lambda *args: 0)
    refused(tmp_path, "model_init", model_init=lambda: bert("head"))


class Peeking(TrainerCallback):
    def on_pre_optimizer_step(self, args, state, control, **kwargs):
        raise AssertionError("sees gradients before the noise")


def test_a_callback_between_gradient_and_noise_is_refused(tmp_path):
    refused(tmp_path, "before the noise", callbacks=[Peeking()])
    refused(tmp_path, "before the noise", callbacks=[Peeking])
    trainer = made(tmp_path)
    with pytest.raises(InvalidArgument, match="before the noise"):
        trainer.add_callback(Peeking)
    trainer.callback_handler.callbacks.append(Peeking())
    with pytest.raises(InvalidArgument, match="before the noise"):
        trainer.train()


@pytest.mark.parametrize("value", ["gradients", "all"])
def test_watched_gradients_are_refused(tmp_path, monkeypatch, value):
    monkeypatch.setenv("WANDB_WATCH", value)
    refused(tmp_path, "WANDB_WATCH")


def test_a_callback_after_the_step_is_called(tmp_path):
    steps = []

    class After(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            steps.append(state.global_step)

    made(tmp_path, callbacks=[After()]).train()
    assert steps == list(range(1, STEPS + 1))


def test_the_optimizer_the_schedule_and_the_collator_that_are_given_are_used(tmp_path):
    from transformers import default_data_collator

    sizes = []

    def collate(rows):
        sizes.append(len(rows))
        return default_data_collator(rows)

    module = bert("head")
    optimizer = torch.optim.SGD([p for p in module.parameters() if p.requires_grad], lr=0.5)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.5**step)
    trainer = made(tmp_path, module=module, optimizers=(optimizer, schedule), data_collator=collate)
    trainer.train()
    assert trainer._noisy.original_optimizer is optimizer
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.5 * 0.5**STEPS)
    assert len(sizes) >= STEPS


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("ACCELERATE_USE_FSDP", "true", "the whole model"),
        ("ACCELERATE_USE_DEEPSPEED", "1", "the whole model"),
        ("ACCELERATE_MIXED_PRECISION", "fp16", "in halves"),
        ("OMPI_COMM_WORLD_SIZE", "2", "a model of its own"),
    ],
)
def test_what_a_launcher_was_told_and_a_private_trainer_cannot_do(tmp_path, monkeypatch, name, value, said):
    settings = arguments(tmp_path)  # which may read it and set up what is not there
    monkeypatch.setenv(name, value)
    settings.mixed_precision = "fp16" if value == "fp16" else settings.mixed_precision
    module = bert("head")
    with pytest.raises(InvalidArgument, match=said):
        PrivateTrainer(module, settings, plan=plan(module), train_dataset=Rows())


def test_a_launcher_may_not_ask_for_bfloat16(tmp_path, monkeypatch):
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "bf16")
    with pytest.raises(InvalidArgument, match="in halves"):
        made(tmp_path, bert("head"))


@pytest.mark.parametrize("extra", [True, torch.tensor(3.0), "text"])
def test_a_batch_with_something_that_has_no_rows_is_refused(tmp_path, extra):
    def collate(rows):
        return {**default_data_collator(rows), "extra": extra}

    with pytest.raises(InvalidArgument, match=r"data_collator=.*no extra="):
        made(tmp_path, data_collator=collate).train()


@pytest.mark.parametrize(
    ("mode", "reentrant", "named"),
    [("functorch", False, "gradient_checkpointing=True"), ("alone", True, "gradient_checkpointing_kwargs")],
)
def test_activations_are_not_computed_again_where_they_cannot_be(tmp_path, mode, reentrant, named):
    settings = {"gradient_checkpointing": True, "gradient_checkpointing_kwargs": {"use_reentrant": reentrant}}
    trainer = made(tmp_path, bert("bias"), settings=settings, grad_sample_mode=mode)
    with pytest.raises(InvalidArgument, match=named):
        trainer.train()
    assert len(trainer.engine.accountant) == 0


def test_nor_where_auto_has_come_to_such_a_way_on_a_batch(tmp_path):
    trainer = made(tmp_path, bert("bias"), settings={"gradient_checkpointing": True}, grad_sample_mode="hooks")

    def fails(model, batch):
        trainer.engine._mode = "functorch"
        raise CheckpointError("as torch says it")

    trainer._criterion, trainer._loss_of = logits_of, fails
    with pytest.raises(InvalidArgument, match=r"gradient_checkpointing=True.*functorch"):
        trainer.train()
