"""What a private trainer keeps: a journal of what was shown, checkpoints that it goes on from, weights with a receipt.

Whatever shows something of a step's weights (an evaluation, a checkpoint, own code that is given the model, the end of
the run, even by a crash) is written into the journal before; with fresh noise, code in a step that is not known not to
look (`plrvo.tasks.trainer_code`) has every step counted in advance. So the steps of a receipt are never fewer than
those of which something was seen, whatever becomes of the run in between (`plrvo.tasks.releases`). Where that cannot be
written down (a full disk, half a step of noise that can be taken again), the weights are erased before anybody has the
model.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from inspect import signature
from pathlib import Path
from typing import Any

import torch
from transformers import Trainer

from plrvo.budget import Account
from plrvo.records.folder import RECEIPT
from plrvo.tasks.releases import Releases
from plrvo.tasks.trainer_checkpoints import PRIVATE, refuse_earlier
from plrvo.tasks.trainer_receipt import run_of, task_of
from plrvo.tasks.trainer_schedule import kept_state, load_state
from plrvo.tasks.trainer_signals import Signals
from plrvo.tasks.trainer_watched import looks_at_logs, looks_at_steps, refuse_hooks, runs_own_code
from plrvo.tasks.trainer_weights import written
from plrvo.training import PrivacyEngine
from plrvo.training.receipts import make_receipt, weights_digest
from plrvo.validate import InvalidArgument

_DECISIONS = ("should_training_stop", "should_epoch_stop", "should_log", "should_evaluate", "should_save")


class KeptTrainer(Trainer):
    """A `Trainer` whose steps an engine counts, which a subclass makes private."""

    engine: PrivacyEngine
    _task: dict[str, Any]
    _budget: Account | None = None
    _private: Any = None  # the model under its wrapper, from the first call on
    _noisy: Any = None
    _releases: Any = None  # what may have been seen of the run, from before its first step on
    _resumes = False
    _shown_at = 0  # the last step of which something was shown
    _saved_at = 0  # the step of the last checkpoint
    _whole_at = 0  # the last step that the optimizer has come to the end of
    _has_begun = _is_done = _is_erased = False
    _runs_own_code = False  # has been found in a step, or before one
    _weights_of: int | None = None  # the step that they are of, where it is not the last: the best, or before lost ones
    _signals: Signals

    def _finish(self) -> None:
        """Weights and receipt."""
        trained: Any = self.model
        self._show()
        self._keep_last()
        self._private.to_standard_module()
        self.model_wrapped = trained
        self.save_model()
        if self.is_world_process_zero():
            self._write_receipt()
        self.engine.accountant.ended = True  # a step after this one is not in the receipt
        if self._noisy.steps_taken == self.args.max_steps:  # a run that was stopped may be resumed, with its charge
            self.engine.settle()
        self._is_done = True
        self.accelerator.wait_for_everyone()  # whoever goes on finds weights and receipt

    def _leave(self) -> None:
        """However it ends: whoever has the trainer has the model, and another may go on with the run."""
        with self._signals.held():
            try:
                if self._has_begun and not self._is_done:
                    self._write_down_or_erase()
            finally:
                if self.engine.charge is not None:
                    self.engine.charge.let_go()

    def _write_down_or_erase(self) -> None:
        """Leave nothing in the model that is not in the journal.

        A step that has not come to its end has no weights that a repetition could be compared with. With fresh noise,
        which nobody repeats, it is counted as it stands.
        """
        step, releases, why = self._noisy.steps_taken, self._releases, "the step was not taken to its end"
        if step <= self._shown_at:
            return
        if not self.is_world_process_zero():
            why = "the first process alone keeps the journal"
        elif step == self._whole_at or not releases.repeatable:
            why = "it is no repetition of what the journal has"
            try:
                if self._permits(step, True):
                    return
            except InvalidArgument:  # what has ended the run, if anything
                pass
            except OSError as error:
                if releases.journal.weights_at.get(step) in ("", self._digest()):
                    return  # it is counted; or the account alone was not told
                why = str(error)
        self._erase(step, why)

    def _erase(self, step: int, why: str) -> None:
        """Weights that nobody has counted, and what they could be computed from."""
        trained: Any = self.model
        self._is_erased = True
        self._noisy.original_optimizer.state.clear()
        with torch.no_grad():
            for p in trained.parameters():
                if p.requires_grad:
                    p.grad = None
                    p.fill_(torch.nan)
        warnings.warn(
            f"the weights of step {step} were erased, as the journal does not have them ({why}): "
            "train(resume_from_checkpoint=True) of a new trainer goes on from the last checkpoint",
            stacklevel=2,
        )

    @contextmanager
    def _step_in_one(self) -> Iterator[None]:
        """What the optimizer takes each step within: it comes to its end, and is written down if somebody may look."""
        self._signals.go_on()
        self._signals.take_over()
        refuse_hooks(self._noisy.original_optimizer, self._noisy._hooks)
        with self._signals.held():
            before, self._has_begun = self._noisy.steps_taken, True
            self._count_in_advance(before + 1)
            yield
            if self._noisy.steps_taken > before:
                self._whole_at, self._weights_of = self._noisy.steps_taken, None
                if self._releases.repeatable and looks_at_steps(self, self._plain_kind):
                    self._show()

    def _count_in_advance(self, step: int) -> None:
        """Count a step before it is taken, if its noise is fresh and code that may look at it runs in it or after it.

        What was found once counts until the run is left: it may hide what it has put somewhere.
        """
        is_last_part = not self._noisy._check_skip_next_step(pop_next=False)
        if self._releases.repeatable or not is_last_part or step > self.args.max_steps:
            return
        self._runs_own_code = self._runs_own_code or runs_own_code(self, self._plain_kind)
        if self._any_process(self._runs_own_code) and self.is_world_process_zero():
            self._releases.count(step)

    def _answer_signal(self) -> None:
        """Before whoever waits for a signal is told of it: they may look at the model."""
        if self._releases is not None and self._whole_at == self._noisy.steps_taken > self._shown_at:
            with suppress(InvalidArgument, OSError):  # what is raised ends the run, which erases what is not there
                self._permits(self._whole_at, True)

    def _show(self) -> None:
        """Before anything is seen of the steps so far, write down that it may be."""
        if self._is_erased:
            raise InvalidArgument(
                "model", "erased weights", "a new trainer and train(resume_from_checkpoint=True): see the warning"
            )
        step = 0 if self._releases is None else self._noisy.steps_taken
        if step > self._shown_at and not self._permits(step, True):
            self._refuse_to_show(step)

    def _refuse_to_show(self, step: int) -> None:
        raise InvalidArgument(
            "resume_from_checkpoint",
            step,
            f"the callbacks and evaluations of the run that is resumed: it showed no step before "
            f"{self._releases.journal.steps} that it had not shown then",
        )

    def _permits(self, step: int, wanted: bool) -> bool:
        """Whether this step may be seen; every process but the first is blind."""
        if step <= self._shown_at or not self.is_world_process_zero():
            return wanted
        with self._signals.held():
            permitted: bool = self._releases.permits(step, wanted)
            self._shown_at = step if permitted else self._shown_at
        return permitted

    def evaluation_loop(self, *args: Any, **kwargs: Any) -> Any:
        """As ever; what is measured is written down as seen before."""
        self._show()
        return super().evaluation_loop(*args, **kwargs)

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """As ever; what is saved is written down as seen before."""
        self._show()
        super().save_model(output_dir, _internal_call)

    def _keep_last(self) -> None:
        """A run that was stopped goes on from what it released last."""
        step, keeps = self.state.global_step, self.args.save_strategy != "no" and not self.args.save_only_model
        if keeps and self._saved_at != step < self.args.max_steps:
            self._save_checkpoint(self._private, None)

    def _load_best_model(self) -> None:
        """As ever; the last weights, which a run goes on from, are saved before others are in their place.

        A Trainer warns if it finds no weights to load, and loads what it finds: they are compared with the journal.
        """
        self._show()
        self._keep_last()
        last = self._digest()
        super()._load_best_model()
        now, best = self._digest(), self.state.best_global_step
        if not self.is_world_process_zero():  # it writes no receipt
            return
        if self._releases.journal.weights_at.get(best) == now:
            self._weights_of = best
        elif now == last:
            warnings.warn(f"no weights of the best step {best} were found: those of the last step stay", stacklevel=2)
        else:
            raise InvalidArgument(
                "load_best_model_at_end",
                str(self.state.best_model_checkpoint),
                f"the weights of step {best}, as they were shown: others have been put there "
                "(resume_from_checkpoint=True with load_best_model_at_end=False takes the last ones)",
            )

    @property
    def _plain_kind(self) -> type[Trainer]:
        """The class whose methods are known not to look at the model."""
        return KeptTrainer

    def _digest(self) -> str:
        trained: Any = self.model
        return weights_digest(p for p in trained.parameters() if p.requires_grad)

    def _begin(self) -> None:
        """Before a batch is drawn."""
        output, trained = Path(str(self.args.output_dir)), self.model
        plan: Any = self.engine.plan
        self._releases = Releases(output, plan, self.engine, self._noisy, self._digest)
        self._runs_own_code = runs_own_code(self, self._plain_kind)
        self._noisy.around = self._step_in_one
        if not self._resumes and self.is_world_process_zero():
            self._releases.reserve(self._budget, f"{type(trained).__name__} in {output.name}")

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        """One file for optimizer, ledger and random streams, its owner's alone, in the place of two pickles.

        The first process's, which has drawn the noise; ledger, batches and optimizer are the same in all of them.
        """
        self._saved_at = self.state.global_step
        if not self.is_world_process_zero():
            return
        self.engine.save_checkpoint(
            path=Path(output_dir) / PRIVATE,
            module=self._private,
            optimizer=self._noisy,
            extra={"schedule": kept_state(self.lr_scheduler), **self._releases.parts()},
        )

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        """As the run was when the file was written; a file of another plan or model is refused."""
        if checkpoint is None:
            return
        output, releases = Path(str(self.args.output_dir)), self._releases
        refuse_earlier(Path(checkpoint), output / RECEIPT, releases.journal.steps)
        kept = self.engine.load_checkpoint(path=Path(checkpoint) / PRIVATE, module=self._private, optimizer=self._noisy)
        if "journal" not in kept:
            raise InvalidArgument(
                "resume_from_checkpoint", checkpoint, "one that knows what was shown: an older version wrote this one"
            )
        releases.check_account(self._budget, kept.get("budget"))
        rates: Any = self.lr_scheduler
        load_state(rates, kept["schedule"])
        step_of_weights = self._noisy.steps_taken
        for _ in range(lost := releases.take_up(kept["journal"], may_end=True)):
            if "metrics" not in signature(rates.step).parameters:  # which step where there are metrics
                rates.step()
        self._weights_of = step_of_weights if lost else None
        if self.is_world_process_zero():
            releases.go_on_charging(self._budget, kept.get("budget"))
        self.state.global_step = self._shown_at = self._whole_at = self._noisy.steps_taken

    def _maybe_log_save_evaluate(self, *args: Any, **kwargs: Any) -> None:
        """As ever, in all processes or in none: a callback of one that stops would leave the others waiting.

        At the end of a run its weights are given to whoever asks for them (the trackers of `report_to` do).
        """
        self._agree()
        self._signals.take_over()
        control, step = self.control, self._noisy.steps_taken
        logs = self._as_the_first(control.should_log and looks_at_logs(self, self._plain_kind))
        ends = control.should_training_stop or step >= self.args.max_steps
        wanted = control.should_evaluate or control.should_save or logs or ends
        if not self._as_the_first(self._permits(step, wanted)) and wanted:
            if ends:
                self._refuse_to_show(step)
            control.should_evaluate = control.should_save = False  # until a repetition has been proved one
            control.should_log = control.should_log and not logs
        super()._maybe_log_save_evaluate(*args, **kwargs)
        self._agree()

    def _as_the_first(self, own: bool) -> bool:
        """What the first process says, which alone knows of the journal, and may alone have trackers."""
        if self.args.world_size == 1:
            return own
        asked = torch.tensor(own, dtype=torch.uint8, device=self.args.device)
        torch.distributed.broadcast(asked, 0)
        return bool(asked.item())

    def _any_process(self, own: bool) -> bool:
        """What any of the processes says: each may have callbacks of its own."""
        if self.args.world_size == 1:
            return own
        asked = torch.tensor(own, dtype=torch.uint8, device=self.args.device)
        torch.distributed.all_reduce(asked, op=torch.distributed.ReduceOp.MAX)
        return bool(asked.item())

    def _agree(self) -> None:
        if self.args.world_size > 1:
            own = [getattr(self.control, name) for name in _DECISIONS]
            asked = torch.tensor(own, dtype=torch.uint8, device=self.args.device)
            torch.distributed.all_reduce(asked, op=torch.distributed.ReduceOp.MAX)
            for name, wanted in zip(_DECISIONS, asked.tolist(), strict=True):
                setattr(self.control, name, bool(wanted))

    def _write_receipt(self) -> None:
        folder = Path(str(self.args.output_dir))
        trained: Any = self.model
        task = task_of(trained, self.train_dataset, self._task)
        optimizer = self._noisy.original_optimizer
        run = run_of(optimizer, self.args, self.engine.seeded, self.state.log_history, self._weights_of)
        weights, names = written(folder, trained)
        parts: Any = {"journal": self._releases.journal, "trained": names}
        make_receipt(self.engine, self._noisy, weights, task, run, **parts).write(folder / RECEIPT)
