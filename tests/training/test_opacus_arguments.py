"""Opacus's own calls, with only the import changed: what they mean here, and what is refused in one line."""

import copy
import inspect
import math
import warnings

import opacus
import pytest
import torch
from opacus.accountants.utils import get_noise_multiplier
from tests.training.helpers import dimension_of, given, small_data, small_model
from torch import nn
from torch.utils.data import DataLoader

import plrvo
from plrvo.training import BudgetExhausted
from plrvo.validate import InvalidArgument

DELTA = 1e-4


def prepared(engine, module=None, batch_size=25, **arguments):
    module = module or small_model()
    arguments = {"noise_multiplier": 1.1, "max_grad_norm": 0.7, **arguments}
    return engine.make_private(
        module=module,
        optimizer=torch.optim.SGD(module.parameters(), lr=0.1),
        data_loader=DataLoader(small_data(), batch_size=batch_size, shuffle=True),
        **{name: value for name, value in arguments.items() if value is not None},
    )


def one_epoch(model, optimizer, loader, loss=None):
    loss, steps = loss or nn.CrossEntropyLoss(), 0
    for x, y in loader:
        optimizer.zero_grad()
        loss(model(x), y).backward()
        optimizer.step()
        steps += 1
    return steps


def theirs(**arguments):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # advice to use their secure mode
        return opacus.PrivacyEngine(**arguments)


def test_every_argument_of_opacus_is_an_argument_here():
    for name in ("make_private", "make_private_with_epsilon", "save_checkpoint", "load_checkpoint", "get_epsilon"):
        ours = inspect.signature(getattr(plrvo.PrivacyEngine, name)).parameters
        known = set(ours) | set(inspect.signature(plrvo.PrivacyEngine.make_private).parameters)
        for argument in inspect.signature(getattr(opacus.PrivacyEngine, name)).parameters:
            assert argument in known or argument == "kwargs", (name, argument)
    known = set(inspect.signature(plrvo.PrivacyEngine).parameters)
    assert known >= set(inspect.signature(opacus.PrivacyEngine).parameters)


def test_a_multiplier_is_gaussian_noise_and_the_account_grows_with_the_steps():
    engine = plrvo.PrivacyEngine()
    model, optimizer, loader = prepared(engine)
    assert len(loader) == 8
    assert engine.get_epsilon(DELTA) == 0
    assert optimizer.noise == plrvo.Gaussian(1.1 * 0.7)
    assert optimizer.noise_multiplier == pytest.approx(1.1)
    assert optimizer.expected_batch_size == 25
    spent = []
    for _ in range(3):
        assert one_epoch(model, optimizer, loader) == 8
        spent.append(engine.get_epsilon(delta=DELTA))
    assert len(engine.accountant) == 24
    work = plrvo.Workload(sample_rate=1 / 8, steps=24, clip=0.7, dimension=dimension_of(small_model()))
    assert spent[-1] == plrvo.epsilon(plrvo.Gaussian(1.1 * 0.7), work, DELTA).certified
    assert spent == sorted(set(spent))
    prv = theirs()
    prv.accountant.history = [(1.1, 1 / 8, 24)]
    assert spent[-1] == pytest.approx(prv.get_epsilon(DELTA), rel=0.02)


@pytest.mark.parametrize(("mode", "clipping"), [("hooks", "flat"), ("hooks", "per_layer"), ("ghost", "flat")])
def test_clipped_sums_and_updates_are_those_of_opacus(mode, clipping):
    """The same batches through both engines; theirs without noise, ours with a billionth of a clip."""
    clips = [0.2] * 6 if clipping == "per_layer" else 0.5
    common = {"max_grad_norm": clips, "grad_sample_mode": mode, "clipping": clipping}
    found = []
    for engine, noise_multiplier in ((theirs(), 0.0), (plrvo.PrivacyEngine(), 1e-9)):
        module = small_model()
        model, optimizer, *criterion, _ = prepared(engine, module, noise_multiplier=noise_multiplier, **common)
        loss = criterion[0] if criterion else nn.CrossEntropyLoss()
        for start in (0, 25, 60):  # three steps, of 25, 35 and 10 examples
            x, y = small_data()[start : start + {0: 25, 25: 35, 60: 10}[start]]
            if isinstance(engine, plrvo.PrivacyEngine):
                given(optimizer, len(x))
            optimizer.zero_grad()
            loss(model(x), y).backward()
            optimizer.step()
        found.append(torch.cat([p.detach().flatten() for p in module.parameters()]))
        found[-1] = torch.cat(
            [found[-1], *[p.grad.flatten() * optimizer.expected_batch_size for p in module.parameters()]]
        )
    torch.testing.assert_close(found[1], found[0], atol=1e-5, rtol=1e-5)


