"""Processes compare what they have: examples by content, as far as it is the same from one look to the next."""

import numpy as np
import pytest
import torch
from torch import distributed, nn
from torch.utils.data import DataLoader, Dataset

from plrvo.training.together import _examples, check_together
from plrvo.validate import InvalidArgument


class Drawn(Dataset):
    """Examples that something random is added to."""

    def __init__(self, own=False):
        self.generator = np.random.default_rng() if own else None

    def __len__(self):
        return 30

    def __getitem__(self, i):
        drawn = torch.rand(2) if self.generator is None else torch.from_numpy(self.generator.random(2))
        return {"x": drawn + i, "text": f"number {i}"}


class Moved(Drawn):
    def __getitem__(self, i):
        return super().__getitem__((i + 1) % 30)


def seen(data):
    return _examples(DataLoader(data), len(data))


def test_examples_are_told_apart_by_content_whatever_torch_adds_to_them():
    before = torch.get_rng_state()
    assert seen(Drawn()) == seen(Drawn()) != seen(Moved())
    assert torch.equal(torch.get_rng_state(), before)


def test_of_examples_that_draw_from_elsewhere_nothing_is_said():
    assert seen(Drawn(own=True)) is None


def test_parameters_in_another_order_are_noticed(monkeypatch):
    module = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    orders = [list(module.parameters()), list(module.parameters())[::-1]]
    told = []

    def gather(found, own):
        told.append(own)
        found[:] = told[-2:] if len(told) > 1 else [own, own]

    monkeypatch.setattr(distributed, "get_world_size", lambda: 2)
    monkeypatch.setattr(distributed, "all_gather_object", gather)
    check_together(module, torch.optim.SGD(orders[0]), DataLoader(Drawn()), 30, clip=1.0)
    check_together(module, torch.optim.SGD(orders[0]), DataLoader(Drawn()), 30, clip=1.0)
    with pytest.raises(InvalidArgument, match="module='not the same"):
        check_together(module, torch.optim.SGD(orders[1]), DataLoader(Drawn()), 30, clip=1.0)
    with pytest.raises(InvalidArgument, match="clip='not the same"):
        check_together(module, torch.optim.SGD(orders[1]), DataLoader(Drawn()), 30, clip=2.0)
