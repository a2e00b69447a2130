"""Lets something happen to runs of a PrivateTrainer, at many points, in processes that are forked from this one.

A point is a call of a function in the code that takes steps and writes them down. For each the run is started, has its
fault there, and is resumed until it ends; what was seen of it meanwhile, by an evaluation, a checkpoint or whoever
holds the trainer afterwards, is kept beside it.
"""

import errno
import json
import logging
import os
import signal
import sys
import time
import warnings
from pathlib import Path

import torch
from tests.tasks.test_trainer import Rows, arguments, optimizer_of, plan, weights
from tests.tasks.test_trainer_kept import correlated
from tests.tasks.text.tiny import bert
from tests.training.helpers import seeded
from transformers import TrainerCallback

import plrvo
from plrvo.records.journal import Journal
from plrvo.tasks.trainer import PrivateTrainer
from plrvo.training.receipts import weights_digest
from plrvo.validate import InvalidArgument

FAULTS = ("kill", "interrupt", "hammer", "full")
# Evaluated after each step, the last one before its checkpoint.
SETTINGS = {"save_strategy": "steps", "save_steps": 2, "eval_strategy": "steps", "eval_steps": 1}
_WHERE = ("plrvo/tasks/trainer", "plrvo/tasks/releases", "plrvo/records/journal", "plrvo/training/optimizer")
_WHERE += ("plrvo/training/checkpoint", "plrvo/files", "torch/optim/adamw", "transformers/trainer.py")


class Seen(TrainerCallback):
    """Writes down what is seen, at once: a kill loses nothing of it."""

    def __init__(self, path):
        self.file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def see(self, step, module):
        trained = [p for p in module.parameters() if p.requires_grad]
        if step and not any(p.isnan().any() for p in trained):
            os.write(self.file, (json.dumps([step, weights_digest(trained)]) + "\n").encode())

    def on_evaluate(self, args, state, control, model=None, **kwargs):
        self.see(state.global_step, model)

    on_save = on_evaluate


def trainer(folder, kind):
    module = bert("head")
    known = kind == "seeded"
    given = correlated(module) if kind == "correlated" else plan(module, plrvo.Gaussian(2.0))
    seen = Seen(folder / "seen")
    made = PrivateTrainer(
        module,
        arguments(folder / "run", **SETTINGS),
        plan=given,
        grad_sample_mode="hooks",
        noise_generator=seeded(1) if known else None,
        sample_generator=seeded(2) if known else None,
        train_dataset=Rows(),
        eval_dataset=Rows(),
        callbacks=[seen],
        optimizers=(optimizer_of(module), None),
    )
    return made, seen


def full(self, step, digest):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))


def hammer(pid):
    """From another process, for a while: Ctrl-C again and again."""
    if (child := os.fork()) == 0:
        try:
            for _ in range(150):
                os.kill(pid, signal.SIGINT)
                time.sleep(0.002)
        finally:
            os._exit(0)
    return child


class Fault:
    """Counts calls, and lets something happen at one of them; `at` None: counts only."""

    def __init__(self, kind, at):
        self.kind, self.at, self.count, self.trains, self.child = kind, at, 0, True, None
        signal.signal(signal.SIGINT, self.interrupt)

    def interrupt(self, number, frame):
        if self.trains:
            raise KeyboardInterrupt

    def call(self, frame, event, _):
        if event != "call" or not any(part in frame.f_code.co_filename for part in _WHERE):
            return
        self.count += 1
        if self.count != self.at:
            return
        if self.kind == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.kind == "full":
            Journal._append = full
        if self.kind == "hammer":
            self.child = hammer(os.getpid())
        else:
            os.kill(os.getpid(), signal.SIGINT)


def life(folder, kind, what, at, resume):
    """One process of a run, until it ends, or is ended."""
    made, seen = trainer(folder, kind)
    fault, caught = Fault(what, at), None
    try:
        try:
            try:
                sys.setprofile(fault.call)
                made.train(resume_from_checkpoint=resume)
            finally:
                fault.trains = False
        finally:
            fault.trains = False  # another one, on the way
    except (KeyboardInterrupt, InvalidArgument, OSError) as error:
        caught = error
    sys.setprofile(None)
    if fault.child is not None:
        os.waitpid(fault.child, 0)
    if made._noisy is not None:
        seen.see(made._noisy.steps_taken, made.model)
    (folder / "count").write_text(str(fault.count))
    torch.save(weights(made.model), folder / "weights.pt")
    (folder / "said").write_text(f"{type(caught).__name__}: {caught}")


def forked(*given):
    """Its exit code; what it says goes nowhere."""
    pid = os.fork()
    if pid == 0:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        if "KILLER_LOUD" not in os.environ:
            os.dup2(null, 2)
        code = 70
        try:
            life(*given)
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def run(folder, kind, fault, at):
    folder.mkdir(parents=True)
    told = {"fault": fault, "at": at, "code": forked(folder, kind, fault, at, None), "folder": str(folder)}
    if at is not None and list((folder / "run").glob("checkpoint-*/private.safetensors")):
        told["resumed"] = forked(folder, kind, None, None, True)
        told["said"] = (folder / "said").read_text()
    return told


def main():
    kind, folder, points = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    warnings.simplefilter("ignore")
    logging.disable()
    whole = folder / "whole"
    run(whole, kind, None, None)
    count = int((whole / "count").read_text())
    told = []
    for number, fault in enumerate(FAULTS):
        # A fault has points of its own, most of them after the first checkpoint.
        for point in range(points):
            at = int(count * (0.3 + 0.7 * (point + (number + 0.7) / len(FAULTS)) / points))
            told.append(run(folder / f"{fault}-{at}", kind, fault, at))
    (folder / "told.json").write_text(json.dumps(told))


if __name__ == "__main__":
    main()
