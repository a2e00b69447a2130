"""What a `Trainer` can be told and a private one cannot do: refused in one line, and never ignored.

| what | why |
|---|---|
| `compute_loss`, `training_step`, samplers and loaders of a subclass | steps are taken by the engine, not by these |
| losses of a model's own that `plrvo.tasks.objective` does not know | without a `criterion` another would be trained |
| callbacks before the optimizer's step, watched gradients | they see sums without noise |
| FSDP, DeepSpeed, several devices in one process | no process has all of an example's gradient |
| processes that `args` do not know of | each would train a model of its own, and claim an epsilon for it alone |
| data without a length, generated texts in a class that has none | nothing could be drawn; it would be ignored |
| checkpoints that are uploaded (`trainer_checkpoints`) | a file in them can give away all noise |
| float16, fused kernels | a scaler skips steps by gradients before the noise; not shown to keep examples apart |
"""

from __future__ import annotations

import copy
import math
import os
from typing import Any

import numpy as np
import torch
from transformers import Seq2SeqTrainer, Trainer, TrainerCallback

from plrvo.accounting import Plan
from plrvo.records.choices import GradSampleMode
from plrvo.tasks.objective import OWN_LOSS
from plrvo.training.apart import IN_HALVES
from plrvo.validate import InvalidArgument, positive_integer

# What these do would happen outside the account, or has not been shown to keep examples apart.
_ARGUMENTS = (
    *("fp16", "deepspeed", "fsdp", "torch_compile", "auto_find_batch_size"),
    *("label_smoothing_factor", "neftune_noise_alpha", "include_num_input_tokens_seen", "use_liger_kernel", "debug"),
    *("optim_target_modules", "parallelism_config", "group_by_length", "use_legacy_prediction_loop"),
    "enable_jit_checkpoint",  # saves between the gradients and the noise
)
_METHODS = (
    *("compute_loss", "training_step", "get_train_dataloader", "_get_train_sampler", "get_batch_samples"),
    *("_save_optimizer_and_scheduler", "_load_optimizer_and_scheduler"),
    *("compute_loss_context_manager", "_inner_training_loop", "_run_epoch", "_wrap_model", "_clip_grad_norm"),
    "_get_grad_norm",
)
_PLAIN = ("NO", "MULTI_CPU", "MULTI_GPU")  # of accelerate's kinds: every process has the whole model
# What `accelerate launch` sets, also where nothing comes of it: whoever asks for it is told.
_SHARDS = ("ACCELERATE_USE_FSDP", "ACCELERATE_USE_DEEPSPEED", "ACCELERATE_USE_MEGATRON_LM")
# How many processes torchrun has started, or an MPI, by whichever name.
_STARTED = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE")
_FOLLOWING = ("reduce_lr_on_plateau", "greedy")  # schedules that look at a metric of each evaluation
_DEFAULT_EPOCHS = 3.0  # of TrainingArguments: as good as not given
_BEFORE_NOISE = ("on_pre_optimizer_step", "on_substep_end")


def refuse_data(model: Any, examples: Any) -> None:
    """A model and, if there are examples already, such as can be drawn one by one."""
    if model is None:
        raise InvalidArgument("model", None, "a model: its weights are what is trained")
    if examples is not None and not (hasattr(examples, "__len__") and hasattr(examples, "__getitem__")):
        raise InvalidArgument(
            "train_dataset",
            type(examples).__name__,
            "one with a length and an index (no stream): any example may be drawn in any step",
        )


def refuse_batch(batch: dict[str, Any]) -> None:
    """What a collator has put into a batch that has no row for each example: it cannot be given on in parts."""
    for name, value in batch.items():
        if not isinstance(value, list | tuple | np.ndarray | torch.Tensor) or getattr(value, "ndim", 1) == 0:
            said = f"no {name}={value!r}: tensors with a row for each example; what is the same for all goes into "
            raise InvalidArgument("data_collator", type(value).__name__, f"{said}the model's config")


