"""What a private run keeps in its folder, from before its first step on, and what it takes up again from there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from safetensors.torch import save as save_tensors
from torch import nn

from plrvo.accounting import Plan
from plrvo.files import write_bytes
from plrvo.records import Receipt
from plrvo.records import metrics as covered
from plrvo.records.folder import CHECKPOINT, DIAGNOSTICS, METRICS, RECEIPT, WEIGHTS
from plrvo.records.history import write_history
from plrvo.records.seeding import CALLERS_GENERATORS, FIXED_SEED, UNSEEDED
from plrvo.tasks.preset import Task
from plrvo.tasks.releases import Releases
from plrvo.tasks.settings import WITH_MOMENTUM, Settings
from plrvo.training import PrivacyEngine
from plrvo.training.diagnostics import Diagnostics
from plrvo.training.receipts import make_receipt, weights_digest
from plrvo.validate import InvalidArgument


def write_results(
    settings: Settings, module: nn.Module, metrics: list[dict[str, Any]], base: str | None = None
) -> None:
    """Weights and metrics; where all that is not trained is that of a `base`, the others and the name of it."""
    trained = {name for name, parameter in module.named_parameters() if parameter.requires_grad}
    kept = {name: tensor for name, tensor in module.state_dict().items() if base is None or name in trained}
    tensors = {name: tensor.detach().contiguous().clone() for name, tensor in kept.items()}
    write_bytes(settings.out / WEIGHTS, save_tensors(tensors, metadata=None if base is None else {"base": base}))
    write_history(settings.out / METRICS, metrics)


@dataclass
class KeptRun:
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
        self.releases = Releases(self.settings.out, self.plan, self.engine, self.optimizer, self._released_digest)
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
            if self.chief:
                name = f"{self.task.description.get('name', 'a task')} in {self.settings.out.name}"
                self.releases.reserve(self.settings.budget, name)
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
        self.releases.take_up(state["journal"])
        self.releases.check_account(self.settings.budget, state.get("budget"))
        if self.chief:
            self.releases.go_on_charging(self.settings.budget, state.get("budget"))
        if observer is not None:
            observer.begin(self.optimizer, self.plan, state["observed"])
        self.history = [dict(row) for row in state["history"]]
        if self.diagnostics is not None:
            self.diagnostics.take_up(self.optimizer.steps_taken)

    def permits(self, step: int, wanted: bool) -> bool:
        """Whether results of this step may be seen; every process but the chief is blind."""
        if not self.chief:
            return wanted
        permitted = self.releases.permits(step, wanted)
        if permitted and not self.releases.repeatable:  # at once, before an evaluation that may take long
            self._write_checkpoint(self.history)
        return permitted

    def settle(self) -> None:
        """Give back to the account what was not released: no step is left, or will be taken."""
        if self.engine.charge is not None:
            self.engine.charge.settle()

    def let_go(self) -> None:
        """Leave the reservation to whoever resumes the run."""
        if self.engine.charge is not None:
            self.engine.charge.let_go()

    def _released_digest(self) -> str:
        with self.engine.averaged():
            return weights_digest(self.trained.values())

    @property
    def trained(self) -> dict[str, nn.Parameter]:
        """By name, what of the released weights is trained."""
        released = self.task.released(self.module)
        return {name: p for name, p in released.named_parameters() if p.requires_grad}

    def save(self, metrics: list[dict[str, Any]]) -> None:
        """Checkpoint, weights, metrics and receipt, in this order: the receipt is true of the weights beside it."""
        if not self.chief:
            return
        out, task, steps = self.settings.out, self.task, self.optimizer.steps_taken
        self._write_checkpoint(metrics)
        audit = None
        with self.engine.averaged():
            write_results(self.settings, task.released(self.module), metrics, task.base)
            if task.observer is not None and steps == self.plan.workload.steps:
                audit = task.observer.conclude(self.module, self.engine.get_epsilon(self.plan.delta))
        self.receipt = make_receipt(
            self.engine,
            self.optimizer,
            out / WEIGHTS,
            task.description,
            _how(self.settings, self.engine.seeded, metrics),
            audit,
            self.releases.journal,
            list(self.trained),
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
            "job": self.settings.job,
            **self.releases.parts(),
        }
        self.engine.save_checkpoint(path=self.checkpoint, module=self.model, optimizer=self.optimizer, extra=extra)


def _how(settings: Settings, seeded: bool, metrics: list[dict[str, Any]]) -> dict[str, Any]:
    known = FIXED_SEED if settings.seed is not None else CALLERS_GENERATORS
    return {
        "optimizer": settings.optimizer,
        "learning_rate": settings.learning_rate,
        **({"momentum": settings.momentum} if settings.optimizer in WITH_MOMENTUM else {}),
        "weight_decay": settings.weight_decay,
        "schedule": settings.schedule,
        **({} if settings.average is None else {"average": settings.average}),
        "seeded": seeded,
        "randomness": known if seeded else UNSEEDED,
        "unsafe_diagnostics": settings.unsafe_diagnostics,
        "metrics": metrics[-1] if metrics else None,
    }


def _anywhere(words: dict[str, Any]) -> dict[str, Any]:
    """A task or a job wherever its data and its account lie, which is of use on this machine and today only."""
    return {name: value for name, value in words.items() if name not in ("data_source", "data_dir", "budget")}
