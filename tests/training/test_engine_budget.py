"""An engine with an account: its whole plan is charged before a batch can be drawn."""

import pytest
import torch
from tests.training.helpers import dimension_of, small_data, small_model, take_steps
from torch import nn
from torch.utils.data import DataLoader

import plrvo
from plrvo.budget import Account
from plrvo.training import PrivacyEngine
from plrvo.validate import InvalidArgument


@pytest.fixture
def account(tmp_path):
    return Account.create(tmp_path / "a.budget", name="a", epsilon=3.0, delta=1e-4)


def engine_of(budget, steps=10):
    work = plrvo.Workload(0.1, steps, 1.0, dimension_of(small_model()))
    return PrivacyEngine(plrvo.Plan.certify(plrvo.Gaussian(2.0), work, 1e-4), budget=budget)


def make_private(engine, module=None):
    module = module or small_model()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    return engine.make_private(module=module, optimizer=optimizer, data_loader=DataLoader(small_data()))


def test_the_plan_is_reserved_with_make_private_and_settled_with_the_steps_that_were_taken(account):
    engine = engine_of(str(account.path))
    assert not account.state().entries
    model, optimizer, loader = make_private(engine)
    assert account.state().entry(1).charged == 10
    for (x, y), _ in zip(loader, range(3), strict=False):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    engine.settle()
    assert account.state().entry(1).charged == 3
    with pytest.raises(InvalidArgument, match="settled with its account"):
        take_steps(model, optimizer, nn.CrossEntropyLoss(), loader)
    assert len(engine.accountant) == 3


def test_steps_that_nobody_settles_stay_charged_whole(account):
    engine = engine_of(account)
    make_private(engine)
    engine.charge.let_go()  # as the end of the process does
    assert account.settle(1).charged == 10


def test_a_short_account_is_refused_and_the_module_stays_as_it_was(account):
    make_private(engine_of(account, steps=60))
    engine, module = engine_of(account, steps=200), small_model()
    with pytest.raises(InvalidArgument, match="expected room for 200 steps"):
        make_private(engine, module)
    assert len(account.state().entries) == 1
    make_private(engine_of(None), module)  # nothing is hooked to it yet


def test_steps_without_an_end_cannot_be_reserved(account):
    with pytest.raises(InvalidArgument, match="a plan beside it"):
        make_private(PrivacyEngine(budget=account))


def test_a_second_make_private_of_an_engine_reserves_nothing_more(account):
    engine = engine_of(account)
    make_private(engine)
    make_private(engine)
    assert len(account.state().entries) == 1
