"""The last layers of a transformer, trained on what the layers beneath make of each example.

The layers beneath are frozen and public and see one example at a time, so their outputs are a fixed function of an
example, as its tokens are: they are computed once for each example that is drawn, and cost no privacy. A step then
passes forward and backward through the last layers only.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from plrvo.training.descendants import not_followed
from plrvo.validate import InvalidArgument

Inputs = dict[str, Tensor]


class _Unchanged(nn.Module):
    """In the place of a part that is left out: gives the states that it is given."""

    def forward(self, states: Tensor | None = None, *_: Any, inputs_embeds: Tensor | None = None, **__: Any) -> Any:
        return states if inputs_embeds is None else inputs_embeds


def layers_of(model: Any) -> nn.ModuleList:
    """The layers of a model's pretrained part, lowest first: of those built like Llama and like BERT."""
    base = model.base_model
    found = base.layers if hasattr(base, "embed_tokens") else getattr(getattr(base, "encoder", None), "layer", None)
    if not isinstance(found, nn.ModuleList):
        raise InvalidArgument("layers", type(base).__name__, "a model built like Llama or like BERT")
    return found


def last_layers(model: Any, count: int) -> range:
    """The numbers of the last `count` layers; one at least stays beneath them."""
    number = len(layers_of(model))
    if not 1 <= count < number:
        raise InvalidArgument("layers", count, f"from 1 to {number - 1}: the model has {number} layers")
    return range(number - count, number)


def lower_part(model: Any, count: int, bf16: bool = False) -> nn.Module:
    """The pretrained part beneath the last `count` layers: what it gives is what goes into them.

    With `bf16` a copy whose parameters are in bfloat16. As each example goes through it alone, it is rounded as it asks
    for itself. Buffers stay as they are: positions are counted in them.
    """
    chosen = last_layers(model, count)
    kept: Any = _with_layers(model, range(chosen.start))
    for last in ("norm", "pooler"):
        if getattr(kept, last, None) is not None:
            kept._modules[last] = _Unchanged()
    if bf16:
        kept = copy.deepcopy(kept)
        for p in kept.parameters():
            p.data = p.data.bfloat16()
    return kept.eval()


def upper_part(model: Any, count: int) -> Any:
    """The model without what lies beneath its last `count` layers; it takes `inputs_embeds` in the place of tokens.

    Parameters are the model's own, under the names that they have there.
    """
    base: Any = _with_layers(model, last_layers(model, count))
    base._modules["embed_tokens" if hasattr(base, "embed_tokens") else "embeddings"] = _Unchanged()
    upper = _bare_copy(model)
    name = next(name for name, module in model.named_children() if module is model.base_model)
    upper._modules[name] = base
    return upper


def _with_layers(model: Any, numbers: range) -> nn.Module:
    """The pretrained part with these layers alone, under the numbers that they have there."""
    base, layers = model.base_model, nn.ModuleList()
    layers._modules = {str(i): layers_of(model)[i] for i in numbers}
    kept = _bare_copy(base)
    if hasattr(base, "embed_tokens"):
        kept._modules["layers"] = layers
        return kept
    encoder = _bare_copy(base.encoder)
    encoder._modules["layer"] = layers
    kept._modules["encoder"] = encoder
    return kept


def _bare_copy(module: nn.Module) -> nn.Module:
    """The same parameters and parts in another object, whose parts can be exchanged; without hooks."""
    copied = copy.copy(module)
    copied._modules = dict(module._modules)
    for name, hooks in vars(module).items():
        if "_hooks" in name and isinstance(hooks, dict):
            setattr(copied, name, type(hooks)())
    return copied


class LowerStates(Dataset[Any]):
    """Whole batches of `data` with `states`, the outputs of the lower layers, beside what they were made of.

    `compute(inputs)` gives them for a batch, (examples, positions, width), and `holds(inputs, labels)` which positions
    are tokens of the example. They are kept in half precision, and zero where there is no token.
    """

    def __init__(
        self, data: Any, compute: Callable[[Inputs], Tensor], holds: Callable[[Inputs, Tensor], Tensor]
    ) -> None:
        self._data, self._compute, self._holds = data, compute, holds
        self._kept: dict[int, Tensor] = {}
        self.lengths: Tensor = data.lengths

    def __len__(self) -> int:
        return len(self._data)

    def __getitem__(self, index: int) -> Any:
        inputs, labels = self.__getitems__([index])
        return {name: column[0] for name, column in inputs.items()}, labels[0]

    def __getitems__(self, indices: list[int]) -> Any:
        asked = indices or [0]  # a batch of none has the form of others
        for i in asked:
            if i not in self._kept:
                self._kept[i] = self._alone(i)
        inputs, labels = self._data.__getitems__(asked)
        tokens = self._holds(inputs, labels)
        rows = torch.cat([self._kept[i] for i in asked])
        states = rows.new_zeros(*tokens.shape, rows.shape[1], dtype=torch.float32)
        states[tokens] = rows.float()
        whole = {**inputs, "states": states}
        if not indices:
            return {name: column[:0] for name, column in whole.items()}, labels[:0]
        return whole, labels

    def _alone(self, index: int) -> Tensor:
        """Of the example and of nothing else: among others it would be rounded as they ask for."""
        inputs, labels = self._data.__getitems__([index])
        with torch.no_grad(), not_followed():  # nothing that was given out before goes into it
            states = self._compute(inputs)
        widest = torch.finfo(torch.float16).max
        return states[self._holds(inputs, labels)].float().clamp(-widest, widest).half()
