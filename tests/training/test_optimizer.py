"""The private optimizer: what makes up its mechanism is fixed, a step is counted before it is released, and no copy."""

import copy
import pickle

import pytest
import torch
from tests.training.helpers import CLASSES, GAMMA, given, private, small_data, take_steps
from torch import nn
from torch.utils.data import TensorDataset

import plrvo
from plrvo.noise import Laplace
from plrvo.training.draws import BatchMismatch
from plrvo.training.optimizer import optimizer_class
from plrvo.validate import InvalidArgument

FIXED = {
    "noise": Laplace(1e-9),
    "dimension": 1,
    "generator": torch.Generator(),
    "max_grad_norm": 100.0,
    "clipping": "per_layer",
    "clips": [100.0],
    "loss_reduction": "sum",
    "accountant": None,
    "sample_rate": 1e-9,
    "draws": None,
    "watch": None,
    "most_steps": 10**9,
    "step_hook": None,
    "noise_multiplier": 0.0,
}


def backward(model, optimizer, loss, count=5):
    """A batch of so many examples, up to the step."""
    x, y = small_data()[:count]
    optimizer.zero_grad()
    given(optimizer, count)
    loss(model(x), y).backward()


@pytest.mark.parametrize("mode", ["bookkeeping", "hooks"])
def test_zero_grad_lets_go_of_gradients_as_torch_does(mode):
    _, model, optimizer, loss, _ = private(mode=mode)
    backward(model, optimizer, loss)
    optimizer.step()
    assert all(p.grad is not None for p in optimizer.params)
    optimizer.zero_grad(set_to_none=False)
    assert all(not p.grad.any() for p in optimizer.params)
    optimizer.zero_grad()
    assert all(p.grad is None for p in optimizer.params)


def test_what_the_account_rests_on_cannot_be_changed():
    _, _, optimizer, _, _ = private()
    for name, value in FIXED.items():
        with pytest.raises(InvalidArgument, match=f"^{name}="):
            setattr(optimizer, name, value)
    optimizer.param_groups[0]["lr"] = 0.7  # the user's own
    assert optimizer.noise == GAMMA
    assert optimizer.clip == 1.0


def test_it_is_neither_copied_nor_pickled():
    _, _, optimizer, _, _ = private()
    for copied in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="a private optimizer is not"):
            copied(optimizer)


def test_the_optimizer_inside_takes_no_step_of_its_own():
    _, model, optimizer, loss, _ = private()
    backward(model, optimizer, loss)
    with pytest.raises(InvalidArgument, match="has no noise"):
        optimizer.original_optimizer.step()


def test_a_scaler_of_gradients_is_refused():
    _, model, optimizer, loss, _ = private()
    backward(model, optimizer, loss)
    scaler = torch.amp.GradScaler("cpu")
    scaler.scale(torch.zeros(1))
    with pytest.raises(InvalidArgument, match="GradScaler"):
        scaler.step(optimizer)


def test_hooks_see_the_release_and_the_step_in_the_account():
    seen = []
    _, model, optimizer, loss, loader = private(steps=3)
    optimizer.attach_step_hook(
        lambda o: seen.append((o.steps_taken, o.sums, all(p.grad is not None for p in o.params)))
    )
    take_steps(model, optimizer, loss, loader)
    assert seen == [(1, None, True), (2, None, True), (3, None, True)]


def test_a_step_that_fails_at_its_noise_is_counted_and_leaves_nothing(monkeypatch):
    engine, model, optimizer, loss, _ = private()
    backward(model, optimizer, loss)
    before = [p.detach().clone() for p in model.parameters()]

    def fail(*_):
        raise RuntimeError("no noise")

    monkeypatch.setattr(plrvo.GammaPLRV, "add_to", fail)
    with pytest.raises(RuntimeError, match="no noise"):
        optimizer.step()
    assert len(engine.accountant) == 1
    assert optimizer.sums is None
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


def test_a_step_needs_a_batch_and_a_loss():
    engine, model, optimizer, loss, _ = private()
    with pytest.raises(BatchMismatch, match="without a batch"):
        optimizer.step()
    x, y = small_data()[:5]
    given(optimizer, 4)
    loss(model(x), y).backward()
    with pytest.raises(BatchMismatch, match="other rows"):
        optimizer.step()
    assert len(engine.accountant) == 0


def test_a_closure_is_called_with_gradients():
    engine, model, optimizer, loss, _ = private()
    x, y = small_data()[:5]
    given(optimizer, 5)
    with torch.no_grad():
        optimizer.step(lambda: loss(model(x), y).backward())
    assert len(engine.accountant) == 1


@pytest.mark.parametrize(
    ("arguments", "named"),
    [({"clipping": "unheard_of"}, "clipping"), ({"clipping": "l1", "mode": "bookkeeping"}, "grad_sample_mode")],
    ids=["clipping", "l1"],
)
def test_clippings_that_would_not_clip_are_refused(arguments, named):
    with pytest.raises(InvalidArgument, match=f"^{named}="):
        private(Laplace(1.0), **arguments)


def test_a_class_has_the_noise_in_front_of_the_clipping_and_of_opacus():
    for distributed in (False, True):
        for exact in (False, True):
            names = [c.__name__ for c in optimizer_class(distributed, "bookkeeping", exact).__mro__]
            assert names.index("NoiseMixin") < names.index("BookkeepingMixin") < names.index("DPOptimizer")
            assert ("ExactMixin" in names) == exact
            assert ("DistributedDPOptimizer" in names) == distributed


@pytest.mark.parametrize("mode", ["auto", "bookkeeping", "hooks"])
def test_every_row_of_an_embedding_has_noise_also_of_one_with_sparse_gradients(mode):
    """Rows without it would be those that no example of the batch has."""
    module = nn.Sequential(nn.Embedding(50, 4, sparse=True), nn.Flatten(), nn.Linear(12, CLASSES))
    data = TensorDataset(torch.arange(60).view(20, 3) % 7, torch.arange(20) % CLASSES)
    _, model, optimizer, loss, loader = private(module=module, data=data, mode=mode, sample_rate=0.5, steps=1)
    before = module[0].weight.detach().clone()
    take_steps(model, optimizer, loss, loader)
    assert bool((module[0].weight.detach() != before).all())
    assert not module[0].weight.grad.is_sparse
    assert bool((module[0].weight.grad != 0).all())
