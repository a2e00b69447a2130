"""A preset task trained with a plan, or without privacy: from data and model to weights, metrics and a receipt."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from opacus.distributed import DifferentiallyPrivateDistributedDataParallel
from safetensors.torch import save as save_tensors
from torch import nn

from plrvo.accounting import Plan, Workload
from plrvo.files import locked, write_bytes
from plrvo.noise import Keystream
from plrvo.records import Receipt
from plrvo.records import metrics as covered
from plrvo.records.folder import CHECKPOINT, DIAGNOSTICS, JOURNAL, LOCK, METRICS, RECEIPT, WEIGHTS
from plrvo.records.history import write_history
from plrvo.records.journal import Journal, reconcile
from plrvo.records.seeding import CALLERS_GENERATORS, FIXED_SEED, UNSEEDED
from plrvo.tasks.preset import Task, whole_batches
from plrvo.training import PoissonSampler, PrivacyEngine
from plrvo.training.checkpoint import read_extra
from plrvo.training.diagnostics import Diagnostics
from plrvo.training.loop import Metrics, Run, Watcher, train
from plrvo.training.plain import PlainOptimizer, summed
from plrvo.training.receipts import make_receipt, weights_digest
from plrvo.validate import InvalidArgument

OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]]
OPTIMIZERS = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
SCHEDULES = ("constant", "linear")
_LARGEST_RATE = 3e38  # torch multiplies parameters of 32 bits by it


@dataclass(frozen=True)
class Settings:
    """How a run is carried out. Nothing here may be chosen by looking at the private data."""

    out: Path
    learning_rate: float
    optimizer: str = "sgd"
    momentum: float = 0.0
    weight_decay: float = 0.0
    schedule: str = "constant"
    grad_sample_mode: str = "auto"
    postprocess: str | None = None
    expected_batch_size: int | None = None
    physical_batch: int | None = None
    evaluate_every: int = 50
    checkpoint_every: int = 50
    resume: bool = False
    seed: int | None = None
    unsafe_diagnostics: bool = False  # write what is known of private examples before the noise
    job: dict[str, Any] | None = None  # what was asked for (`plrvo.tasks.job`), kept in the folder

    def check(self) -> None:
        """Refuse what would fail after work has been done, or would overwrite another run."""
        check_choices(self.optimizer, self.schedule)
        if not 0 < self.learning_rate < _LARGEST_RATE:
            raise InvalidArgument("learning_rate", self.learning_rate, "above 0 and below 3e38, the largest float32")
        check_folder(self.out, self.resume)

    @property
    def fixed(self) -> dict[str, Any]:
        """What a resumed run must have in common with the one that it continues."""
        names = "learning_rate optimizer momentum weight_decay schedule postprocess grad_sample_mode "
        names += "expected_batch_size seed unsafe_diagnostics"
        return {name: getattr(self, name) for name in names.split()}

    def rate_at(self, steps: int) -> Callable[[int], float]:
        """The learning rate by the number of steps taken, for a run of `steps`: a linear one would end at zero."""
        if self.schedule == "constant":
            return lambda step: self.learning_rate
        return lambda step: self.learning_rate * (1 - step / steps)


def check_choices(optimizer: str | None, schedule: str | None) -> None:
    """Refuse names that there are not; None is a choice yet to be made."""
    if optimizer not in (None, *OPTIMIZERS):
        raise InvalidArgument("optimizer", optimizer, "one of " + ", ".join(OPTIMIZERS))
    if schedule not in (None, *SCHEDULES):
        raise InvalidArgument("schedule", schedule, "one of " + ", ".join(SCHEDULES))


def check_folder(out: Path, resume: bool) -> None:
    """Refuse a folder that cannot take a run, or holds another one."""
    if out.exists() and not out.is_dir():
        raise InvalidArgument("out", str(out), "a folder, not a file")
    if resume and not (out / CHECKPOINT).exists():
        raise InvalidArgument("resume", str(out), f"a folder that holds {CHECKPOINT}")
    if not resume and any((out / name).exists() for name in (CHECKPOINT, WEIGHTS, RECEIPT, JOURNAL)):
        raise InvalidArgument("out", str(out), "a new folder, or `resume`: this one holds a run")


def read_job(out: Path) -> Any:
    """What was asked for when the run in this folder was begun; None in one of an older version."""
    extra = read_extra(out / CHECKPOINT)
    return extra.get("job") if isinstance(extra, dict) else None


@dataclass(frozen=True)
class Streams:
    """Independent generators for the weights, the batches and the noise, all from one seed."""

    weights: torch.Generator
    batches: Keystream
    noise: Keystream

    @staticmethod
    def from_seed(seed: int | None) -> Streams:
        """A seed of None asks the operating system. The same seed gives the same three streams, and no privacy."""
        weights = torch.Generator()
        if seed is None:
            weights.seed()
            return Streams(weights, Keystream(), Keystream())
        weights.manual_seed(int(np.random.SeedSequence(seed).generate_state(1, np.uint64)[0] >> np.uint64(1)))
        return Streams(weights, Keystream.from_seed(seed, "batches"), Keystream.from_seed(seed, "noise"))


def build_optimizer(name: str, module: nn.Module, settings: Settings) -> torch.optim.Optimizer:
    """One of OPTIMIZERS."""
    own = {"momentum": settings.momentum} if name == "sgd" else {}
    parameters = [p for p in module.parameters() if p.requires_grad]
    return OPTIMIZERS[name](parameters, lr=settings.learning_rate, weight_decay=settings.weight_decay, **own)


def run_private(
    task: Task, module: nn.Module, plan: Plan, settings: Settings, streams: Streams, watch: Watcher | None = None
) -> Receipt | None:
    """Train with the plan's noise; returns the receipt, None in a process that does not write one.

    `resume` continues from the checkpoint in `settings.out`.
    """
    if plan.delta >= 1 / task.size:
        raise InvalidArgument(
            "delta", plan.delta, f"less than 1/N = {1 / task.size:.3g}; larger deltas allow leaking an example"
        )
    if not math.isfinite(plan.bracket.certified):
        raise InvalidArgument("noise", plan.noise.kind, "one for which an epsilon can be certified: use more noise")
    settings.check()
    chief = _join_processes()
    engine = PrivacyEngine(plan, postprocess=settings.postprocess)
    engine.validate(module=module)
    wrapped: Any = (
        DifferentiallyPrivateDistributedDataParallel(module) if torch.distributed.is_initialized() else module
    )
    prepared = engine.make_private(
        module=wrapped,
        optimizer=build_optimizer(settings.optimizer, module, settings),
        data_loader=whole_batches(task.data),
        criterion=task.loss,
        grad_sample_mode=settings.grad_sample_mode,
        expected_batch_size=settings.expected_batch_size or max(1, round(plan.batch_share * task.size)),
        noise_generator=streams.noise,
        sample_generator=streams.batches,
    )
    model, optimizer, *criterion, loader = prepared
    with _alone(settings) if chief else nullcontext():
        work = _Work(task, module, plan, settings, engine, model, optimizer, chief)
        history = work.begin()
        run = Run(
            module=model,
            optimizer=optimizer,
            loader=loader,
            loss=criterion[0] if criterion else task.loss,
            evaluate=lambda: _metrics(task, module, settings, optimizer.steps_taken == plan.workload.steps),
            epsilon=lambda: engine.get_epsilon(plan.delta),
            steps=plan.workload.steps,
            save=work.save,
            permits=work.permits,
            evaluate_every=settings.evaluate_every,
            checkpoint_every=settings.checkpoint_every,
            physical_batch=settings.physical_batch,
            learning_rate=settings.rate_at(plan.workload.steps),
            watch=watch if chief else None,
            diagnose=work.diagnostics,
            step=optimizer.steps_taken,
            history=history,
        )
        train(run)
        if work.receipt is None:  # resumed after the last step: nothing was left to do
            work.permits(run.step, True)
            work.save(run.history)
        return work.receipt


@dataclass
class _Work:
    """What a private run keeps in its folder, and what it takes up again from there."""

    task: Task
    module: nn.Module
    plan: Plan
    settings: Settings
    engine: PrivacyEngine
    model: Any  # the module, as the engine wrapped it
    optimizer: Any
    chief: bool
    receipt: Receipt | None = None

    def __post_init__(self) -> None:
        self.checkpoint = self.settings.out / CHECKPOINT
        self.journal = Journal.open(self.settings.out / JOURNAL)
        unsafe = self.settings.unsafe_diagnostics and self.chief
        self.diagnostics = Diagnostics(self.settings.out / DIAGNOSTICS, [dict(self.task.unsafe)]) if unsafe else None
        self.fixed = {
            **self.settings.fixed,
            "clipping": str(self.plan.clipping),
            "task": _anywhere(self.task.description),
        }
        self.history: list[dict[str, Any]] = []  # the run's own list, which grows

    def begin(self) -> list[dict[str, Any]]:
        """The metrics so far. A new run writes its random streams down before its first step."""
        observer = self.task.observer
        if not self.settings.resume:
            if observer is not None:
                observer.begin(self.optimizer, self.plan, None)
            self._write_checkpoint([])
            return self.history
        state = self.engine.load_checkpoint(path=self.checkpoint, module=self.model, optimizer=self.optimizer)
        try:
            self._take_up(state)
        except (LookupError, TypeError, AttributeError, ValueError) as error:
            if isinstance(error, InvalidArgument):
                raise
            raise InvalidArgument("resume", str(self.checkpoint), "a checkpoint that `plrvo train` wrote") from None
        return self.history

    def _take_up(self, state: dict[str, Any]) -> None:
        observer = self.task.observer
        for name, value in self.fixed.items():
            known = _anywhere(state["fixed"][name]) if name == "task" else state["fixed"].get(name)
            if known != value:
                raise InvalidArgument(name, value, f"{known}, as in the run that is resumed")
        reconcile(self.journal, state["journal"])
        lost = self.journal.steps - self.optimizer.steps_taken
        if lost > 0 and not self.repeatable:
            self._forfeit(lost)
        if observer is not None:
            observer.begin(self.optimizer, self.plan, state["observed"])
        self.history = [dict(row) for row in state["history"]]
        if self.diagnostics is not None:
            self.diagnostics.take_up(self.optimizer.steps_taken)

    def permits(self, step: int, wanted: bool) -> bool:
        """Whether results of this step may be seen; every process but the chief is blind."""
        if not self.chief:
            return wanted
        trainable = (p for p in self.module.parameters() if p.requires_grad)
        permitted = self.journal.permits(step, wanted, lambda: weights_digest(trainable))
        if permitted and not self.repeatable:  # at once, before an evaluation that may take long
            self._write_checkpoint(self.history)
        return permitted

    @property
    def repeatable(self) -> bool:
        """Whether steps after a checkpoint can be taken again with the same noise; not where its key is never kept."""
        generator = self.optimizer.generator
        return not isinstance(generator, Keystream) or generator.fixed

    def _forfeit(self, lost: int) -> None:
        """Count steps that were released after the checkpoint: others in their place would come on top of them."""
        if self.journal.steps >= self.plan.workload.steps:
            raise InvalidArgument(
                "resume",
                str(self.settings.out),
                "a run with steps left: all were released, the last after the checkpoint",
            )
        warnings.warn(
            f"{lost} steps were released after the checkpoint, and the key of their noise is gone: they are counted, "
            "and what was learned in them is lost",
            stacklevel=2,
        )
        work, sampler = self.plan.workload, self.engine.sampler
        self.engine.accountant.step(
            noise=self.plan.noise,
            sample_rate=work.sample_rate,
            clip=work.clip,
            dimension=self.optimizer.dimension,
            steps=lost,
        )
        if isinstance(sampler, PoissonSampler):
            sampler.remaining -= lost

    def save(self, metrics: list[dict[str, Any]]) -> None:
        """Checkpoint, weights, metrics and receipt, in this order: the receipt is true of the weights beside it."""
        if not self.chief:
            return
        out, task, steps = self.settings.out, self.task, self.optimizer.steps_taken
        self._write_checkpoint(metrics)
        write_bytes(out / WEIGHTS, save_tensors(_weights(task.released(self.module))))
        write_history(out / METRICS, metrics)
        audit = None
        if task.observer is not None and steps == self.plan.workload.steps:
            audit = task.observer.conclude(self.module, self.engine.get_epsilon(self.plan.delta))
        self.receipt = make_receipt(
            self.engine,
            self.optimizer,
            out / WEIGHTS,
            task.description,
            _how(self.settings, self.engine.seeded, metrics),
            audit,
            self.journal,
            covered.summary(out / METRICS, len(metrics)),
            self.settings.job and _anywhere(self.settings.job),
        )
        self.receipt.write(out / RECEIPT)

    def _write_checkpoint(self, metrics: list[dict[str, Any]]) -> None:
        if not self.chief:
            return
        if self.diagnostics is not None:  # before the checkpoint, which a resumed run takes their rows up to
            self.diagnostics.write()
        extra = {
            "history": metrics,
            "fixed": self.fixed,
            "observed": None if self.task.observer is None else self.task.observer.state(),
            "journal": self.journal.summary(),
            "job": self.settings.job,
        }
        self.engine.save_checkpoint(path=self.checkpoint, module=self.model, optimizer=self.optimizer, extra=extra)


def run_plain(
    task: Task, module: nn.Module, work: Workload, settings: Settings, streams: Streams, watch: Watcher | None = None
) -> list[dict[str, Any]]:
    """Train without privacy on the same kind of batches; returns the metrics over steps."""
    settings.check()
    sampler = PoissonSampler(
        size=task.size,
        sample_rate=work.sample_rate,
        steps=work.steps,
        generator=streams.batches,
        lengths=getattr(task.data, "lengths", None),
    )
    batch_size = settings.expected_batch_size or round(work.sample_rate * task.size)
    optimizer = PlainOptimizer(build_optimizer(settings.optimizer, module, settings), batch_size)

    def save(metrics: list[dict[str, Any]]) -> None:
        write_bytes(settings.out / WEIGHTS, save_tensors(_weights(module)))
        write_history(settings.out / METRICS, metrics)

    run = Run(
        module=module,
        optimizer=optimizer,
        loader=whole_batches(task.data, sampler),
        loss=summed(task.loss),
        evaluate=lambda: _metrics(task, module, settings, optimizer.steps_taken == work.steps),
        epsilon=lambda: None,
        steps=work.steps,
        save=save,
        evaluate_every=settings.evaluate_every,
        checkpoint_every=work.steps,
        physical_batch=settings.physical_batch,
        learning_rate=settings.rate_at(work.steps),
        watch=watch,
    )
    with _alone(settings):
        return train(run)


@contextmanager
def _alone(settings: Settings) -> Iterator[None]:
    """Nobody else works on the folder meanwhile."""
    with locked(settings.out / LOCK, "out"):
        settings.check()  # once more: another process may have been quicker
        yield


def _metrics(task: Task, module: nn.Module, settings: Settings, last: bool) -> Metrics:
    metrics = task.evaluate(module)
    return {**metrics, **task.finish(module, settings.out)} if last and task.finish else metrics


def _how(settings: Settings, seeded: bool, metrics: list[dict[str, Any]]) -> dict[str, Any]:
    known = FIXED_SEED if settings.seed is not None else CALLERS_GENERATORS
    return {
        "optimizer": settings.optimizer,
        "learning_rate": settings.learning_rate,
        "momentum": settings.momentum,
        "weight_decay": settings.weight_decay,
        "schedule": settings.schedule,
        "seeded": seeded,
        "randomness": known if seeded else UNSEEDED,
        "unsafe_diagnostics": settings.unsafe_diagnostics,
        "metrics": metrics[-1] if metrics else None,
    }


def _anywhere(words: dict[str, Any]) -> dict[str, Any]:
    """A task or a job wherever its data lies, which is of use on this machine and today only."""
    return {name: value for name, value in words.items() if name not in ("data_source", "data_dir")}


def _weights(module: nn.Module) -> dict[str, torch.Tensor]:
    return {name: tensor.detach().contiguous().clone() for name, tensor in module.state_dict().items()}


def _join_processes() -> bool:
    """Join the other processes that torchrun started; whether this one writes files and shows progress."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1 and not torch.distributed.is_initialized():
        torch.distributed.init_process_group("gloo")
    return not torch.distributed.is_initialized() or torch.distributed.get_rank() == 0
