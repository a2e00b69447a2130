"""Processes compare what they have: examples by content, as far as it is the same from one look to the next."""

import numpy as np
import pytest
import torch
from tests.training.helpers import seeded
from torch import distributed, nn
from torch.utils.data import DataLoader, Dataset

import plrvo
from plrvo.training.draws import Draws
from plrvo.training.sampler import PoissonSampler
from plrvo.training.together import _examples, agreed, check_together
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
    data = Drawn(own=True)
    before = data.generator.bit_generator.state
    assert seen(data) is None
    assert data.generator.bit_generator.state == before


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


class Entering:
    """What `agreed` asks of an optimizer in the middle of a step."""

    def __init__(self, rank, *, generator=None, frozen=False):
        sampler = PoissonSampler(
            size=50, sample_rate=0.5, steps=3, generator=generator or seeded(1), rank=rank, processes=2, draws=Draws()
        )
        batch = next(iter(sampler))
        self.draws = sampler.draws
        self.draws.part(len(batch), last=True)
        self.charged, self.steps_taken = (plrvo.Gaussian(1.0), 1.0), 1
        self.params = [torch.zeros(3), torch.zeros(2)][frozen:]


def enter_together(monkeypatch, *optimizers):
    found = []

    def gather(into, own):
        found.append(own)
        into[:] = found if len(found) == len(optimizers) else [own] * len(optimizers)

    monkeypatch.setattr(distributed, "get_world_size", lambda: len(optimizers))
    monkeypatch.setattr(distributed, "all_gather_object", gather)
    for optimizer in optimizers:
        with agreed(optimizer):
            pass


def test_shares_of_one_batch_are_entered_together(monkeypatch):
    enter_together(monkeypatch, Entering(0), Entering(1))


def test_shares_of_two_batches_are_refused(monkeypatch):
    """As where one process's noise comes from the generator that batches do."""
    drawn_from = seeded(1)
    torch.rand(1, generator=drawn_from)
    with pytest.raises(InvalidArgument, match="sample_generator='another batch in another process'"):
        enter_together(monkeypatch, Entering(0), Entering(1, generator=drawn_from))


def test_sums_of_other_parameters_are_refused(monkeypatch):
    with pytest.raises(InvalidArgument, match="frozen in every process"):
        enter_together(monkeypatch, Entering(0), Entering(1, frozen=True))
