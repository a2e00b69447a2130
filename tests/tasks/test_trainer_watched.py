"""Whoever may look at the weights of a private trainer's step looks after the journal has it."""

from functools import wraps

import pytest
import torch
from tests.tasks.test_trainer import STEPS, optimizer_of
from tests.tasks.test_trainer_kept import SAVING, plain_rows, unseeded
from tests.tasks.test_trainer_refusals import Rows, arguments, made, plan, refused
from tests.tasks.text.tiny import bert
from transformers import TrainerCallback
from transformers.integrations import integration_utils

from plrvo.audit.receipt import verify
from plrvo.records.journal import Journal
from plrvo.tasks.trainer import PrivateTrainer
from plrvo.tasks.trainer_watched import looks_at_logs, looks_at_steps, runs_own_code
from plrvo.training.receipts import weights_digest


class Looker:
    """Has looked at the model, and compares it with the journal of then: steps of fresh noise may just be counted."""

    def __init__(self, folder):
        self.folder, self.steps = folder, []

    def look(self, step, model):
        if step:
            digest = weights_digest(p for p in model.parameters() if p.requires_grad)
            assert Journal.open(self.folder / "journal.jsonl").weights_at.get(step) in ("", digest)
            self.steps.append(step)


def kind_with(name, looker):
    def own(self, *args, **kwargs):
        looker.look(0 if self._noisy is None else self._noisy.steps_taken, self.model)
        return getattr(super(kind, self), name)(*args, **kwargs)

    kind = type("Own", (PrivateTrainer,), {name: own})
    return kind


METHODS = ["log", "_maybe_log_save_evaluate", "store_flos", "_get_learning_rate", "_track_num_input_tokens"]
METHODS += ["evaluate", "save_model", "_save", "_save_checkpoint", "prediction_step", "_load_best_model"]


@pytest.mark.parametrize("name", METHODS)
def test_a_method_of_a_subclass_looks_after_the_journal(tmp_path, name):
    looker, module = Looker(tmp_path), bert("head")
    settings = {**SAVING, "eval_strategy": "steps", "eval_steps": 2, "load_best_model_at_end": True, "logging_steps": 3}
    kind_with(name, looker)(
        module, arguments(tmp_path, **settings), plan=plan(module), train_dataset=Rows(), eval_dataset=Rows()
    ).train()
    assert looker.steps[-1] == (STEPS - 1 if name == "_track_num_input_tokens" else STEPS)  # before a step


def test_so_does_one_that_is_put_into_the_trainer(tmp_path):
    looker, trainer = Looker(tmp_path), unseeded(tmp_path)
    log = trainer.log
    trainer.log = lambda *args: (looker.look(trainer.state.global_step, trainer.model), log(*args))
    trainer.train()
    assert looker.steps == [2, 4, 6, 6]


def test_so_does_a_tracker_that_knows_the_model(tmp_path):
    looker, module = Looker(tmp_path), bert("head")

    class Tracker:
        def log(self, step, values):
            looker.look(step, module)

    unseeded(tmp_path, module, trackers=[Tracker()]).train()
    assert looker.steps == [2, 4, 6, 6]


@pytest.mark.parametrize(
    "event", ["on_step_begin", "on_optimizer_step", "on_step_end", "on_log", "on_epoch_end", "on_train_end"]
)
def test_so_does_a_callback(tmp_path, event):
    looker = Looker(tmp_path)

    def seen(self, args, state, control, model=None, **kwargs):
        looker.look(trainer._noisy.steps_taken, model)

    trainer = unseeded(tmp_path, callbacks=[type("Looks", (TrainerCallback,), {event: seen})()])
    trainer.train()
    assert looker.steps[-1] == (STEPS - 1 if event == "on_step_begin" else STEPS)


@pytest.mark.parametrize("name", ["WandbCallback", "DVCLiveCallback"])
def test_weights_that_a_tracker_of_transformers_uploads_at_the_end_are_in_the_journal(tmp_path, name):
    looker = Looker(tmp_path)

    def upload(self, args, state, control, model=None, **kwargs):
        looker.look(state.global_step, model)

    # As transformers has it: no own code, and in front of all callbacks that a user gives.
    own = {"on_train_end": upload, "__init__": lambda self: None, "__module__": "transformers.integrations"}
    own |= {event: lambda *_, **__: None for event in ("on_train_begin", "on_log", "on_save", "__del__")}
    trainer = unseeded(tmp_path)
    trainer.callback_handler.callbacks.insert(0, type(name, (getattr(integration_utils, name),), own)())
    trainer.train()
    assert looker.steps == [STEPS]
    assert not looks_at_steps(trainer, PrivateTrainer)


def test_nothing_is_written_down_for_nobody(tmp_path):
    trainer = unseeded(tmp_path)
    assert runs_own_code(trainer, PrivateTrainer)  # a data set of one's own
    trainer.train_dataset = plain_rows()
    assert not runs_own_code(trainer, PrivateTrainer)
    assert not looks_at_logs(trainer, PrivateTrainer)
    trainer.train()
    assert not runs_own_code(trainer, PrivateTrainer)
    assert list(Journal.open(tmp_path / "journal.jsonl").weights_at) == [STEPS]


