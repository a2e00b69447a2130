"""A `transformers.Trainer` that trains with a plan: Poisson batches, clipped and noised steps, a receipt at the end.

It takes the same steps as `plrvo.training.loop`, from the same generators. What a Trainer writes and logs of private
examples before the noise (training loss, gradient norms, counts of tokens) is left out; the certified epsilon of the
steps so far is logged in its place.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from opacus.distributed import DifferentiallyPrivateDistributedDataParallel
from torch import nn
from torch.utils.checkpoint import CheckpointError
from torch.utils.data import DataLoader
from transformers import TrainingArguments
from transformers.trainer_utils import TrainOutput

from plrvo.accounting import Plan
from plrvo.budget import Account
from plrvo.budget.address import Address
from plrvo.files import locked
from plrvo.noise import Noise
from plrvo.records.choices import GradSampleMode
from plrvo.records.folder import LOCK
from plrvo.records.unit import check_author
from plrvo.tasks import trainer_refusals as refuse
from plrvo.tasks.objective import labels_of, objective_of, with_decoder_inputs
from plrvo.tasks.trainer_callbacks import Told
from plrvo.tasks.trainer_checkpoints import refuse_uploads, resumed
from plrvo.tasks.trainer_epochs import CountEpochs, EpochLoader, Epochs
from plrvo.tasks.trainer_kept import KeptTrainer
from plrvo.tasks.trainer_plan import Target, planned
from plrvo.tasks.trainer_signals import Signals
from plrvo.tasks.trainer_watched import refuse_hooks
from plrvo.tasks.trainer_weights import refuse_occupied
from plrvo.tasks.transformer import LogitsLoss, logits_of
from plrvo.training import PrivacyEngine
from plrvo.training.clipping.mode import fitting_mode
from plrvo.training.trackers import Tracker, spent
from plrvo.validate import InvalidArgument

_LOG = logging.getLogger(__name__)
_FEW = 3  # examples that the objective and the layers are tried with
_PRIVATE_LOGS = ("loss", "train_loss", "grad_norm", "total_flos")


class PrivateTrainer(KeptTrainer):
    """Your `Trainer` within a privacy budget.

    `target_epsilon` is all that has to be said: noise (Gaussian, or the shape that `noise` gives or names) is fitted to
    it, at `target_delta` (by default 1/(2N) for N examples), for the batches, epochs and `max_grad_norm` of your
    arguments. Or a `plan` says all of that, or the file of one. Positional arguments are a Trainer's.

    | argument of `TrainingArguments` | with `target_epsilon` | with a plan |
    |---|---|---|
    | `per_device_train_batch_size` | examples at once; a batch has all of a Trainer's | examples at once |
    | `gradient_accumulation_steps` | makes batches larger | 1: the plan's rate says how large a batch is |
    | `max_steps`, `num_train_epochs` | what noise is fitted to | the plan's; others are refused, but for 3 epochs |
    | `max_grad_norm` | the clip of each example's gradient | not used: the plan has a clip |

    With either, `bf16` and `fp16` are refused: in halves examples are rounded as others ask for.
    `dataloader_...` is not used in training: batches are drawn in this process. Optimizer, learning rate, schedule,
    collator, `gradient_checkpointing`, evaluation and saving are as ever.

    The objective is the model's own: for each example what the model computes as its loss when it is called with that
    example alone, and the mean over examples (`plrvo.tasks.objective`). `criterion(outputs, labels)` replaces it, and
    gives a loss for each example, or their mean. With `grad_sample_mode="alone"` no example meets another
    (`plrvo.training.alone`), whatever the model does with padding; it takes longer. An epoch ends where the examples
    have been met once more on average (`plrvo.tasks.trainer_epochs`).

    What is logged goes to `trackers` (`plrvo.training.trackers`) and to those of `report_to`; who made them closes
    them. `task` describes data and model in the receipt. Generators that are not given are seeded by the operating
    system. `budget` is an account, or its file or URL, that the plan is charged to.

    Processes that `torchrun` or `accelerate launch` started train one model: each computes its share of the plan's
    batches, noise is added once, and the first process alone writes checkpoints and the receipt.

    `class Own(PrivateTrainer, Seq2SeqTrainer)` evaluates by generated texts (`predict_with_generate`).

    What it cannot do is refused (`plrvo.tasks.trainer_refusals`): an own `compute_loss`, models with a loss that is not
    known and no criterion for it, callbacks that see gradients before the noise.
    """

    def __init__(
        self,
        model: nn.Module | None = None,
        args: Any = None,
        data_collator: Any = None,
        train_dataset: Any = None,
        eval_dataset: Any = None,
        processing_class: Any = None,
        *,
        plan: Plan | Path | str | None = None,
        target_epsilon: float | None = None,
        target_delta: float | None = None,
        noise: Noise | str | None = None,
        criterion: Callable[[Any, torch.Tensor], torch.Tensor] | None = None,
        postprocess: str | None = None,
        clipping: str | None = None,
        grad_sample_mode: str = "auto",
        expected_batch_size: int | None = None,
        noise_generator: torch.Generator | None = None,
        sample_generator: torch.Generator | None = None,
        task: dict[str, Any] | None = None,
        trackers: Sequence[Tracker] = (),
        budget: Account | Address | str | None = None,
        **kwargs: Any,
    ) -> None:
        refuse.refuse_keywords(kwargs)
        refuse.refuse_overrides(self, PrivateTrainer)
        args = TrainingArguments("tmp_trainer") if args is None else args  # as a Trainer has it
        kwargs |= {"data_collator": data_collator, "train_dataset": train_dataset, "eval_dataset": eval_dataset}
        refuse.refuse_data(model, train_dataset)
        check_author(task or {})
        refuse.refuse_generation(self, args)
        refuse.refuse_schedule(args, train_dataset, eval_dataset)
        target = Target(target_epsilon, target_delta, noise)
        plan, args = planned(plan, target, model, args, train_dataset, clipping)  # type: ignore[arg-type]
        kept = refuse.checked_arguments(args, plan)
        self._epochs = Epochs(plan.batch_share, plan.workload.steps)
        self._signals = Signals(self._answer_signal)
        kwargs["callbacks"] = [CountEpochs(self._epochs), *(kwargs.get("callbacks") or ())]
        super().__init__(model=model, args=kept, processing_class=processing_class, **kwargs)
        refuse.refuse_accelerator(self.accelerator)
        self.engine = PrivacyEngine(plan, postprocess=postprocess)
        self._budget = budget if isinstance(budget, Account | None) else Account(budget)
        self._criterion: Any = criterion  # None until the model has been asked
        self._lacks_loss = False
        self._options: dict[str, Any] = {
            "clipping": clipping,
            "grad_sample_mode": grad_sample_mode,
            "expected_batch_size": expected_batch_size,
            "noise_generator": noise_generator,
            "sample_generator": sample_generator,
        }
        self._clipping = plan.clipping
        self._task = task or {}
        if trackers:
            self.add_callback(Told(trackers))

    def train(
        self, resume_from_checkpoint: Any = None, trial: Any = None, ignore_keys_for_eval: list[str] | None = None
    ) -> TrainOutput:
        """All steps of the plan; then the weights and the receipt are in `output_dir`.

        `resume_from_checkpoint` is the last folder that this trainer saved, or True. Earlier ones are refused: the
        steps after them were released, and others in their place would be in no ledger.
        """
        output = Path(str(self.args.output_dir))
        folder = resumed(resume_from_checkpoint, output)
        if trial is not None:
            raise InvalidArgument("trial", trial, "None: every trial of a search spends a budget of its own")
        if self._private is not None:
            raise InvalidArgument("plan", self._noisy.steps_taken, "one call of train(): its steps have been taken")
        self._resumes = folder is not None
        if not self._resumes:
            refuse_occupied(output)
        refuse.refuse_overrides(self, PrivateTrainer)  # once more: methods can be put into an object
        for callback in self.callback_handler.callbacks:
            refuse.refuse_callback(callback)
        refuse_uploads(self.args, self.callback_handler.callbacks)
        with ExitStack() as left:
            if self.is_world_process_zero():
                left.enter_context(locked(output / LOCK, "output_dir"))
            left.enter_context(self._signals)
            left.callback(self._leave)
            done = super().train(resume_from_checkpoint=folder, ignore_keys_for_eval=ignore_keys_for_eval)
            self._finish()
        metrics = {name: value for name, value in done.metrics.items() if name not in _PRIVATE_LOGS}
        # The loss of private examples is not released; NaN would look like a run that diverged.
        return TrainOutput(done.global_step, None, metrics)  # type: ignore[arg-type]

    def get_train_dataloader(self) -> Any:
        """Poisson batches at the plan's rate. The model and the optimizer become private with it."""
        collate = self._get_collator_with_removed_columns(self.data_collator, description="training")
        data: Any = self.train_dataset
        trained: Any = self.model
        if data is None:
            raise InvalidArgument("train_dataset", None, "a data set, of which each step draws examples")
        trained.train()  # as every Trainer does; `from_pretrained` gives models in eval mode
        # The first process's weights are everybody's from here on, and one model is trained.
        shared = DifferentiallyPrivateDistributedDataParallel(trained) if self.args.world_size > 1 else trained
        plain: DataLoader[Any] = DataLoader(data, collate_fn=collate)
        if self.is_world_process_zero():
            _LOG.info("trying the model on a few examples: the first steps take longer")
        few = dict(self._prepare_inputs(collate([data[i] for i in range(min(_FEW, len(data)))])))
        refuse.refuse_batch(few)
        if self._criterion is None:
            self._criterion = objective_of(trained, few)
            self._lacks_loss = isinstance(self._criterion, LogitsLoss)
        if self._options["grad_sample_mode"] == "auto":
            self._options["grad_sample_mode"] = fitting_mode(
                trained, self._clipping, lambda model: self._loss_of(model, few)
            )
        refuse.refuse_recomputing(trained, self._options["grad_sample_mode"])
        optimizer = self.create_optimizer()
        refuse_hooks(optimizer)
        prepared = self.engine.make_private(
            module=shared,
            optimizer=optimizer,
            data_loader=plain,
            criterion=self._loss_of_one if self._is_alone else self._criterion,
            steps_per_epoch=self.args.max_steps,  # one stream of batches, which is cut into epochs here
            **self._options,
        )
        self._private, self._noisy, *criterion, loader = prepared
        self._criterion = criterion[0] if criterion else self._criterion
        self.optimizer = self._noisy
        self._begin()
        return EpochLoader(loader, self._epochs, lambda: self._noisy.steps_taken)

    def set_initial_training_values(self, *args: Any, **kwargs: Any) -> Any:
        """As ever, with as many epochs as there are: they need not have the same number of steps."""
        _, *others = super().set_initial_training_values(*args, **kwargs)
        return len(self._epochs.ends), *others

    def _wrap_model(self, model: nn.Module, training: bool = True, dataloader: Any = None) -> nn.Module:
        """In several processes the private module: accelerate's own wrapper would add up gradients before the noise."""
        if training and self.args.world_size > 1:
            private: nn.Module = self._private
            return private
        return super()._wrap_model(model, training, dataloader)

    def add_callback(self, callback: Any) -> None:
        """As ever, unless it would see gradients before the noise."""
        refuse.refuse_callback(callback)
        super().add_callback(callback)

    def training_step(self, model: nn.Module, inputs: dict[str, Any], num_items_in_batch: Any = None) -> torch.Tensor:
        """Clip what a batch contributes, part by part; the Trainer calls the optimizer, which adds the noise."""
        model.train()
        batch: Any = inputs if self._is_alone else dict(self._prepare_inputs(inputs))
        most = self.args.per_device_train_batch_size
        starts = range(0, max(1, len(batch if self._is_alone else labels_of(batch))), most)
        for start in starts:
            last = start == starts[-1]
            self._noisy.signal_skip_step(do_skip=not last)
            self._noisy.zero_grad()
            self._backward(batch, slice(start, start + most))
            if not last:
                self._noisy.step()
        return torch.zeros((), device=self.args.device)  # the loss of private examples is not for the logs

    def compute_loss(self, model: Any, inputs: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        """Of evaluations: the model's own, or cross entropy of its logits where it has none."""
        if not self._lacks_loss:
            return super().compute_loss(model, inputs, *args, **kwargs)
        logits = logits_of(model(**{name: value for name, value in inputs.items() if name != "labels"}))
        return (loss := LogitsLoss()(logits, labels_of(inputs))), {"loss": loss, "logits": logits}

    @property
    def _plain_kind(self) -> type[KeptTrainer]:
        return PrivateTrainer

    @property
    def _is_alone(self) -> bool:
        """Whether a batch is a list of examples, each collated by itself."""
        return bool(self._options["grad_sample_mode"] == GradSampleMode.alone)

    def _backward(self, batch: Any, part: slice) -> None:
        if self._is_alone:
            self._private.backward(batch[part])
            return
        with warnings.catch_warnings():
            # PyTorch's remark about the first layer, whose input needs no gradient.
            warnings.filterwarnings("ignore", message="Full backward hook is firing", category=UserWarning)
            refuse.refuse_batch(batch)
            try:
                self._loss_of(self._private, {name: value[part] for name, value in batch.items()}).backward()
            except CheckpointError:  # "auto" has come to functorch on this batch
                refuse.refuse_recomputing(self.model, str(self.engine.grad_sample_mode))
                raise

    def _loss_of_one(self, model: Any, example: Any) -> Any:
        """The objective on an example that never meets another."""
        return self._loss_of(model, dict(self._prepare_inputs(example)))

    def _loss_of(self, model: Any, batch: dict[str, Any]) -> Any:
        """The objective on a batch with its labels."""
        inputs = with_decoder_inputs(self.model, batch)
        outputs = model(**{name: value for name, value in inputs.items() if name != "labels"})
        loss = self._criterion(outputs, labels_of(batch))
        return loss.mean() if loss.ndim == 1 else loss  # a criterion may give one loss for each example

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Without what is known of private examples, with both epsilons so far: for every tracker of `report_to`."""
        kept = {name: value for name, value in logs.items() if name not in _PRIVATE_LOGS}
        plan = self.engine.plan
        if plan is not None and self._noisy is not None and self._noisy.steps_taken:
            kept |= spent(self.engine, plan.delta)
        super().log(kept, start_time)

    def floating_point_ops(self, inputs: dict[str, Any]) -> int:
        """Not counted: it would tell how long private examples are."""
        return 0

    def _clip_grad_norm(self, model: nn.Module) -> None:
        """Each example has been clipped; the sum is not, and its norm is private."""

    def _get_grad_norm(self, model: nn.Module, grad_norm: Any = None) -> None:
        """As above."""
