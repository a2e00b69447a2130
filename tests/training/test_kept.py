"""A digest of what a module keeps changes with every value in it, and with nothing else."""

from __future__ import annotations

import enum
import itertools
import weakref
from collections import namedtuple
from typing import Any

import numpy as np
import pytest
import torch
from tests.training.helpers import private, small_model, take_steps
from torch import Tensor, nn

from plrvo.training.kept import Digest
from plrvo.validate import InvalidArgument


class Whole(enum.IntEnum):
    one = 1


class Text(str):
    pass


class Settings:
    def __init__(self, **values: Any) -> None:
        vars(self).update(values)


Pair = namedtuple("Pair", "one other")
# In groups of what is equal, or looks alike in writing, and is not the same.
ALIKE: list[list[Any]] = [
    [1, True, 1.0, "1", "1.0", "True", b"1", Whole.one, np.float64(1), 1 + 0j],
    [0, False, 0.0, -0.0, "0.0", None, "None"],
    ["float32", torch.float32, "torch.float32"],
    ["text", Text("text"), ("text",), ["text"], {"text"}, {"text": None}],
    ["function", len, print, lambda: None, ("function",)],
    ["a proxy", weakref.proxy(Settings), ("proxy",)],
    [(1, 2), [1, 2], Pair(1, 2), (1, (2,)), torch.Size([1, 2])],
]
PLACES = {
    "an attribute": lambda value: value,
    "a list": lambda value: [value, 7],
    "a pair": lambda value: ("name", value),
    "a dict": lambda value: {"name": value},
    "an object": lambda value: Settings(name=value, other=[7]),
}


def digest(value: Any, **options: Any) -> Digest:
    module: Any = nn.Linear(1, 1)
    module.value = value
    return Digest(module, **options)


def apart(one: Any, other: Any, **options: Any) -> bool:
    return bool(digest(one, **options).differing(digest(other, **options)))


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("options", [{}, {"identity": True}, {"identity": True, "values": False}], ids=str)
def test_what_looks_alike_is_told_apart(place: str, options: dict[str, bool]) -> None:
    held = PLACES[place]
    for values in ALIKE:
        # Functions are not looked into, and are all alike.
        told = [v for v in values if not callable(v)]
        for one, other in itertools.combinations(told, 2):
            assert apart(held(one), held(other), **options), (one, other)
        assert not any(apart(held(v), held(v), **options) for v in values)


def test_flags_in_a_set_are_no_numbers() -> None:
    assert apart({True, "a"}, {1, "a"})
    assert not apart({True, "a"}, {"a", True})


@pytest.mark.parametrize("options", [{}, {"identity": True}, {"identity": True, "values": False}], ids=str)
def test_which_of_two_is_kept_twice(options: dict[str, bool]) -> None:
    one, other = [0], [1]
    module: Any = nn.Linear(1, 1)
    module.value = [one, other, one]
    before = Digest(module, **options)
    module.value[2] = other
    assert Digest(module, **options).differing(before) == {"value"}
    module.value[2] = one
    module.beside = [one]
    assert Digest(module, **options).differing(before) == {"beside"}


def test_sets_of_the_same_objects_are_told_alike_in_any_order() -> None:
    objects = [Settings(value=7) for _ in range(20)]
    assert not apart([set(objects), objects[:1]], [dict.fromkeys(reversed(objects)).keys() | set(), objects[:1]])


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("options", [{}, {"identity": True}, {"identity": True, "values": False}], ids=str)
def test_which_object_of_a_set_is_kept_twice(options: dict[str, bool], nested: bool) -> None:
    """Also of objects that look alike, and of those within items."""
    one, other = Settings(value=7), Settings(value=7)
    module: Any = nn.Linear(1, 1)
    module.pool = {(one, 1), (other, 2)} if nested else {one, other}
    module.value = one
    before = Digest(module, **options)
    assert not Digest(module, **options).differing(before)
    module.value = other
    assert Digest(module, **options).differing(before) == {"value"}


def test_how_many_objects_that_look_alike_are_in_a_set() -> None:
    assert apart({Settings()}, {Settings(), Settings()})
    assert not apart({Settings(), Settings()}, {Settings(), Settings()})


@pytest.mark.parametrize("mode", ["hooks", "bookkeeping"])
def test_a_pass_that_puts_true_for_one_is_refused(mode: str) -> None:
    class Noting(nn.Sequential):
        note: Any = 1

        def forward(self, x: Tensor) -> Any:
            self.note = True if bool(x[0].sum() > 0) else 1
            return super().forward(x)

    _, model, optimizer, loss, loader = private(mode=mode, module=Noting(*small_model()), sample_rate=0.2)
    with pytest.raises(InvalidArgument, match="note changes with them in forward"):
        take_steps(model, optimizer, loss, loader)


@pytest.mark.parametrize("options", [{}, {"identity": True}], ids=str)
def test_equal_things_are_told_alike_wherever_they_come_from(options: dict[str, bool]) -> None:
    """Numbers that are no objects of their own are as often the same object as not."""
    again = [float("1.5"), (True, int("1000")), {"flags": (True, False)}, frozenset({2.5})]
    assert not apart([1.5, (True, 1000), {"flags": (True, False)}, frozenset({2.5})], again, **options)
    assert not apart([(True, False), (True, False)], [tuple(map(bool, (1, 0))) for _ in range(2)], **options)
