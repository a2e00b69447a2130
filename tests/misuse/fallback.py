"""B, continued. Layers that go through the fallback and keep something that looks at no example."""

from __future__ import annotations

from typing import Any

import torch
from tests.misuse.sensitivity import B
from tests.misuse.setting import CLASSES, FEATURES, Private
from torch import Tensor, nn


class _Own(nn.Module):
    """A parameter that no layer has a rule for, and a buffer that counts."""

    def __init__(self, ends_in: Any) -> None:
        super().__init__()
        self.weight, self.ends_in = nn.Parameter(torch.ones(FEATURES, 8) / 8), ends_in
        self.register_buffer("passes", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        self.passes += 1
        return self.ends_in(x @ self.weight)  # type: ignore[no-any-return]


def _spectral(make: Any) -> nn.Module:
    return make(nn.Linear(FEATURES, 8))  # type: ignore[no-any-return]


for _name, _layer in {
    "a counter that is raised in place, and ends in `relu_`": lambda: _Own(torch.relu_),
    "a counter, and ends in a softmax": lambda: _Own(lambda x: x.softmax(dim=1)),
    "a spectral norm": lambda: _spectral(nn.utils.parametrizations.spectral_norm),
    "a spectral norm of the older kind": lambda: _spectral(nn.utils.spectral_norm),
}.items():

    @B.row(
        f"train a layer of one's own that has {_name}",
        "works: it is computed once more from where the pass began, and what it keeps is put back",
        modes=("hooks",),
    )
    def in_the_fallback(mode: str, layer: Any = _layer) -> None:
        module = nn.Sequential(layer(), nn.Linear(8, CLASSES))
        run = Private(mode, module, steps=3)
        run.train()
        assert run.optimizer.steps_taken == 3
        assert not isinstance(module[0], _Own) or int(module[0].passes) == 3