def test_another_noise_replaces_the_gaussian_and_nothing_else():
    _, optimizer, _ = prepared(plrvo.PrivacyEngine(), noise=plrvo.Laplace(2.0), noise_multiplier=None)
    assert optimizer.noise == plrvo.Laplace(2.0)
    _, optimizer, loader = prepared(plrvo.PrivacyEngine(), noise="laplace")
    assert isinstance(optimizer.noise, plrvo.Laplace)
    assert math.sqrt(optimizer.noise.variance) == pytest.approx(1.1 * 0.7)
    assert (optimizer.clip, optimizer.sample_rate, len(loader)) == (0.7, 1 / 8, 8)


def test_a_budget_is_kept_over_the_loaders_own_epochs():
    engine, module = plrvo.PrivacyEngine(), small_model()
    model, optimizer, loader = engine.make_private_with_epsilon(
        module=module,
        optimizer=torch.optim.SGD(module.parameters(), lr=0.1),
        data_loader=DataLoader(small_data(), batch_size=25),
        target_epsilon=3.0,
        target_delta=DELTA,
        epochs=3,
        max_grad_norm=0.7,
    )
    assert isinstance(optimizer.noise, plrvo.Gaussian)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of their orders of moments
        wanted = {"target_epsilon": 3.0, "target_delta": DELTA, "sample_rate": 1 / 8, "epochs": 3}
        other = get_noise_multiplier(**wanted, accountant="prv")
    assert optimizer.noise_multiplier == pytest.approx(other, rel=0.02)
    for _ in range(3):
        assert one_epoch(model, optimizer, loader) == 8
    assert 2.99 < engine.get_epsilon(DELTA) <= 3.0
    with pytest.raises(BudgetExhausted, match=r"after the last step.*more epochs"):
        one_epoch(model, optimizer, loader)


@pytest.mark.parametrize("mode", ["hooks", "ghost"])
def test_ghost_clipping_returns_the_criterion_that_it_was_given(mode):
    engine = plrvo.PrivacyEngine()
    found = prepared(engine, grad_sample_mode=mode, criterion=nn.CrossEntropyLoss())
    assert len(found) == (4 if mode == "ghost" else 3)
    one_epoch(found[0], found[1], found[-1], found[2] if mode == "ghost" else None)
    assert len(engine.accountant) == 8


def test_without_a_wrapper_the_users_own_module_trains():
    engine, module = plrvo.PrivacyEngine(), small_model()
    before = copy.deepcopy(module.state_dict())
    hooks, optimizer, loader = prepared(engine, module, wrap_model=False)
    one_epoch(module, optimizer, loader)
    hooks.cleanup()
    assert len(engine.accountant) == 8
    assert not torch.equal(module.state_dict()["4.weight"], before["4.weight"])