def test_a_name_that_is_taken_is_refused(tmp_path):
    refused(tmp_path, "trainer='Own'", "another name for _show", kind=type("Own", (PrivateTrainer,), {"_show": print}))


@pytest.mark.parametrize("when", ["pre", "post"])
def test_hooks_on_the_steps_of_the_optimizer_are_refused(tmp_path, when):
    module = bert("head")
    optimizer = optimizer_of(module)
    getattr(optimizer, f"register_step_{when}_hook")(lambda *_: None)
    trainer = made(tmp_path, module, optimizers=(optimizer, None))
    with pytest.raises(ValueError, match="optimizers='AdamW with a hook on its steps': expected none"):
        trainer.train()
    assert trainer._noisy is None
    assert torch.isfinite(module.classifier.weight).all()


def test_so_are_those_that_a_callback_puts_on_the_noise(tmp_path):
    class Hooks(TrainerCallback):
        def on_train_begin(self, args, state, control, optimizer=None, **kwargs):
            optimizer.optimizer.attach_step_hook(lambda _: None)

    trainer = unseeded(tmp_path, callbacks=[Hooks()])
    with pytest.raises(ValueError, match="with a hook on its steps"):
        trainer.train()
    assert trainer._noisy.steps_taken == 0


def test_a_schedule_of_ones_own_looks_after_the_journal(tmp_path):
    looker, module = Looker(tmp_path), bert("head")

    class Rates(torch.optim.lr_scheduler.ConstantLR):
        def step(self, *args):
            looker.look(0 if trainer is None else trainer._noisy.steps_taken, module)
            super().step(*args)

    trainer, optimizer = None, optimizer_of(module)
    trainer = PrivateTrainer(
        module,
        arguments(tmp_path),
        plan=plan(module),
        train_dataset=Rows(),
        optimizers=(optimizer, Rates(optimizer)),
    )
    trainer.train()
    assert looker.steps == list(range(1, STEPS + 1))


def optimizers(look, trainer):
    class Own(torch.optim.SGD):
        def step(self, closure=None):
            done = super().step(closure)
            look()
            return done

    trainer.optimizer = Own(list(trainer.model.classifier.parameters()), lr=0.1)


def rates(look, trainer):
    trainer.lr_scheduler = torch.optim.lr_scheduler.LambdaLR(trainer.optimizer, lambda _: (look(), 1.0)[1])


def hooks(look, trainer):
    trainer.model.get_input_embeddings().register_forward_pre_hook(lambda *_: look())


def forwards(look, trainer):
    class Own(type(trainer.model)):
        @wraps(type(trainer.model).forward)  # has the name of what it wraps
        def forward(self, *args, **kwargs):
            look()
            return super().forward(*args, **kwargs)

    trainer.model.__class__ = Own


def collators(look, trainer):
    collate = trainer.data_collator
    trainer.data_collator = lambda rows: (look(), collate(rows))[1]


def data(look, trainer):
    class Own(list):
        def __getitem__(self, index):
            look()
            return super().__getitem__(index)

    trainer.train_dataset = torch.utils.data.Subset(Own(plain_rows()), range(24))


def criteria(look, trainer):
    class Own(torch.nn.CrossEntropyLoss):
        def forward(self, *given):
            look()
            return super().forward(*given)

    loss = Own(reduction="none")
    trainer._criterion = lambda outputs, labels: loss(outputs.logits, labels)


def callbacks(look, trainer):
    class Late(TrainerCallback):
        """Puts a hook into the model when the run is under way, and is gone."""

        def on_step_end(self, args, state, control, model=None, **kwargs):
            if state.global_step == 2:
                hooks(look, trainer)
                trainer.remove_callback(Late)

    trainer.add_callback(Late)


@pytest.mark.parametrize("put", [optimizers, rates, hooks, forwards, collators, data, criteria, callbacks])
def test_so_does_whatever_runs_in_a_step(tmp_path, put):
    looker, trainer = Looker(tmp_path), unseeded(tmp_path)
    trainer.train_dataset = plain_rows()
    put(lambda: looker.look(0 if trainer._noisy is None else trainer._noisy.steps_taken, trainer.model), trainer)
    trainer.train()
    assert STEPS - 1 in looker.steps
    assert list(Journal.open(tmp_path / "journal.jsonl").weights_at) == list(range(1, STEPS + 1))
    assert verify(tmp_path / "receipt.json") == []


def test_so_does_a_class_that_was_given_another_method_for_all(tmp_path, monkeypatch):
    looker, trainer = Looker(tmp_path), unseeded(tmp_path)
    trainer.train_dataset = plain_rows()

    def on_step_end(self, args, state, control, model=None, **kwargs):
        looker.look(state.global_step, model)

    monkeypatch.setattr(TrainerCallback, "on_step_end", on_step_end)
    trainer.train()
    assert set(looker.steps) == set(range(1, STEPS + 1))
