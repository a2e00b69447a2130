"""Noise drawn while gradients are clipped: same runs, and never another noise than that of the step."""

import pytest
import torch
from tests.training.helpers import given, small_data
from torch import nn
from torch.utils.data import DataLoader

import plrvo
from plrvo.noise import Keystream, ahead, sampling
from plrvo.noise.ahead import Ahead
from plrvo.training import PrivacyEngine, schedulers

STEPS = 6


def run(*, begun, monkeypatch, schedule=False, before_step=lambda optimizer: None, **options):
    """The weights after a run with seeded keystreams, and in which steps a draw that was begun was taken."""
    monkeypatch.setattr(sampling, "is_worth_it", lambda rows: begun)
    taken = []
    monkeypatch.setattr(Ahead, "claim", watched(Ahead.claim, taken))
    torch.manual_seed(0)
    module = nn.Sequential(nn.Flatten(), nn.Linear(64, 40), nn.ReLU(), nn.Linear(40, 4))
    engine = PrivacyEngine()
    width = {"noise_multiplier": 1.0} if schedule else {"noise": plrvo.GammaPLRV(k=5.0, theta=0.2)}
    model, optimizer, *criterion, loader = engine.make_private(
        module=module,
        optimizer=torch.optim.SGD(module.parameters(), lr=0.1),
        data_loader=DataLoader(small_data(), batch_size=50),
        max_grad_norm=1.0,
        noise_generator=Keystream.from_seed(1, "noise"),
        sample_generator=Keystream.from_seed(1, "sample"),
        steps_per_epoch=STEPS,
        **{**width, **options},
    )
    loss = criterion[0] if criterion else nn.CrossEntropyLoss()
    follows = schedulers.ExponentialNoise(optimizer, gamma=0.5) if schedule else None
    for x, y in loader:
        optimizer.zero_grad()
        loss(model(x), y).backward()
        if follows is not None:
            follows.step()  # between the passes and the step, where it does not belong
        before_step(optimizer)
        optimizer.step()
    return torch.cat([p.detach().view(-1) for p in module.parameters()]), taken


def watched(claim, taken):
    def wrapped(self, *args):
        taken.append(claim(self, *args))
        return taken[-1]

    return wrapped


@pytest.mark.parametrize("mode", ["auto", "bookkeeping", "hooks", "ghost", "functorch"])
def test_a_core_to_spare_changes_no_bit(mode, monkeypatch):
    there, taken = run(begun=True, monkeypatch=monkeypatch, grad_sample_mode=mode)
    not_there, none = run(begun=False, monkeypatch=monkeypatch, grad_sample_mode=mode)
    assert torch.equal(there, not_there)
    assert taken == [True] * STEPS
    assert none == []


def test_a_step_has_the_width_that_it_is_entered_with(monkeypatch):
    """Also if a step failed before a schedule moved on: what it has begun is of the old width, and not taken."""
    widths = []

    def note(optimizer):
        of_failed = optimizer.rescaled(**{**optimizer._factors_of, "noise": 2 * optimizer._factors_of["noise"]})[0]
        optimizer._begun = of_failed.begin(optimizer.params, optimizer.generator)
        sums = [torch.zeros_like(p) for p in optimizer.params]
        optimizer.noise.add_to(sums, Keystream.from_seed(7, "apart"), optimizer._begun)
        widths.append(float(torch.cat([t.view(-1) for t in sums]).std() / optimizer.noise.sigma))

    _, taken = run(begun=True, monkeypatch=monkeypatch, schedule=True, before_step=note)
    assert taken == [False, False] * STEPS  # asked by `note` and by the step
    # 2,764 normal numbers: their deviation is off by a tenth with probability below 1e-12, and the old width is twice.
    assert all(abs(width - 1) < 0.1 for width in widths)


def test_passes_begin_nothing_and_a_step_that_fails_leaves_its_noise_to_the_next(monkeypatch):
    monkeypatch.setattr(sampling, "is_worth_it", lambda rows: True)
    module = nn.Sequential(nn.Flatten(), nn.Linear(64, 4))
    engine = PrivacyEngine()
    model, optimizer, _ = engine.make_private(
        module=module,
        optimizer=torch.optim.SGD(module.parameters(), lr=0.1),
        data_loader=DataLoader(small_data(), batch_size=50),
        noise_multiplier=1.0,
        max_grad_norm=1.0,
        noise_generator=(keystream := Keystream.from_seed(1, "noise")),
    )
    x, y = small_data()[:5]
    given(optimizer, 5)
    for _ in range(3):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
    assert optimizer._begun is None  # memory is at its peak
    assert keystream.position == 0
    with monkeypatch.context() as failing:
        failing.setattr(type(optimizer), "clip_and_accumulate", no_memory)
        with pytest.raises(MemoryError):
            optimizer.step()
    begun = optimizer._begun
    assert isinstance(begun, Ahead)
    optimizer.zero_grad()
    given(optimizer, 5)
    nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
    assert optimizer._begun is None
    assert keystream.position == 1


def no_memory(self):
    raise MemoryError


def test_parts_of_a_batch_begin_one_draw_in_the_last(monkeypatch):
    monkeypatch.setattr(sampling, "is_worth_it", lambda rows: True)
    begun = []
    monkeypatch.setattr(ahead.Ahead, "__init__", watched_begin(ahead.Ahead.__init__, begun))
    from opacus.utils.batch_memory_manager import BatchMemoryManager

    module = nn.Sequential(nn.Flatten(), nn.Linear(64, 4))
    engine = PrivacyEngine()
    model, optimizer, loader = engine.make_private(
        module=module,
        optimizer=torch.optim.SGD(module.parameters(), lr=0.1),
        data_loader=DataLoader(small_data(), batch_size=100),
        noise_multiplier=1.0,
        max_grad_norm=1.0,
    )
    parts = 0
    with BatchMemoryManager(data_loader=loader, max_physical_batch_size=16, optimizer=optimizer) as physical:
        for x, y in physical:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
            parts += 1
    assert parts > 2 * len(begun) == 2 * optimizer.steps_taken > 0


def watched_begin(begin, begun):
    def wrapped(self, *args):
        begun.append(self)
        begin(self, *args)

    return wrapped
