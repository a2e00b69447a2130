"""The objective of a transformers model for each example alone: what it computes when it is called with that example.

A model's own loss is one number for a batch, a mean over its tokens or labels; clipping needs one for each example. The
losses below are what heads of the library compute, by example, from the outputs. Which of them it is, is tried: it has
to give the model's own loss for single examples, else none is taken. Then the loss of a batch is the mean over its
examples, each of which counts the same, however many tokens it has.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from plrvo.tasks.transformer import LogitsLoss, logits_of, loss_in
from plrvo.validate import InvalidArgument

OWN_LOSS = "a criterion: a function of (outputs, labels) that gives a loss for each example, or their mean"
_IGNORED = -100  # labels of tokens that do not count, as everywhere in the library
_ROWS = 3  # examples that are enough to tell losses apart
_CLASSES = 16  # of which it is tried whether they weigh the same


class ByExample(nn.Module):
    """A loss for each example, and their mean or sum, as `reduction` says."""

    def __init__(self, reduction: str = "mean") -> None:
        super().__init__()
        self.reduction = reduction

    def forward(self, outputs: Any, labels: Tensor) -> Tensor:
        losses = self.each(logits_of(outputs), labels)
        return losses if self.reduction == "none" else losses.sum() if self.reduction == "sum" else losses.mean()

    def each(self, logits: Tensor, labels: Tensor) -> Tensor:
        """One number for each example."""
        raise NotImplementedError


class ClassLoss(ByExample):
    """Cross entropy of one class for each example."""

    def each(self, logits: Tensor, labels: Tensor) -> Tensor:
        return functional.cross_entropy(logits, labels.reshape(len(logits)), reduction="none")


class TokenLoss(ByExample):
    """Cross entropy of a class for each token, the mean over those of the example that count.

    Masked and translated tokens, and tokens that are classified.
    """

    def each(self, logits: Tensor, labels: Tensor) -> Tensor:
        losses = functional.cross_entropy(logits.transpose(1, 2), labels, ignore_index=_IGNORED, reduction="none")
        return losses.sum(dim=1) / (labels != _IGNORED).sum(dim=1).clamp(min=1)


class NextTokenLoss(TokenLoss):
    """The same for the token that follows, as causal language models have it.

    Virtual tokens, which prompt tuning (peft) puts in front of all others, have no labels.
    """

    def each(self, logits: Tensor, labels: Tensor) -> Tensor:
        virtual = max(0, logits.shape[1] - labels.shape[1])
        return super().each(logits[:, :-1], functional.pad(labels, (virtual, 0), value=_IGNORED)[:, 1:])


class LabelsLoss(ByExample):
    """Whether each of several labels applies: the mean over the example's labels."""

    def each(self, logits: Tensor, labels: Tensor) -> Tensor:
        losses = functional.binary_cross_entropy_with_logits(logits, labels.to(logits), reduction="none")
        return losses.flatten(1).mean(dim=1)


class SquaredLoss(ByExample):
    """The squared error of one number, or the mean over several."""

    def each(self, logits: Tensor, labels: Tensor) -> Tensor:
        return (logits - labels.to(logits).view_as(logits)).square().flatten(1).mean(dim=1)


_LOSSES = (ClassLoss, TokenLoss, NextTokenLoss, LabelsLoss, SquaredLoss)


def with_decoder_inputs(model: Any, batch: dict[str, Any]) -> dict[str, Any]:
    """The batch with what the decoder reads, which a model makes of its labels when it is called with them."""
    prepare = getattr(model, "prepare_decoder_input_ids_from_labels", None)
    if prepare is None or "decoder_input_ids" in batch or "labels" not in batch:
        return batch
    return {**batch, "decoder_input_ids": prepare(labels=batch["labels"])}


def labels_of(batch: dict[str, Any]) -> Tensor:
    """The labels of a batch; models that take others, such as the ends of an answer, are not trained here."""
    if "labels" not in batch:
        names = ", ".join(batch)
        raise InvalidArgument("train_dataset", f"columns {names}", "one that is called labels: no other is trained on")
    found: Tensor = batch["labels"]
    return found


def objective_of(model: Any, batch: dict[str, Any]) -> nn.Module:
    """The loss that the model has for single examples of this batch; cross entropy of its logits if it has none."""
    labels = labels_of(batch)
    # An example of which no label counts has no loss of its own: a mean over nothing.
    telling = [i for i in range(len(labels)) if labels.is_floating_point() or bool((labels[i] != _IGNORED).any())]
    rows = [_row(batch, i) for i in (telling or range(len(labels)))[:_ROWS]]
    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            own = _own_losses(model, rows)
            if own is None:
                return LogitsLoss()
            outputs = [_outputs(model, row) for row in rows]
            others = _relabelled(rows[0], logits_of(outputs[0]).shape[-1])
            rows, outputs = [*rows, *others], [*outputs, *(_outputs(model, row) for row in others)]
            relabelled = _own_losses(model, others) if others else None
            own = own if relabelled is None else torch.cat([own, relabelled])
    finally:
        model.train(training)
    for loss in _LOSSES:
        found = _losses(loss("none"), outputs, rows)
        if found is not None and torch.allclose(found, own, rtol=1e-3, atol=1e-5):
            return loss()
    raise InvalidArgument(
        "model", type(model).__name__, f"{OWN_LOSS}: its own loss is {float(own[0]):.4g}, and none of those known here"
    )


def _own_losses(model: Any, rows: list[dict[str, Any]]) -> Tensor | None:
    """What it says of each example; None if it takes no labels, or says nothing."""
    found = []
    for row in rows:
        try:
            outputs = model(**row)
        except TypeError:
            return None
        except (ValueError, RuntimeError, IndexError) as error:
            raise InvalidArgument(
                "train_dataset", "its labels", f"labels that the model takes, or {OWN_LOSS} ({str(error)[:150]})"
            ) from None
        loss = loss_in(outputs)
        if loss is None:
            return None
        if loss.numel() != 1:
            raise InvalidArgument("model", type(model).__name__, f"{OWN_LOSS}: its own loss is several numbers")
        found.append(loss.float().reshape(()))
    return torch.stack(found)


def _losses(loss: ByExample, outputs: list[Any], rows: list[dict[str, Any]]) -> Tensor | None:
    """By a loss of ours; None where logits and labels do not fit it."""
    try:
        each = [loss(output, row["labels"]) for output, row in zip(outputs, rows, strict=True)]
    except (ValueError, RuntimeError, IndexError, TypeError):
        return None
    return torch.cat([one.reshape(-1) for one in each]).float() if all(one.numel() == 1 for one in each) else None


def _row(batch: dict[str, Any], index: int) -> dict[str, Any]:
    return {name: value[index : index + 1] for name, value in batch.items()}


def _outputs(model: Any, row: dict[str, Any]) -> Any:
    inputs = with_decoder_inputs(model, row)
    return model(**{name: value for name, value in inputs.items() if name != "labels"})


def _relabelled(row: dict[str, Any], classes: int) -> list[dict[str, Any]]:
    """An example with every class in turn: a weight of one of them would not show in a few examples."""
    labels = row["labels"]
    if labels.is_floating_point():
        return []
    return [{**row, "labels": torch.where(labels == _IGNORED, labels, c)} for c in range(min(classes, _CLASSES))]
