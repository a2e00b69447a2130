"""Models of the transformers library made fit for per-example gradients, without a change to what they compute.

Two things stand in the way. Position embeddings are looked up once for the whole batch and broadcast: their gradient
arrives summed over the examples, where no clipping can take it apart. And attention layers fail on the empty batches
that Poisson sampling draws now and then.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from plrvo.validate import InvalidArgument


def keep_examples_apart(model: Any) -> None:
    """Hooks on the model: one row of every trainable embedding's ids for each example, and an answer for no examples.

    An embedding whose ids are neither per example nor common to all is refused when the model runs, since its
    per-example gradients would be wrong.
    """
    batch = _Batch()
    model.register_forward_pre_hook(batch.enter, with_kwargs=True)
    model.register_forward_hook(batch.leave)
    for name, module in model.named_modules():
        if isinstance(module, nn.Embedding):
            module.register_forward_pre_hook(batch.lookup(name))


class _Batch:
    """What the hooks of one model know of the batch that it works on."""

    def __init__(self) -> None:
        self.rows, self.empty = 1, False

    def enter(self, model: nn.Module, args: tuple[Any, ...], inputs: dict[str, Any]) -> tuple[Any, Any]:
        self.rows = len(args[0] if args else next(iter(inputs.values())))
        self.empty = self.rows == 0
        if not self.empty:
            return args, inputs
        # One made-up example goes through, and nothing of it comes out: its gradients are zeros.
        self.rows = 1
        return tuple(_one(value) for value in args), {name: _one(value) for name, value in inputs.items()}

    def leave(self, model: nn.Module, args: tuple[Any, ...], outputs: Any) -> Any:
        if not self.empty:
            return None
        return type(outputs)(logits=outputs.logits[:0])

    def lookup(self, name: str) -> Any:
        def one_row_each(module: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
            ids = args[0]
            if not module.weight.requires_grad:
                return args
            if len(ids) not in (1, self.rows) or ids.ndim < 2:
                raise InvalidArgument(
                    "model", name, f"ids by example, not of shape {tuple(ids.shape)}; freeze this embedding"
                )
            # Contiguous, which Opacus's norms of embeddings rely on.
            return (ids.expand(self.rows, *ids.shape[1:]).contiguous(), *args[1:])

        return one_row_each


def _one(value: Any) -> Any:
    return value.new_ones((1, *value.shape[1:])) if isinstance(value, torch.Tensor) else value


def logits_of(outputs: Any) -> torch.Tensor:
    """The logits among the outputs of a model, by their name or the first; or of a module that gives nothing else.

    >>> logits_of({"logits": torch.ones(2, 3)}).shape, logits_of((torch.ones(2, 3), None)).shape
    (torch.Size([2, 3]), torch.Size([2, 3]))
    """
    found = outputs.get("logits") if isinstance(outputs, Mapping) else getattr(outputs, "logits", outputs)
    if isinstance(found, tuple | list) and found:
        found = found[0]
    if not isinstance(found, torch.Tensor):
        given = ", ".join(map(str, outputs)) if isinstance(outputs, Mapping) else type(outputs).__name__
        raise InvalidArgument(
            "model", f"outputs {given}", "outputs with `logits`, or a criterion(outputs, labels) that knows these"
        )
    return found


def loss_in(outputs: Any) -> torch.Tensor | None:
    """The loss that a model called with labels gives beside its logits, by its name or in front of them."""
    if isinstance(outputs, Mapping):
        found = outputs.get("loss")
    elif isinstance(outputs, tuple) and not hasattr(outputs, "loss"):
        found = outputs[0] if len(outputs) > 1 else None
        found = found if isinstance(found, torch.Tensor) and found.ndim == 0 else None
    else:
        found = getattr(outputs, "loss", None)
    return found


class LogitsLoss(nn.CrossEntropyLoss):
    """Cross entropy, of a transformer's outputs."""

    def forward(self, outputs: Any, targets: torch.Tensor) -> torch.Tensor:
        return super().forward(logits_of(outputs), targets)


def without_dropout(config: Any) -> Any:
    """The configuration with every rate of dropout at zero.

    Noise regularises as it is, and dropout would draw from a generator that no caller passes.
    """
    for name, value in config.to_dict().items():
        if "drop" in name and isinstance(value, float):
            setattr(config, name, 0.0)
    return config


@contextmanager
def quiet() -> Iterator[None]:
    """No progress bars and no remarks about new heads or long texts, both of which are wanted here."""
    from transformers import utils

    logging: Any = utils.logging  # has no types
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()
