"""A receipt of a private trainer is about a file of its own run, whatever else lies in the folder."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.tasks.test_trainer import arguments, optimizer_of, plan
from tests.tasks.test_trainer_refusals import made
from tests.tasks.text.tiny import bert
from transformers import TrainerCallback

from plrvo.audit.receipt import verify
from plrvo.tasks.trainer import PrivateTrainer
from plrvo.tasks.trainer_weights import names_in
from plrvo.validate import InvalidArgument


def receipt_in(folder):
    return json.loads((folder / "receipt.json").read_text())


@pytest.mark.parametrize(
    "name",
    [
        *("adapter_model.safetensors", "model.safetensors", "trained.safetensors", "pytorch_model.bin"),
        *("model-00001-of-00002.safetensors", "adapter_model.bin", "receipt.json", "journal.jsonl"),
        "checkpoint-2/private.safetensors",
    ],
)
def test_a_folder_with_a_run_or_weights_in_it_is_refused_before_training(tmp_path, name):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_bytes(b"of another run")
    trainer = made(tmp_path)
    with pytest.raises(InvalidArgument, match=rf"output_dir=.*{name.partition('/')[0]}"):
        trainer.train()
    assert len(trainer.engine.accountant) == 0


def test_weights_that_come_into_the_folder_while_it_trains_are_not_certified(tmp_path):
    before = bert("head")
    save_file({"lora": torch.ones(200), "other": torch.zeros(300)}, tmp_path / "of-another-run")

    class Comes(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            shutil.copy(tmp_path / "of-another-run", tmp_path / "adapter_model.safetensors")

    trainer = made(tmp_path, before, callbacks=[Comes()])
    trainer.train()
    assert receipt_in(tmp_path)["weights"]["file"] == "model.safetensors"
    assert receipt_in(tmp_path)["weights"]["trained"] == ["classifier.weight", "classifier.bias"]
    assert verify(tmp_path / "receipt.json") == []


def test_what_is_saved_otherwise_than_it_was_trained_is_not_certified(tmp_path):
    class Halves(PrivateTrainer):
        def save_model(self, output_dir=None, _internal_call=False):
            super().save_model(output_dir, _internal_call)
            path = f"{output_dir or self.args.output_dir}/model.safetensors"
            save_file({name: t.bfloat16().float() for name, t in load_file(path).items()}, path)

    module = bert("head")
    trainer = Halves(
        module,
        arguments(tmp_path),
        plan=plan(module),
        train_dataset=made(tmp_path).train_dataset,
        optimizers=(optimizer_of(module), None),
    )
    trainer.train()
    assert receipt_in(tmp_path)["weights"]["file"] == "trained.safetensors"
    assert torch.equal(load_file(tmp_path / "trained.safetensors")["classifier.weight"], module.classifier.weight)
    assert verify(tmp_path / "receipt.json") == []


def test_parameters_are_found_by_their_bytes_and_told_apart_by_their_names(tmp_path):
    zeros, ones = torch.zeros(4), torch.ones(4)
    save_file({"x.b.bias": zeros, "x.a.bias": zeros.clone(), "x.w": ones, "more": zeros[:2].clone()}, tmp_path / "f")
    trained = {"a.default.bias": zeros, "b.default.bias": zeros, "w": ones}
    assert names_in(tmp_path / "f", trained) == ["x.a.bias", "x.b.bias", "x.w"]
    assert names_in(tmp_path / "f", {**trained, "c.bias": zeros}) is None  # there are two of them
    assert names_in(tmp_path / "f", {"w": 2 * ones}) is None
    assert names_in(tmp_path / "none", trained) is None
