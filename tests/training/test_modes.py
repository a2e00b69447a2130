"""Listeners come and go without leaving anything on torch's stack of modes, and modes of users are no obstacle."""

from typing import Any

import pytest
import torch
from tests.misuse.setting import CLIP, Private, data
from torch.utils import _python_dispatch
from torch.utils.flop_counter import FlopCounterMode

from plrvo.training.modes import Listener, leave_stopped


class Counting(Listener):
    """Counts operations, and stops inside of one where it is asked to."""

    def __init__(self, *, stops: bool = False) -> None:
        super().__init__()
        self.heard, self.stops = 0, stops

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.heard += 1
        if self.stops:
            self.pause()
        return func(*args, **(kwargs or {}))


def stack() -> list[Any]:
    """The listeners of this file: engines of other tests may be listening too."""
    return [mode for mode in _python_dispatch._get_current_dispatch_mode_stack() if isinstance(mode, Counting)]


def test_a_listener_hears_between_resume_and_pause_only() -> None:
    one = Counting()
    torch.ones(2).neg()
    one.resume()
    torch.ones(2).neg()
    one.pause()
    torch.ones(2).neg()
    assert one.heard == 2
    assert stack() == []


def one_more_comes_and_goes() -> None:
    third = Counting()
    third.resume()
    third.pause()


@pytest.mark.parametrize("leave", [leave_stopped, one_more_comes_and_goes])
def test_a_listener_that_stops_inside_of_an_operation_is_gone_afterwards(leave: Any) -> None:
    """As the finalizer of a watch stops its listener, whenever garbage is collected."""
    stopping, other = Counting(stops=True), Counting()
    stopping.resume()
    other.resume()
    torch.ones(2)
    assert any(mode is stopping for mode in stack())  # torch has put it back
    leave()
    assert not any(mode is stopping for mode in stack())
    assert any(mode is other for mode in stack())
    other.pause()
    assert stack() == []


@pytest.mark.parametrize("mode", ["auto", "hooks", "exact"])
def test_a_factor_of_the_loss_is_read_under_a_mode_of_the_users(mode: str) -> None:
    x, y = data().tensors
    with FlopCounterMode(display=False):
        run = Private(mode)
        found = run.released(x[:8], y[:8], loss=lambda o, y: 0.3 * torch.nn.functional.cross_entropy(o, y))
    assert 0 < float(found.norm()) < 8 * CLIP