def refuse_recomputing(model: Any, mode: str) -> None:
    """Activations that are computed again on the way back, where gradients are formed in a way that cannot."""
    if not getattr(model, "is_gradient_checkpointing", False):
        return
    if mode == GradSampleMode.functorch:
        raise InvalidArgument(
            "gradient_checkpointing",
            True,
            "False, or grad_sample_mode='alone': functorch, which this model is given, cannot compute again",
        )
    again = (getattr(part, "_gradient_checkpointing_func", None) for part in model.modules())
    if mode == GradSampleMode.alone and any(getattr(func, "keywords", {}).get("use_reentrant") for func in again):
        raise InvalidArgument(
            "gradient_checkpointing_kwargs",
            {"use_reentrant": True},
            "use_reentrant False with grad_sample_mode='alone'",
        )


def refuse_schedule(args: Any, examples: Any, evaluated: Any) -> None:
    """A schedule that follows a metric of the private examples, which no noise hides."""
    kind = str(getattr(args.lr_scheduler_type, "value", args.lr_scheduler_type))
    if kind in _FOLLOWING and examples is not None:
        sets = evaluated.values() if isinstance(evaluated, dict) else [evaluated]
        if any(each is examples for each in sets):
            raise InvalidArgument(
                "lr_scheduler_type",
                kind,
                "linear (or another that looks at no metric), or an eval_dataset of public data",
            )


def refuse_generation(trainer: Trainer, args: Any) -> None:
    """Evaluation by generated texts, in a class that does not know of it."""
    if getattr(args, "predict_with_generate", False) and not isinstance(trainer, Seq2SeqTrainer):
        raise InvalidArgument(
            "predict_with_generate", True, "class Own(PrivateTrainer, Seq2SeqTrainer): a Trainer alone ignores it"
        )


def checked_arguments(args: Any, plan: Plan) -> Any:
    """A copy of the arguments with the plan's number of steps, and nothing that the Trainer would do by itself.

    A resumed run goes on with the rest of the plan's batches, of which none are to be skipped.
    """
    steps = plan.workload.steps
    for name in _ARGUMENTS:
        if getattr(args, name, None) not in (None, False, 0, "", "no", [], {}):
            raise InvalidArgument(name, getattr(args, name), "its default: it is not supported in private training")
    positive_integer(per_device_train_batch_size=args.per_device_train_batch_size)
    optimizer, sampling = getattr(args, "optim", ""), getattr(args, "train_sampling_strategy", "random")
    optimizer = str(getattr(optimizer, "value", optimizer))  # an enumeration, or its word
    if "lomo" in optimizer or "layerwise" in optimizer:
        raise InvalidArgument("optim", optimizer, "an optimizer that steps after the backward pass, not within it")
    if sampling != "random":
        raise InvalidArgument("train_sampling_strategy", sampling, "random: batches are drawn by the plan")
    if args.label_names not in (None, ["labels"]):
        raise InvalidArgument("label_names", args.label_names, "labels, and no others")
    if os.environ.get("WANDB_WATCH", "false").lower() in ("gradients", "all"):
        raise InvalidArgument(
            "WANDB_WATCH", os.environ["WANDB_WATCH"], "false: it would log gradients before the noise"
        )
    if args.bf16:
        raise InvalidArgument("bf16", True, f"False and {IN_HALVES}")
    if args.mixed_precision != "no":  # as `accelerate launch` says it, too
        raise InvalidArgument("mixed_precision", args.mixed_precision, f"no and {IN_HALVES}")
    if args.gradient_accumulation_steps != 1:
        raise InvalidArgument(
            "gradient_accumulation_steps",
            args.gradient_accumulation_steps,
            "1: the plan's sampling rate says how large a batch is, per_device_train_batch_size how much of it is "
            "in memory at once",
        )
    _check_processes(args)
    if args.max_steps not in (-1, steps):
        raise InvalidArgument("max_steps", args.max_steps, f"{steps}, the plan's steps, or -1")
    epochs = args.num_train_epochs
    if args.max_steps == -1 and epochs != _DEFAULT_EPOCHS and math.ceil(epochs / plan.batch_share - 1e-9) != steps:
        raise InvalidArgument(
            "num_train_epochs",
            epochs,
            f"{steps * plan.batch_share:.6g}, which is what the plan's {steps} steps are, or the default "
            f"{_DEFAULT_EPOCHS:g}, which says nothing",
        )
    copied = copy.copy(args)
    copied.max_steps, copied.ignore_data_skip = steps, True
    copied.bf16, copied.mixed_precision = False, "no"
    # Counts of tokens are not for others, and a Trainer would multiply losses that it evaluates by the processes.
    copied.average_tokens_across_devices = False
    if copied.load_best_model_at_end and copied.save_total_limit == 1:
        # The best and the last, which a run that was stopped goes on from: as a Trainer has it until its end.
        copied.save_total_limit = 2
    return copied


