import pytest
import torch
from tests.training.helpers import private, take_steps
from torch import nn

from plrvo.training import PrivacyEngine
from plrvo.training.averaging import WeightAverage
from plrvo.validate import InvalidArgument

DECAY = 0.3


def expected_average(weights: list[torch.Tensor], decay: float) -> torch.Tensor:
    average = weights[0]
    for t, w in enumerate(weights[1:], start=1):
        d = min(decay, (1 + t) / (10 + t))
        average = d * average + (1 - d) * w
    return average


@pytest.mark.parametrize("name", ["SGD", "Adam"])
def test_the_average_is_that_of_the_weights_after_each_step(name):
    p = nn.Parameter(torch.zeros(3))
    optimizer = getattr(torch.optim, name)([p], lr=0.1)
    average = WeightAverage(optimizer, DECAY)
    with average.in_place():
        assert torch.equal(p, torch.zeros(3))  # nothing was trained yet
    after = []
    for step in range(6):
        p.grad = torch.tensor([1.0, -2.0, 0.5]) * (step + 1)
        optimizer.step()
        after.append(p.detach().clone())
    trained = p.detach().clone()
    with average.in_place():
        assert torch.allclose(p, expected_average(after, DECAY))
        assert not torch.allclose(p, trained)
    assert torch.equal(p, trained)


def test_weights_come_back_when_a_test_fails():
    p = nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([p], lr=1.0)
    average = WeightAverage(optimizer, 0.9)
    for _ in range(2):
        p.grad = torch.ones(2)
        optimizer.step()
    with pytest.raises(RuntimeError, match="stop"), average.in_place():
        raise RuntimeError("stop")
    assert torch.equal(p, torch.full((2,), -1.0))


def flat(model) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def test_training_is_the_same_with_an_average_and_the_average_is_of_its_steps():
    _, plain, optimizer, loss, loader = private(steps=5)
    after = []
    optimizer.original_optimizer.register_step_post_hook(lambda *_: after.append(flat(plain)))
    take_steps(plain, optimizer, loss, loader)
    engine, model, optimizer, loss, loader = private(steps=5, average=DECAY)
    take_steps(model, optimizer, loss, loader)
    assert torch.equal(flat(model), flat(plain))
    with engine.averaged():
        assert torch.allclose(flat(model), expected_average(after, DECAY), atol=1e-6)
    assert torch.equal(flat(model), flat(plain))


def test_a_checkpoint_holds_the_average(tmp_path):
    path = tmp_path / "checkpoint.safetensors"
    engine, model, optimizer, loss, loader = private(steps=6, average=DECAY)
    for i, (x, y) in enumerate(loader, start=1):
        optimizer.zero_grad()
        loss(model(x), y).backward()
        optimizer.step()
        if i == 4:
            engine.save_checkpoint(path=path, module=model, optimizer=optimizer)
    resumed, again, optimizer, loss, loader = private(steps=6, average=DECAY)
    resumed.load_checkpoint(path=path, module=again, optimizer=optimizer)
    take_steps(again, optimizer, loss, loader)
    with engine.averaged(), resumed.averaged():
        assert torch.equal(flat(model), flat(again))


@pytest.mark.parametrize("decay", [0, 1, -0.5, float("nan"), "0.9"])
def test_a_decay_that_is_none_is_refused(decay):
    with pytest.raises(InvalidArgument, match="average="):
        PrivacyEngine(average=decay)


def test_whoever_computes_with_the_weights_hears_of_every_change_after_it():
    """Weights that FSDP has gathered before are let go of: a pass would go on with them."""
    p, heard = nn.Parameter(torch.zeros(1)), []
    optimizer = torch.optim.SGD([p], lr=1.0)
    average = WeightAverage(optimizer, DECAY, lambda: heard.append(p.item()))
    for _ in range(2):
        p.grad = torch.ones(1)
        optimizer.step()
    with average.in_place():
        now = p.item()
        assert heard == [now]
    assert heard == [now, -2.0]
    assert now != -2.0


def test_neither_a_checkpoint_nor_a_step_is_taken_of_the_average(tmp_path):
    engine, module, optimizer, loss, loader = private(steps=5, average=DECAY)
    for i, (x, y) in enumerate(loader, start=1):
        optimizer.zero_grad()
        loss(module(x), y).backward()
        trained = flat(module)
        if i == 4:
            break
        optimizer.step()
    with pytest.raises(InvalidArgument, match=r"optimizer.step='within engine.averaged\(\)'"), engine.averaged():
        optimizer.step()
    with pytest.raises(InvalidArgument, match=r"save_checkpoint='within engine.averaged\(\)'"), engine.averaged():
        engine.save_checkpoint(path=tmp_path / "c", module=module, optimizer=optimizer)
    assert not (tmp_path / "c").exists()
    assert torch.equal(flat(module), trained)
    assert len(engine.accountant) == 3
