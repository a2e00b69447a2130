"""The loss of each example is the one that the model has for that example alone."""

import warnings

import pytest
import torch
from tests.tasks.architectures import MODELS, batch, model
from tests.tasks.test_trainer import arguments
from tests.training.helpers import seeded
from torch import nn
from torch.utils.data import Dataset

import plrvo
from plrvo.audit.receipt import verify
from plrvo.tasks.objective import objective_of, with_decoder_inputs
from plrvo.tasks.trainer import PrivateTrainer
from plrvo.tasks.transformer import LogitsLoss
from plrvo.training.unwrap import trained_parameters
from plrvo.validate import InvalidArgument


@pytest.mark.parametrize("name", MODELS)
def test_each_example_has_the_models_own_loss(name):
    network, rows = model(name), batch(name)
    objective = objective_of(network, rows)
    assert network.training
    network.eval()
    inputs = with_decoder_inputs(network, rows)
    outputs = network(**{key: value for key, value in inputs.items() if key != "labels"})
    objective.reduction = "none"
    found = objective(outputs, rows["labels"])
    own = [network(**{key: value[i : i + 1] for key, value in rows.items()}).loss for i in range(len(found))]
    torch.testing.assert_close(found, torch.stack(own).reshape(-1), rtol=1e-4, atol=1e-5)


def test_virtual_tokens_in_front_have_no_labels():
    from peft import PromptTuningConfig, get_peft_model

    network = get_peft_model(model("GPT-2"), PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3))
    rows = batch("GPT-2")
    objective = objective_of(network, rows)
    network.eval()
    outputs = network(**{key: value for key, value in rows.items() if key != "labels"})
    assert outputs.logits.shape[1] == rows["labels"].shape[1] + 3
    objective.reduction = "none"
    found = objective(outputs, rows["labels"])
    own = [network(**{key: value[i : i + 1] for key, value in rows.items()}).loss for i in range(len(found))]
    torch.testing.assert_close(found, torch.stack(own).reshape(-1), rtol=1e-4, atol=1e-5)


def test_a_model_without_a_loss_has_cross_entropy_and_an_unknown_loss_is_refused():
    class Scores(nn.Module):
        def forward(self, x):
            return x

    assert isinstance(objective_of(Scores(), {"x": torch.ones(2, 3), "labels": torch.tensor([0, 1])}), LogitsLoss)
    network = model("BERT, sentences")
    own = network.forward

    def doubled(*args, **kwargs):
        outputs = own(*args, **kwargs)
        outputs.loss = None if outputs.loss is None else 2 * outputs.loss
        return outputs

    network.forward = doubled
    with pytest.raises(InvalidArgument, match="its own loss is"):
        objective_of(network, batch("BERT, sentences"))


class Rows(Dataset):
    def __init__(self, name):
        self.batch = batch(name, rows=12)

    def __len__(self):
        return 12

    def __getitem__(self, index):
        return {key: value[index] for key, value in self.batch.items()}


def trained(name, folder, mode):
    network = model(name)
    work = plrvo.Workload(sample_rate=0.25, steps=2, clip=1.0, dimension=trained_parameters(network))
    before = {key: p.clone() for key, p in network.named_parameters()}
    trainer = PrivateTrainer(
        network,
        arguments(folder),
        plan=plrvo.Plan.certify(plrvo.Gaussian(2.0), work, 1e-2),
        noise_generator=seeded(1),
        sample_generator=seeded(2),
        train_dataset=Rows(name),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the reason for a mode, and what torch.func says of others' layers
        trainer.train()
    assert trainer.engine.grad_sample_mode == mode
    assert len(trainer.engine.accountant) == 2
    assert all(not p.equal(before[key]) for key, p in network.named_parameters() if p.requires_grad)
    assert verify(folder / "receipt.json") == []


def test_a_trainer_takes_a_causal_language_model(tmp_path):
    trained("GPT-2", tmp_path, "bookkeeping")


FUNCTORCH = ("Gemma", "OPT", "T5", "BART", "DeBERTa-v2", "Swin")


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in MODELS if name != "GPT-2"])
def test_a_trainer_takes_all_the_others(tmp_path, name):
    hooks = name in ("ViT", "ConvNeXt")
    trained(name, tmp_path, "functorch" if name in FUNCTORCH else "hooks" if hooks else "bookkeeping")


def test_examples_of_which_no_token_counts_do_not_hide_the_loss():
    name = "BERT, masked words"
    rows = batch(name)
    rows["labels"] = rows["labels"].clone()
    rows["labels"][0] = -100  # a short text of which nothing was masked
    assert type(objective_of(model(name), rows)) is type(objective_of(model(name), batch(name)))


def test_a_batch_without_labels_is_refused_by_its_columns():
    with pytest.raises(InvalidArgument, match=r"start_positions.*labels"):
        objective_of(nn.Linear(1, 1), {"input_ids": torch.ones(2, 3), "start_positions": torch.ones(2)})


class Plain(nn.Module):
    """A model whose outputs are a dict, a tuple or a tensor, as they are in code that nobody wrote for a library."""

    def __init__(self, form, has_loss):
        super().__init__()
        self.form, self.has_loss, self.layer = form, has_loss, nn.Linear(4, 3)

    def forward(self, x, labels=None):
        logits = self.layer(x)
        loss = None if labels is None or not self.has_loss else nn.functional.cross_entropy(logits, labels)
        if self.form == "tensor":
            return logits
        if self.form == "tuple":
            return (logits,) if loss is None else (loss, logits)
        return {self.form: logits} | ({} if loss is None else {"loss": loss})


@pytest.mark.parametrize(
    ("form", "has_loss"), [("logits", True), ("logits", False), ("tuple", True), ("tensor", False)]
)
def test_models_with_plain_outputs_train_and_are_evaluated(tmp_path, form, has_loss):
    network = Plain(form, has_loss)
    rows = [{"x": torch.randn(4, generator=seeded(i)), "labels": i % 3} for i in range(24)]
    made = PrivateTrainer(
        network,
        arguments(tmp_path, eval_strategy="steps", eval_steps=3, max_steps=6),
        train_dataset=rows,
        eval_dataset=rows,
        target_epsilon=8.0,
        compute_metrics=lambda found: {"accuracy": float((found.predictions.argmax(-1) == found.label_ids).mean())},
    )
    made.train()
    tested = made.evaluate()
    with torch.no_grad():
        logits = network.layer(torch.stack([row["x"] for row in rows]))
    labels = torch.tensor([row["labels"] for row in rows])
    assert tested["eval_loss"] == pytest.approx(float(nn.functional.cross_entropy(logits, labels)), rel=1e-4)
    assert tested["eval_accuracy"] == pytest.approx(float((logits.argmax(-1) == labels).float().mean()))
    assert verify(tmp_path / "receipt.json") == []


def test_outputs_without_logits_are_refused_in_one_line(tmp_path):
    rows = [{"x": torch.randn(4), "labels": i % 3} for i in range(24)]
    made = PrivateTrainer(Plain("scores", False), arguments(tmp_path), train_dataset=rows, target_epsilon=8.0)
    with pytest.raises(
        InvalidArgument, match=r"model='outputs scores': expected outputs with `logits`, or a criterion"
    ):
        made.train()
