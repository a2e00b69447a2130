"""What "auto" does where layers give wrong gradients: the whole module once more for each example, as in "functorch".

Whether they do is known when the module is tried on its first batch, which compares gradients with autograd's, or fails
where the module itself does not: layers are given rows that they were not called with. Then the same comparison is made
with the whole module; if that comes out right the module stays with it, and else with its layers, and is refused.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from torch import Tensor, nn

from plrvo.training.clipping.again import by_replay
from plrvo.training.clipping.direct import DirectModule
from plrvo.training.clipping.module import BookkeepingModule, Recorder
from plrvo.training.clipping.rows import Rows
from plrvo.training.clipping.samples import SamplesModule
from plrvo.training.unwrap import unwrapped


class _FallsBack(BookkeepingModule):
    """Goes in front of a wrapper. Hooks on the module itself are there from the start: a try is one of them."""

    def _recorders(self, m: nn.Module) -> list[tuple[str, nn.Module, Recorder]]:
        self._root, self._whole, self._reason_for_whole = unwrapped(m), False, ""
        found = super()._recorders(m)
        has_hooks = self._root in self._replayed or any(layer is self._root for _, layer, _ in found)
        self._is_layer = has_hooks or self._root in self._of_layer  # and then it is the whole already
        if not self._is_layer:
            leave = partial(self._leave_whole, by_replay(self._dimension, self.loss_reduction))
            self._hooks += [
                self._root.register_forward_pre_hook(self._enter_whole, with_kwargs=True),
                self._root.register_forward_hook(leave, with_kwargs=True, always_call=True),
            ]
        return found

    @property
    def has_fallen_back(self) -> bool:
        return self._whole

    @property
    def is_whole(self) -> bool:
        return self._whole or super().is_whole

    @contextmanager
    def another_way(self, error: Exception) -> Iterator[bool]:
        """Whether there is one, which stays unless it fails too."""
        if self._is_layer or self.is_whole:
            yield False
            return
        self._whole = True
        self._replayed.add(self._root)
        try:
            yield True
        except BaseException:
            self._whole = False
            self._replayed.discard(self._root)
            raise
        self._reason_for_whole = f"{type(error).__name__}: {' '.join(str(error).split())[:240]}"

    def _enter_whole(self, root: nn.Module, args: Any, kwargs: Any) -> Any:
        if self._reason_for_whole and not self.watch.is_trying:  # where warnings are not heard
            reason, self._reason_for_whole = self._reason_for_whole, ""
            warnings.warn(
                f"grad_sample_mode: functorch instead of bookkeeping or hooks, which are faster: {reason}", stacklevel=3
            )
        return self._detach_parameters(root, args, kwargs) if self._whole else None

    def _leave_whole(self, replay: Recorder, root: nn.Module, args: Any, kwargs: Any, output: Any) -> Any:
        return self._tap(type(root).__name__, replay, root, args, kwargs, output) if self._whole else None

    def _detach_parameters(self, layer: nn.Module, args: Any, kwargs: Any) -> Any:
        if self._whole and layer is not self._root:
            return None
        return super()._detach_parameters(layer, args, kwargs)

    def _detach_flat_weights(self, layer: Any, args: Any) -> None:
        if not self._whole:
            super()._detach_flat_weights(layer, args)


class _Books(_FallsBack):
    """Keeps books until then."""


class _Samples(_FallsBack, SamplesModule):
    """Has gradients in full until then."""


class _Direct(_FallsBack, DirectModule):
    """Gives copies of its own parameters to examples until then."""

    def _enter(self, name: str, owner: nn.Module, args: Any, kwargs: Any) -> Any:
        return None if self._whole else super()._enter(name, owner, args, kwargs)

    def _gradients(self, score: Callable[[], Tensor], rows: int) -> dict[nn.Parameter, Rows]:
        if self._whole:
            return BookkeepingModule._gradients(self, score, rows)
        return super()._gradients(score, rows)


def falling_back(wrapper: type[BookkeepingModule]) -> type[BookkeepingModule]:
    """The wrapper that is this one, and another if need be."""
    kinds: dict[type[BookkeepingModule], type[BookkeepingModule]] = {
        BookkeepingModule: _Books,
        SamplesModule: _Samples,
        DirectModule: _Direct,
    }
    return kinds.get(wrapper, wrapper)
