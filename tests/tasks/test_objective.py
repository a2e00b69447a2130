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
