"""Head-only training on what a public encoder makes of each text: computed once, cached, free of privacy cost.

Each text passes through the encoder alone and the encoder is public, so features are a fixed function of an example,
as tokens are. Only the head is trained, on them.
"""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from collections.abc import Iterator
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import Progress
from torch import Tensor, nn
from torch.utils.data import Dataset

from plrvo.tasks.features import Chunk, cached_features
from plrvo.tasks.text.tokens import Tokens

# One file of the cache holds this many texts; this many pass through the encoder at once.
CHUNK, BATCH = 2048, 64
_NO_SETTINGS = ("_name_or_path", "transformers_version")  # of a configuration: the same model lies anywhere


def head_of(model: Any) -> tuple[str, nn.Module] | None:
    """The name and module of a head that can be trained alone: the only part outside the pretrained one."""
    found = [(name, module) for name, module in model.named_children() if module is not model.base_model]
    heads = [(name, module) for name, module in found if list(module.parameters())]
    return heads[0] if len(heads) == 1 else None


class HeadFeatures(Dataset[Any]):
    """Batches of (features, labels) in the place of (tokens, labels); computed when the first batch is asked for."""

    def __init__(self, model: Any, tokens: Tokens, cache_dir: Path, key: str) -> None:
        self._model, self._tokens = model, tokens
        self._cache_dir, self._key = cache_dir, key

    def __len__(self) -> int:
        return len(self._tokens)

    def __getitem__(self, index: int) -> Any:
        return self.features[index], self._tokens.labels[index]

    def __getitems__(self, indices: list[int]) -> Any:
        return self.features[indices], self._tokens.labels[indices]

    @cached_property
    def features(self) -> Tensor:
        """What goes into the head, in the order of the examples."""
        # Texts of one length together: sorted, then back in their order.
        order = self._tokens.lengths.argsort(stable=True)
        with Progress(console=Console(stderr=True), transient=True) as progress:
            bar = progress.add_task("features of the public encoder", total=len(order))
            parts = cached_features(
                self._chunks(order), len(order), self._cache_dir, lambda done: progress.update(bar, completed=done)
            )
        return torch.cat(parts)[order.argsort()]

    def _chunks(self, order: Tensor) -> Iterator[Chunk]:
        for start in range(0, len(order), CHUNK):
            indices = order[start : start + CHUNK].tolist()
            yield Chunk(self._chunk_key(indices), len(indices), partial(self._compute, indices))

    def _chunk_key(self, indices: list[int]) -> str:
        digest = hashlib.sha256(f"text {self._key} {self._made_by} {len(indices)};".encode())
        inputs, _ = self._tokens.__getitems__(indices)
        for name in sorted(inputs):
            digest.update(f"{name}{tuple(inputs[name].shape)}".encode() + inputs[name].numpy().tobytes())
        return digest.hexdigest()

    @cached_property
    def _made_by(self) -> str:
        """What the encoder computes from its weights: activations, heads, pooling and the like, as a digest."""
        settings = {name: value for name, value in self._model.config.to_dict().items() if name not in _NO_SETTINGS}
        words = json.dumps(settings, sort_keys=True, default=str) + repr(self._model)
        return hashlib.sha256(words.encode()).hexdigest()

    def _compute(self, indices: list[int]) -> Tensor:
        parts = []
        for start in range(0, len(indices), BATCH):
            inputs, _ = self._tokens.__getitems__(indices[start : start + BATCH])
            parts.append(head_inputs(self._model, inputs))
        return torch.cat(parts)


def head_inputs(model: Any, inputs: dict[str, Tensor]) -> Tensor:
    """What the model's head is given for a batch, seen by a hook on it."""
    found = head_of(model)
    seen: list[Tensor] = []
    if found is None:  # the caller has asked `can_be_cached`
        raise TypeError("no single head")
    handle = found[1].register_forward_pre_hook(lambda module, args: seen.append(args[0]))
    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            model(**inputs)
    finally:
        handle.remove()
        model.train(training)
    # A head that is given all positions and looks at the first is content with that one.
    return seen[0].detach() if seen[0].ndim == 2 else seen[0][:, :1].detach()


def can_be_cached(model: Any) -> bool:
    """Whether the head alone, on its cached input, gives the model's logits: tried on three made-up examples."""
    found = head_of(model)
    if found is None:
        return False
    ids = torch.arange(15).reshape(3, 5) % model.config.vocab_size
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    training = model.training
    model.eval()
    with torch.no_grad():
        expected, alone = model(**inputs).logits, found[1](head_inputs(model, inputs))
    model.train(training)
    return alone.shape == expected.shape and torch.allclose(alone, expected, rtol=1e-4, atol=1e-5)


def head_alone(model: Any) -> nn.Module:
    """The head, trainable, under the name that its weights have in the model."""
    found = head_of(model)
    if found is None:
        raise TypeError("no single head")
    return nn.Sequential(OrderedDict([found]))
