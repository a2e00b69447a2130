"""Trains with a PrivateTrainer, alone or as one of several processes that torchrun or accelerate started."""

import os
import sys
from pathlib import Path

import torch
from tests.tasks.test_trainer import RATE, SIZE, Rows, arguments, optimizer_of, plan, weights
from tests.tasks.text.tiny import bert
from tests.training.helpers import seeded
from transformers import TrainerCallback

import plrvo
from plrvo.budget import Account
from plrvo.tasks.trainer import PrivateTrainer
from plrvo.validate import InvalidArgument

MODES = ("bookkeeping", "hooks", "ghost")
SAVING = {"save_strategy": "steps", "save_steps": 2}


def rank():
    return torch.distributed.get_rank() if torch.distributed.is_initialized() else 0


class Look(TrainerCallback):
    """Keeps what each step releases, at the scale of the sum, and counts what a user's callback is told."""

    def __init__(self, stop_after=None):
        self.sums, self.stop_after, self.evaluated = [], stop_after, 0

    def on_optimizer_step(self, args, state, control, model=None, **kwargs):
        gradients = [p.grad.flatten() for p in model.parameters() if p.requires_grad]
        self.sums.append(torch.cat(gradients).double() * SIZE * RATE)

    def on_evaluate(self, args, state, control, **kwargs):
        self.evaluated += 1

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == self.stop_after:
            control.should_training_stop = True


class Kept:
    def __init__(self):
        self.rows = []

    def log(self, step, values):
        self.rows.append(step)


class Shuffled(Rows):
    """The same examples in an order of each process's own."""

    def __getitem__(self, index):
        return super().__getitem__((index + rank()) % SIZE)


class Shorter(Rows):
    def __len__(self):
        return SIZE - rank()


def trainer(
    folder,
    look,
    trainable="lora",
    mode="bookkeeping",
    data=None,
    budget=None,
    noise=None,
    trackers=(),
    known=True,
    **changes,
):
    module = bert(trainable)
    if rank():  # as models are that were made without a seed
        with torch.no_grad():
            for p in module.parameters():
                p.add_(torch.ones_like(p))
    changes = {"eval_strategy": "steps", "eval_steps": 3} | changes
    made = PrivateTrainer(
        module,
        arguments(folder, **changes),
        plan=plan(module, noise),
        grad_sample_mode=mode,
        trackers=trackers,
        budget=budget,
        noise_generator=seeded(1 + 70 * rank()) if known else None,
        # As from the operating system, which seeds every process differently: the first one's counts.
        sample_generator=seeded(2 + 70 * rank()) if known else None,
        train_dataset=data or Rows(),
        eval_dataset=Rows(),
        optimizers=(optimizer_of(module), None),
    )
    made.add_callback(look)
    return made


def found(folder, mode="bookkeeping", **options):
    """What one run leaves in this process."""
    look, kept = Look(), Kept()
    made = trainer(folder, look, mode=mode, trackers=[kept], **options)
    done = made.train()
    metrics = [row["eval_loss"] for row in made.state.log_history if "eval_loss" in row]
    return {
        "weights": weights(made.model),
        "sums": torch.stack(look.sums),
        "steps": len(made.engine.accountant),
        "global_step": done.global_step,
        "metrics": metrics,
        "evaluated": look.evaluated,
        "told": len(kept.rows),
        "epsilon": made.engine.get_epsilon(1e-3),
        "rows": made.engine.accountant.history,
        "after": float(made.evaluate()["eval_loss"]),
    }


def resumed(folder):
    """A run that stopped after its third step, and went on: its weights, and those of one that did not stop.

    The second process alone asks to stop, as a callback that looks at a clock does.
    """
    whole, first, second = Look(), Look(stop_after=3 if rank() else None), Look()
    uninterrupted = trainer(folder / "whole", whole)
    uninterrupted.train()
    trainer(folder / "run", first, **SAVING).train()
    going_on = trainer(folder / "run", second, **SAVING)
    going_on.train(resume_from_checkpoint=True)
    return {
        "weights": weights(going_on.model),
        "whole": weights(uninterrupted.model),
        "steps": len(going_on.engine.accountant),
        "batches": [len(first.sums), len(second.sums)],
    }


def charged(folder):
    """A run that is charged to an account."""
    account = folder / "a.budget"
    if rank() == 0:
        folder.mkdir()
        Account.create(account, name="a", epsilon=400.0, delta=1e-3)
    torch.distributed.barrier()
    trainer(folder, Look(), trainable="head", budget=account, noise=plrvo.Gaussian(1.0)).train()
    return [entry.settled for entry in Account(account).state().entries]


def unseeded(folder):
    """Weights, and the words that come next in the streams of batches and of noise."""
    made = trainer(folder, Look(), trainable="head", known=False)
    made.train()
    streams = {"batches": made.engine.sampler.generator, "noise": made._noisy.generator}
    return {"weights": weights(made.model)} | {name: stream.words(4).tolist() for name, stream in streams.items()}


def refused(folder, **options):
    try:
        trainer(folder, Look(), trainable="head", **options).train()
    except InvalidArgument as error:
        return str(error)
    return None


def everything(folder):
    return {
        **{mode: found(folder / mode, mode) for mode in MODES},
        "resumed": resumed(folder),
        "charged": charged(folder / "charged"),
        "unseeded": unseeded(folder / "unseeded"),
        "shuffled": refused(folder / "shuffled", data=Shuffled()),
        "shorter": refused(folder / "shorter", data=Shorter()),
        "other_plan": refused(folder / "other_plan", noise=plrvo.Laplace(2.0 + rank())),
        "each_node": refused(folder / "each_node", save_on_each_node=True),
    }


def main():
    what, folder = sys.argv[1], Path(sys.argv[2])
    mine = {"everything": everything, "one": lambda at: found(at / "one"), "refused": refused}[what](folder)
    # Told by the environment: processes that were refused need not have met.
    torch.save(mine, folder / f"{what}-{os.environ['RANK']}.pt")
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