def test_exact_mode_takes_opacus_arguments_too():
    engine = plrvo.PrivacyEngine(exact=True)
    model, optimizer, loader = prepared(engine)
    one_epoch(model, optimizer, loader)
    assert optimizer.noise.cell > 0
    assert optimizer.noise_multiplier == pytest.approx(1.1)
    work = plrvo.Workload(sample_rate=1 / 8, steps=8, clip=0.7, dimension=optimizer.dimension)
    assert engine.get_epsilon(DELTA) == pytest.approx(
        plrvo.epsilon(plrvo.Gaussian(1.1 * 0.7), work, DELTA).certified, rel=1e-3
    )


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"noise_multiplier": None}, "noise_multiplier=None: expected the standard deviation"),
        ({"max_grad_norm": None}, "max_grad_norm=None: expected the norm"),
        ({"max_grad_norm": None, "noise_multiplier": None}, "noise_multiplier and max_grad_norm=None: expected both"),
        ({"noise": "lapalce"}, r"gaussian, laplace, .*, or a noise such as plrvo.Laplace\(1.0\); did you mean laplace"),
        ({"noise_multiplier": 0.0}, "noise_multiplier=0.0: expected a positive"),
        ({"max_grad_norm": [1.0, 2.0, 1.0, 1.0, 1.0, 1.0], "clipping": "per_layer"}, "equal clips"),
        ({"max_grad_norm": [1.0, 1.0]}, 'clipping="per_layer"'),
        ({"max_grad_norm": [1.0] * 5, "clipping": "per_layer"}, "6 clips, one for each trainable parameter"),
        ({"poisson_sampling": False}, "poisson_sampling=False: expected True: no account here holds for shuffled"),
        ({"rand_on_empty": True}, "rand_on_empty=True: expected False"),
        ({"clipping": "flat", "target_unclipped_quantile": 0.5}, "target_unclipped_quantile=0.5: expected no such"),
        ({"clipping": "adaptive"}, "target_unclipped_quantile=None: expected a number"),
        ({"clipping": "loose"}, "clipping='loose': expected one of flat"),
        ({"grad_sample_mode": "ew"}, "one of auto, bookkeeping, hooks, ghost, functorch"),
        ({"noise": plrvo.Laplace(1.0)}, "none beside a noise"),
        ({"noise": 3}, "the name of one"),
        ({"noise": "cauchy"}, "one of gaussian"),
        ({"after_budget": "go on"}, "one of error, stop"),
        ({"steps_per_epoch": 0}, "steps_per_epoch=0"),
    ],
)
def test_what_cannot_be_meant_is_refused_in_one_line(arguments, expected):
    with pytest.raises(InvalidArgument, match=expected) as refused:
        prepared(plrvo.PrivacyEngine(), **arguments)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"accountant": "prv"}, "accountant='prv': expected no accountant.*leave the argument out"),
        ({"accountant": "rdp"}, "leave the argument out"),
        ({"secure_mode": True}, "exact=True"),
    ],
)
def test_what_an_engine_cannot_be_told(arguments, expected):
    with pytest.raises(InvalidArgument, match=expected):
        plrvo.PrivacyEngine(**arguments)


def test_a_plan_has_said_noise_and_clip():
    work = plrvo.Workload(sample_rate=0.1, steps=3, clip=1.0, dimension=dimension_of(small_model()))
    engine = plrvo.PrivacyEngine(plrvo.Plan.certify(plrvo.Laplace(1.0), work, DELTA))
    with pytest.raises(InvalidArgument, match=r"noise_multiplier=1.1: expected no value beside a plan"):
        prepared(engine)


def test_a_budget_is_for_a_new_engine():
    engine = plrvo.PrivacyEngine()
    one_epoch(*prepared(engine))
    module = small_model()
    with pytest.raises(InvalidArgument, match="released 8 steps"):
        engine.make_private_with_epsilon(
            module=module,
            optimizer=torch.optim.SGD(module.parameters(), lr=0.1),
            data_loader=DataLoader(small_data(), batch_size=25),
            target_epsilon=3.0,
            target_delta=DELTA,
            epochs=3,
            max_grad_norm=0.7,
        )


def test_two_models_of_one_engine_are_on_one_account():
    engine = plrvo.PrivacyEngine()
    one_epoch(*prepared(engine))
    alone = engine.get_epsilon(DELTA)
    one_epoch(*prepared(engine, noise_multiplier=2.0, max_grad_norm=1.5))
    assert [work.steps for _, work in engine.accountant.ledger.entries] == [8, 8]
    assert engine.get_epsilon(DELTA) > alone
