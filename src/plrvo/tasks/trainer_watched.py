"""Who may look at a private trainer's model after a step, before an evaluation or a checkpoint writes it down.

Own code that is given the model, or something with the model in it: callbacks, methods of a subclass, trackers,
schedules of learning rates. What `transformers` and this package bring does not look, but at the end of a run (where
weights may be uploaded), which is written down before.

Noise that is taken again after a crash is safe from whoever else looks in a step (a layer, a collator with the model at
hand). Fresh noise is not: there all code that runs in a step is asked for, and has to be known not to look.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from torch.nn.modules import module as torch_module
from torch.optim import optimizer as torch_optimizer
from transformers import Trainer, TrainerCallback
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from plrvo.tasks.trainer_callbacks import Told
from plrvo.tasks.trainer_code import all_known
from plrvo.validate import InvalidArgument

_OURS = ("transformers", "plrvo")
# The events between two releases at which callbacks are given the model; when something is logged there is another.
_EACH_STEP = ("on_step_begin", "on_step_end", "on_optimizer_step", "on_epoch_begin", "on_epoch_end")
_LOGS = ("on_log",)
# Methods that are called before the first step, or after a step was written down.
_AFTER = frozenset(
    (
        *("train", "create_optimizer", "create_scheduler", "create_optimizer_and_scheduler", "set_optimizer"),
        *("get_optimizer_cls_and_kwargs", "get_decay_parameter_names", "get_eval_dataloader", "get_test_dataloader"),
        *("_get_eval_sampler", "num_examples", "evaluate", "_evaluate", "evaluation_loop", "prediction_loop"),
        *("predict", "prediction_step", "_determine_best_metric", "save_model", "_save", "_save_checkpoint"),
        *("_load_best_model", "_load_from_checkpoint", "_finalize_training", "push_to_hub", "_push_from_checkpoint"),
        *("init_hf_repo", "create_model_card", "add_callback", "pop_callback", "remove_callback", "call_model_init"),
        *("set_initial_training_values", "get_total_train_batch_size", "_validate_args", "log"),
    )
)


def looks_at_steps(trainer: Trainer, base: type[Trainer]) -> bool:
    """Whether somebody may look after any step."""
    if os.environ.get("WANDB_WATCH", "").lower() == "parameters" or _own_methods(trainer, base) - _AFTER:
        return True
    rates = type(trainer.lr_scheduler)  # is given the optimizer, with the weights in it
    if trainer.lr_scheduler is not None and not _is_ours(rates) and not rates.__module__.startswith("torch."):
        return True
    return any(_has_own(callback, _EACH_STEP) for callback in trainer.callback_handler.callbacks)


def runs_own_code(trainer: Any, base: type[Trainer]) -> bool:
    """Whether anything runs between two steps that is not known not to look."""
    return looks_at_steps(trainer, base) or not all_known(_run_by(trainer, base))


def _run_by(trainer: Any, base: type[Trainer]) -> list[Any]:
    """What a step calls, and what is called until the next one has begun."""
    own = ("model", "_private", "optimizer", "_noisy", "lr_scheduler", "_criterion", "data_collator", "train_dataset")
    noisy = trainer._noisy
    methods = [value for kind in base.__mro__[:-1] for name, value in vars(kind).items() if name not in _AFTER]
    return [
        *(getattr(trainer, name, None) for name in own),
        *(() if noisy is None else (noisy.original_optimizer, noisy.noise)),
        *(trainer.callback_handler, *trainer.callback_handler.callbacks),
        *(method for method in methods if isinstance(method, Callable)),  # type: ignore[arg-type]
        *(hooks for name, hooks in vars(torch_module).items() if name.startswith("_global_")),
        *(hooks for name, hooks in vars(torch_optimizer).items() if name.startswith("_global_")),
        ALL_ATTENTION_FUNCTIONS,
    ]


def looks_at_logs(trainer: Trainer, base: type[Trainer]) -> bool:
    """Whether somebody may look when something is logged."""
    callbacks: list[Any] = trainer.callback_handler.callbacks
    told = [tracker for callback in callbacks if isinstance(callback, Told) for tracker in callback.trackers]
    return (
        "log" in _own_methods(trainer, base)
        or any(_has_own(callback, _LOGS) for callback in callbacks)
        or any(not _is_ours(type(tracker)) or "log" in _held_by(tracker) for tracker in told)
    )


def refuse_hooks(optimizer: Any, others: Sequence[Any] = ()) -> None:
    """Hooks that are called within a step: what they see is written down after it. `others` are on the noise."""
    known = [vars(optimizer).get(f"_optimizer_step_{when}_hooks", {}) for when in ("pre", "post")]
    known += [torch_optimizer._global_optimizer_pre_hooks, torch_optimizer._global_optimizer_post_hooks]
    if others or any(not _is_ours(hook) for hooks in known for hook in hooks.values()):
        raise InvalidArgument(
            "optimizers",
            f"{type(optimizer).__name__} with a hook on its steps",
            "none: it would see a step before the journal has it; a callback's on_step_end sees it after",
        )


def _own_methods(trainer: Trainer, base: type[Trainer]) -> set[str]:
    """Names that another class, or somebody with the object at hand, has given another meaning."""
    kind = type(trainer)
    foreign = {
        name for each in kind.__mro__[:-1] if not _is_ours(each) for name in vars(each) if not name.startswith("__")
    }
    found = {name for name in foreign if hasattr(base, name) and getattr(kind, name) is not getattr(base, name)}
    return found | {name for name in vars(trainer) if callable(getattr(base, name, None))}


def _has_own(callback: Any, events: tuple[str, ...]) -> bool:
    kind, own = type(callback), _held_by(callback)
    if any(name in own for name in events):
        return True
    return not _is_ours(kind) and any(
        getattr(kind, name, None) is not getattr(TrainerCallback, name) for name in events
    )


def _is_ours(kind: Any) -> bool:
    """Whether a class, or a function, is a part of these packages."""
    return str(getattr(kind, "__module__", "")).partition(".")[0] in _OURS


def _held_by(thing: Any) -> dict[str, Any]:
    return getattr(thing, "__dict__", {})
