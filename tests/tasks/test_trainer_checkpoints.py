"""Checkpoints of a private trainer: a run goes on from the last whole one, and none of them is uploaded."""

import json

import pytest
import torch
from tests.tasks.test_trainer import STEPS, weights
from tests.tasks.test_trainer_refusals import made
from tests.tasks.text.tiny import bert
from transformers import EarlyStoppingCallback, TrainerCallback
from transformers.integrations import integration_utils

from plrvo.audit.receipt import verify
from plrvo.tasks.trainer_checkpoints import refuse_uploads
from plrvo.validate import InvalidArgument

SAVING = {"save_strategy": "steps", "save_steps": 2}


@pytest.mark.parametrize("strategy", ["checkpoint", "all_checkpoints"])
def test_checkpoints_are_not_uploaded_to_the_hub(tmp_path, strategy):
    trainer = made(tmp_path, settings=SAVING)
    trainer.args.push_to_hub, trainer.args.hub_strategy = True, strategy
    with pytest.raises(InvalidArgument, match=r"hub_strategy='.*checkpoint.*every_save or end.*private.safetensors"):
        trainer.train()
    trainer.args.hub_strategy = "every_save"
    refuse_uploads(trainer.args, [])
    trainer.args.hub_strategy, trainer.args.save_only_model = strategy, True  # nothing secret is in those
    refuse_uploads(trainer.args, [])


@pytest.mark.parametrize(
    ("tracker", "variable", "value"),
    [
        ("WandbCallback", "WANDB_LOG_MODEL", "checkpoint"),
        ("CometCallback", "COMET_LOG_ASSETS", "true"),
        ("MLflowCallback", "HF_MLFLOW_LOG_ARTIFACTS", "1"),
        ("DagsHubCallback", "HF_DAGSHUB_LOG_ARTIFACTS", "True"),
        ("DVCLiveCallback", "HF_DVCLIVE_LOG_MODEL", "all"),
        ("ClearMLCallback", "CLEARML_LOG_MODEL", "TRUE"),
    ],
)
def test_trackers_that_upload_checkpoints_are_refused(tmp_path, monkeypatch, tracker, variable, value):
    kind = getattr(integration_utils, tracker)
    own = type("Own", (kind,), {"__init__": lambda self: None, "__del__": lambda self: None})()
    args = made(tmp_path, settings=SAVING).args
    monkeypatch.setenv(variable, value)
    refuse_uploads(args, [])  # nobody reads the variable then
    with pytest.raises(InvalidArgument, match=rf"{variable}='{value}'.*false: checkpoints hold private.safetensors"):
        refuse_uploads(args, [own])
    monkeypatch.setenv(variable, "false")
    refuse_uploads(args, [own])


@pytest.mark.parametrize(
    ("tracker", "attribute", "value"),
    [
        ("WandbCallback", "_log_model", integration_utils.WandbLogModel.CHECKPOINT),
        ("NeptuneCallback", "_log_checkpoints", "best"),
        ("FlyteCallback", "sync_checkpoints", True),
        ("DVCLiveCallback", "_log_model", "all"),
    ],
)
def test_so_are_those_that_were_told_by_an_argument(tmp_path, tracker, attribute, value):
    own = type(tracker, (), {attribute: value})()
    args = made(tmp_path, settings=SAVING).args
    with pytest.raises(InvalidArgument, match=f"callbacks='{tracker}"):
        refuse_uploads(args, [own])


class Stop(TrainerCallback):
    def __init__(self, step):
        self.step = step

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == self.step:
            raise KeyboardInterrupt


@pytest.mark.parametrize("missing", ["private.safetensors", "trainer_state.json"])
def test_a_run_goes_back_behind_a_checkpoint_that_was_cut_short(tmp_path, missing):
    whole = bert("head")
    made(tmp_path / "whole", whole).train()
    with pytest.raises(KeyboardInterrupt):
        made(tmp_path / "run", settings=SAVING, callbacks=[Stop(5)]).train()
    (tmp_path / "run" / "checkpoint-4" / missing).unlink()
    with pytest.raises(InvalidArgument, match="resume_from_checkpoint"):
        made(tmp_path / "run").train(resume_from_checkpoint=str(tmp_path / "run" / "checkpoint-4"))
    module = bert("head")
    trainer = made(tmp_path / "run", module, settings=SAVING)
    with pytest.warns(UserWarning, match="checkpoint-4 was not written to its end: going on from checkpoint-2"):
        assert trainer.train(resume_from_checkpoint=True).global_step == STEPS
    assert torch.equal(weights(module), weights(whole))  # the noise is repeatable: the same steps were taken again
    assert verify(tmp_path / "run" / "receipt.json") == []


def test_a_run_that_stopped_early_keeps_its_last_checkpoint_beside_the_best(tmp_path):
    scores = iter([0.9, 0.1])
    choosing = {"load_best_model_at_end": True, "metric_for_best_model": "score", "greater_is_better": True}
    limits = {**SAVING, "eval_strategy": "steps", "eval_steps": 2, "save_total_limit": 1}
    trainer = made(
        tmp_path,
        settings={**limits, **choosing},
        eval_dataset=made(tmp_path).train_dataset,
        compute_metrics=lambda _: {"score": next(scores)},
        callbacks=[EarlyStoppingCallback(1)],
    )
    assert trainer.train().global_step == 4
    assert {path.name for path in tmp_path.glob("checkpoint-*")} == {"checkpoint-2", "checkpoint-4"}
    assert json.loads((tmp_path / "receipt.json").read_text())["run"]["weights_of_step"] == 2
    assert verify(tmp_path / "receipt.json") == []
    resumed = made(tmp_path, settings=SAVING)
    assert resumed.train(resume_from_checkpoint=True).global_step == STEPS
    assert verify(tmp_path / "receipt.json") == []
