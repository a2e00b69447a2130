"""Generators that a data set has of its own are after a question what they were before."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import ConcatDataset, Subset, TensorDataset

from plrvo.training.own_generators import own_generators_aside

A_GLOBAL = np.random.default_rng(0)

DRAWS: dict[str, tuple[Callable[[], Any], Callable[[Any], float]]] = {
    "torch": (lambda: torch.Generator().manual_seed(0), lambda g: float(torch.rand(1, generator=g))),
    "NumPy": (lambda: np.random.default_rng(0), lambda g: g.random()),
    "NumPy's old kind": (lambda: np.random.RandomState(0), lambda g: g.rand()),
    "Python": (lambda: random.Random(0), lambda g: g.random()),
}


class Data:
    def __init__(self, draw: Any) -> None:
        self.transform = draw

    def __len__(self) -> int:
        return 3

    def __getitem__(self, i: int) -> Any:
        return self.transform()


class Shared:
    generator = np.random.default_rng(0)

    def __call__(self) -> float:
        return self.generator.random()


def by_a_global() -> float:
    return A_GLOBAL.random()


def untouched(draw: Callable[[], Any], *of: Any) -> bool:
    with own_generators_aside(*of):
        first = [draw() for _ in range(5)]
    return [draw() for _ in range(5)] == first


@pytest.mark.parametrize("kind", DRAWS)
def test_every_kind_wherever_it_is(kind: str) -> None:
    make, drawn = DRAWS[kind]
    generator = make()
    draw = functools.partial(drawn, generator)
    place: Any
    for place in (
        Data(draw),
        Subset(Data(draw), [0, 1]),  # type: ignore[arg-type]
        ConcatDataset([TensorDataset(torch.zeros(2)), Subset(Data(lambda: draw()), [0])]),  # type: ignore[arg-type]
        SimpleNamespace(transforms=[None, {"crop": SimpleNamespace(rng=generator)}]),
        Data(draw).__getitem__,
    ):
        assert untouched(draw, place), place


def test_generators_of_classes_and_of_functions_files() -> None:
    shared = Shared()
    assert untouched(shared, Data(shared))
    assert untouched(by_a_global, Data(by_a_global))
    assert not untouched(by_a_global, Data(None))


def test_large_data_is_not_looked_through() -> None:
    class Counted(list[int]):
        looked = 0

        def __iter__(self) -> Any:
            Counted.looked += 1
            return super().__iter__()

    with own_generators_aside(SimpleNamespace(rows=Counted(range(5000)))):
        pass
    assert Counted.looked == 0