def _check_processes(args: Any) -> None:
    """One device for each process, and all processes in one run."""
    if args.n_gpu > 1:
        raise InvalidArgument("n_gpu", args.n_gpu, "1: one device for each process, which torchrun starts")
    joined = torch.distributed.get_world_size() if torch.distributed.is_initialized() else 1
    started = max(int(os.environ.get(name) or 1) for name in _STARTED)
    if args.world_size != joined or started > args.world_size:
        raise InvalidArgument(
            "world_size",
            args.world_size,
            f"{max(joined, started)}, the processes that were started: each would train a model of its own on the same "
            "examples (start them by torchrun or accelerate launch, and make TrainingArguments in each)",
        )
    if args.world_size > 1 and args.save_on_each_node:
        raise InvalidArgument("save_on_each_node", True, "False: the first process writes the receipt, once")


def refuse_accelerator(accelerator: Any) -> None:
    """What it would do by itself, whoever has told it: shard the model, whose norms no process would know."""
    kind = str(getattr(accelerator.distributed_type, "value", accelerator.distributed_type))
    sharded = [name for name in _SHARDS if os.environ.get(name, "false").lower() in ("1", "true", "yes")]
    if getattr(accelerator, "parallelism_config", None) is not None:
        sharded.append("parallelism_config")
    if kind not in _PLAIN or sharded:
        raise InvalidArgument(
            "accelerate",
            sharded[0] if sharded else kind,
            "processes that each have the whole model (torchrun, or accelerate launch without FSDP, DeepSpeed and the "
            "like): one that has a part of it knows no norm of an example's gradient",
        )


def refuse_overrides(trainer: Trainer, private: type[Trainer]) -> None:
    """Methods that a subclass, or somebody with the object at hand, has replaced, and that would not be called."""
    for name in _METHODS:
        if getattr(type(trainer), name, None) is not getattr(private, name, None) or name in vars(trainer):
            expected = f"no {name} of its own: the engine takes the steps. A loss goes in as {OWN_LOSS}"
            raise InvalidArgument("trainer", type(trainer).__name__, expected)
    ours = [kind for kind in private.__mro__ if kind.__module__.startswith("plrvo.")]
    for name in sorted({name for kind in ours for name in vars(kind) if not hasattr(Trainer, name)}):
        if getattr(type(trainer), name) is not getattr(private, name):
            raise InvalidArgument("trainer", type(trainer).__name__, f"another name for {name}: it is taken")


def refuse_callback(callback: Any) -> None:
    """One that is called between the backward pass and the noise."""
    kind = callback if isinstance(callback, type) else type(callback)
    for name in _BEFORE_NOISE:
        if getattr(kind, name, None) is not getattr(TrainerCallback, name) or name in getattr(callback, "__dict__", {}):
            raise InvalidArgument("callbacks", kind.__name__, f"no {name}: it would see gradients before the noise")


def refuse_keywords(keywords: dict[str, Any]) -> None:
    """Keywords of a `Trainer` that have no place here."""
    if keywords.get("compute_loss_func") is not None:
        raise InvalidArgument("compute_loss_func", keywords["compute_loss_func"], OWN_LOSS)
    if keywords.get("model_init") is not None:
        raise InvalidArgument("model_init", keywords["model_init"], "a model: every trial of a search spends a budget")
    for callback in keywords.get("callbacks") or ():
        refuse_callback(callback)
