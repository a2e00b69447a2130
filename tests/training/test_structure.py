"""Structures of any kind are mapped leaf by leaf, and keep their types."""

import dataclasses
from collections import OrderedDict, UserDict, defaultdict, namedtuple
from types import MappingProxyType

import pytest
import torch

from plrvo.training.structure import leaves, map_leaves, map_tensors, tensors_in

Pair = namedtuple("Pair", "first second")


@dataclasses.dataclass(frozen=True)
class Frozen:
    logits: torch.Tensor
    name: str = "logits"


@dataclasses.dataclass(slots=True)
class Slots:
    logits: torch.Tensor
    hidden: tuple = ()


def _default(**items):
    made = defaultdict(list)
    made.update(items)
    return made


T = torch.ones(2)
STRUCTURES = [
    T,
    [T, None],
    (T, "text"),
    Pair(T, 1),
    {"a": T, "b": [T, {"c": 2.0}]},
    OrderedDict(a=T),
    UserDict(a=T),
    _default(a=T),
    MappingProxyType({"a": T}),
    Frozen(T),
    Slots(T, (T, 3)),
]


@pytest.mark.parametrize("value", STRUCTURES, ids=lambda v: type(v).__name__)
def test_a_mapped_structure_has_its_type_and_changed_leaves(value):
    mapped = map_tensors(value, lambda t: t + 1)
    assert type(mapped) is type(value)
    assert len(list(leaves(mapped))) == len(list(leaves(value)))
    assert all(torch.equal(t, T + 1) for t in tensors_in(mapped))
    assert all(t is T for t in tensors_in(value))  # the original stays as it was
    assert len(tensors_in(mapped)) == len(tensors_in(value)) > 0


def test_a_mapping_ends_where_it_is_told_to():
    assert map_leaves([["a"], 1], lambda leaf: leaf == ["a"], until=lambda v: v == ["a"]) == [True, False]
