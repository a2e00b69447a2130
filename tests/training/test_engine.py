"""The engine releases the clipped sum plus the plan's noise, and counts what it released."""

import copy
import re

import numpy as np
import pytest
import torch
from opacus.schedulers import ExponentialNoise
from scipy import stats
from tests.training.helpers import (
    GAMMA,
    dimension_of,
    given,
    private,
    released,
    seeded,
    small_data,
    small_model,
    take_steps,
)
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

import plrvo
from plrvo.training import BudgetExhausted, PrivacyEngine
from plrvo.validate import InvalidArgument

NOISES = [GAMMA, plrvo.Laplace(0.5), plrvo.Gaussian(0.5), plrvo.GammaPLRV(5.0, 0.2, shared=True)]
ALMOST_NO_NOISE = plrvo.Laplace(1e-9)


def loop_over_examples(module: nn.Module, x: torch.Tensor, y: torch.Tensor, clip: float, norm: float) -> torch.Tensor:
    """The clipped sum, one example at a time, with nothing but autograd."""
    total = torch.zeros(dimension_of(module))
    for i in range(len(x)):
        loss = nn.functional.cross_entropy(module(x[i : i + 1]), y[i : i + 1])
        gradient = torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(module.parameters()))])
        total += gradient * min(1.0, clip / float(gradient.norm(norm)))
    return total


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize(
    ("mode", "clipping", "norm"),
    [("hooks", "flat", 2), ("ghost", "flat", 2), ("bookkeeping", "flat", 2), ("hooks", "l1", 1)],
)
def test_clipped_sum_equals_a_loop_over_examples(mode, clipping, norm, reduction):
    plain = small_model()
    clip = 0.7 if norm == 2 else 5.0
    _, model, optimizer, loss, _ = private(
        ALMOST_NO_NOISE, mode=mode, clipping=clipping, clip=clip, loss_reduction=reduction, module=copy.deepcopy(plain)
    )
    x, y = small_data()[:30]
    expected = loop_over_examples(plain, x, y, clip, norm)
    torch.testing.assert_close(released(model, optimizer, loss, x, y), expected, atol=2e-5, rtol=1e-4)


def test_an_engine_says_in_a_line_what_its_steps_release_and_how_many_were_taken(monkeypatch):
    assert repr(PrivacyEngine()) == "PrivacyEngine(without a plan, 0 steps taken)"
    work = plrvo.Workload(sample_rate=0.1, steps=20, clip=0.5, dimension=dimension_of(small_model()))
    engine = PrivacyEngine(plrvo.Plan.certify(plrvo.Laplace(2.0), work, 1e-5, None))
    said = "PrivacyEngine(Laplace(b=2.0), clip 0.5, flat clipping, rate 0.1, 0 of 20 steps taken"
    assert repr(engine) == f"{said})"
    module, optimizer, loader = engine.make_private(
        module=(plain := small_model()),
        optimizer=torch.optim.SGD(plain.parameters(), lr=0.1),
        data_loader=DataLoader(small_data()),
    )
    monkeypatch.setattr(engine.accountant, "get_epsilon", None)  # an account takes its time
    sizes = take_steps(module, optimizer, nn.CrossEntropyLoss(), loader)
    assert len(sizes) == 10
    assert repr(engine) == f"{said.replace('0 of 20', '10 of 20')})"
    plan = plrvo.Plan.fitted(plrvo.Gaussian(1.0), work, 1e-5, 3.0)
    assert repr(PrivacyEngine(plan)).endswith("0 of 20 steps taken, for epsilon 3 at delta 1e-05)")


def test_per_layer_clipping_keeps_the_whole_gradient_within_the_clip():
    _, model, optimizer, loss, _ = private(ALMOST_NO_NOISE, clipping="per_layer", clip=0.3)
    x, y = small_data()[:1]
    assert released(model, optimizer, loss, x, y).norm() <= 0.3 + 1e-6


@pytest.mark.parametrize("mode", ["hooks", "ghost", "bookkeeping"])
@pytest.mark.parametrize("noise", [GAMMA, plrvo.Laplace(0.5), plrvo.Gaussian(0.5)], ids=lambda n: n.kind)
def test_released_noise_has_the_requested_distribution(mode, noise):
    """Kolmogorov-Smirnov at p < 1e-6: the false-alarm probability of this test."""
    x, y = small_data()[:5]
    quiet = private(ALMOST_NO_NOISE, mode=mode)
    noisy = private(noise, mode=mode)
    clean = released(quiet[1], quiet[2], quiet[3], x, y)
    draws = [(released(noisy[1], noisy[2], noisy[3], x, y) - clean).numpy() for _ in range(60)]
    assert stats.kstest(np.concatenate(draws), noise.cdf).pvalue > 1e-6


def test_theta_is_a_scale_in_the_engine_too():
    """As a rate, k theta = 4e-4 would make noise of size 1/(k/theta): nothing at all."""
    noise = plrvo.GammaPLRV(k=400.0, theta=1e-3)
    x, y = small_data()[:5]
    _, model, optimizer, loss, _ = private(noise)
    assert released(model, optimizer, loss, x, y).abs().mean() > 0.5 * noise.distortion


def test_noise_is_added_to_the_sum_not_to_the_mean():
    noise = plrvo.Gaussian(3.0)
    module = small_model()
    _, model, optimizer, loss, _ = private(noise, module=module, sample_rate=0.5)
    x, y = small_data()[:100]
    given(optimizer, 100)
    loss(model(x), y).backward()
    optimizer.pre_step()
    update = torch.cat([p.grad.flatten() for p in optimizer.params])
    assert update.std() == pytest.approx(3.0 / 100, rel=0.15)  # the divisor is q N = 100


def test_each_step_draws_fresh_noise():
    _, model, optimizer, loss, _ = private(GAMMA)
    x, y = small_data()[:5]
    first, second = (released(model, optimizer, loss, x, y) for _ in range(2))
    assert not torch.isclose(first, second).any()


def test_a_shared_scale_is_one_for_all_parameters_of_a_step():
    """With k small the scale varies by orders of magnitude between steps, and not at all within one."""
    noise = plrvo.GammaPLRV(k=1.5, theta=1.0, shared=True)
    _, model, optimizer, loss, _ = private(noise, clip=1e-6)
    x, y = small_data()[:5]
    sizes = []
    for _ in range(30):
        z = released(model, optimizer, loss, x, y).abs()
        halves = z.chunk(2)
        sizes.append([float(half.mean()) for half in halves])
    logs = np.log(np.array(sizes))
    assert np.std(logs[:, 0]) > 4 * np.std(logs[:, 0] - logs[:, 1])


@pytest.mark.parametrize("mode", ["hooks", "ghost", "bookkeeping"])
def test_an_empty_batch_takes_a_noisy_step_like_any_other(mode):
    engine, model, optimizer, loss, loader = private(mode=mode, sample_rate=1e-6, steps=3)
    before = [p.detach().clone() for p in model.parameters()]
    assert take_steps(model, optimizer, loss, loader) == [0, 0, 0]
    assert len(engine.accountant) == 3
    for old, new in zip(before, model.parameters(), strict=True):
        assert torch.isfinite(new).all()
        assert not torch.equal(old, new)


@pytest.mark.parametrize("noise", NOISES, ids=lambda n: f"{n.kind}-{n.shared}")
@pytest.mark.parametrize("mode", ["hooks", "ghost", "bookkeeping"])
def test_the_ledger_equals_the_steps_really_taken(mode, noise):
    engine, model, optimizer, loss, loader = private(noise, mode=mode, steps=7)
    take_steps(model, optimizer, loss, loader)
    ((recorded, work),) = engine.accountant.ledger.entries
    assert recorded == noise
    assert work == engine.plan.workload
    assert engine.get_epsilon(1e-4) == engine.plan.bracket.certified
    assert engine.epsilon(1e-4) == engine.plan.bracket


def test_virtual_batches_release_the_same_sum_and_count_one_step():
    from opacus.utils.batch_memory_manager import BatchMemoryManager

    results = []
    for size in (None, 7):
        engine, model, optimizer, loss, loader = private(sample_rate=0.3, steps=4)
        if size is None:
            take_steps(model, optimizer, loss, loader)
        else:
            with BatchMemoryManager(data_loader=loader, max_physical_batch_size=size, optimizer=optimizer) as split:
                assert max(take_steps(model, optimizer, loss, split)) <= size
        assert len(engine.accountant) == 4
        results.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
    torch.testing.assert_close(results[0], results[1], atol=1e-5, rtol=1e-4)


def test_a_step_beyond_the_budget_is_refused_before_it_releases_anything():
    engine, model, optimizer, loss, loader = private(plrvo.Laplace(20.0), steps=3, epsilon=5.0)
    take_steps(model, optimizer, loss, loader)
    weights = [p.detach().clone() for p in model.parameters()]
    x, y = small_data()[:5]
    optimizer.zero_grad()
    loss(model(x), y).backward()
    with pytest.raises(BudgetExhausted, match="at most 3"):
        optimizer.step()
    assert len(engine.accountant) == 3
    assert all(torch.equal(a, b) for a, b in zip(weights, model.parameters(), strict=True))


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"epochs": None}, "epochs=None: expected a value: it is required"),
        ({"target_epsilon": "2"}, "target_epsilon='2': expected a positive"),
        ({"target_epsilon": -1.0}, "target_epsilon=-1.0: expected a positive"),
        ({"target_delta": None}, "target_delta=None: expected a value"),
    ],
)
def test_make_private_with_epsilon_blames_what_was_given(wrong, named):
    module = small_model()
    given = {"target_epsilon": 2.0, "target_delta": 1e-4, "epochs": 2, **wrong}
    with pytest.raises(InvalidArgument, match=re.escape(named)):
        PrivacyEngine().make_private_with_epsilon(
            module=module,
            optimizer=torch.optim.SGD(module.parameters(), lr=0.1),
            data_loader=DataLoader(small_data()),
            max_grad_norm=1.0,
            **given,
        )


def test_make_private_with_epsilon_fits_the_noise_to_the_budget():
    module = small_model()
    engine = PrivacyEngine()
    model, optimizer, loader = engine.make_private_with_epsilon(
        module=module,
        optimizer=torch.optim.SGD(module.parameters(), lr=0.1),
        data_loader=DataLoader(small_data()),
        target_epsilon=2.0,
        target_delta=1e-4,
        epochs=2,
        max_grad_norm=1.0,
        sample_rate=0.1,
        noise=plrvo.GammaPLRV(k=10.0, theta=1.0),
        noise_generator=seeded(1),
        sample_generator=seeded(2),
    )
    for _ in range(2):
        take_steps(model, optimizer, nn.CrossEntropyLoss(), loader)
    assert len(engine.accountant) == 20
    assert 1.999 < engine.get_epsilon(1e-4) <= 2.0


def test_l1_clipping_gives_the_classical_laplace_guarantee():
    """One step, everybody in the batch, l1 clip C and scale b: epsilon is C/b, whatever delta."""
    engine, model, optimizer, loss, loader = private(
        plrvo.Laplace(2.0), clipping="l1", clip=1.0, sample_rate=1.0, steps=1
    )
    take_steps(model, optimizer, loss, loader)
    assert engine.get_epsilon(1e-300) == pytest.approx(0.5, rel=1e-9)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"secure_mode": True}, "secure_mode"),
    ],
)
def test_engine_refuses_what_only_gaussian_noise_can_do(change, named):
    with pytest.raises(InvalidArgument, match=named):
        PrivacyEngine(None, **change)


def test_noise_schedules_are_refused():
    *_, optimizer, _, _ = private()
    with pytest.raises(InvalidArgument, match="noise_multiplier"):
        ExponentialNoise(optimizer, gamma=0.9)
    with pytest.raises(InvalidArgument, match="noise_multiplier"):
        optimizer.noise_multiplier = 0.5


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"clipping": "adaptive"}, "clipping"),
        ({"mode": "ew"}, "grad_sample_mode"),
        ({"mode": "ghost", "clipping": "l1", "noise": plrvo.Laplace(1.0)}, "grad_sample_mode"),
        ({"clipping": "l1"}, "Laplace noise"),
        ({"postprocess": "magic"}, "postprocess"),
    ],
)
def test_unsupported_combinations_are_refused_with_a_sentence(arguments, named):
    with pytest.raises(InvalidArgument, match=named):
        private(**arguments)


def plan_for(module: nn.Module, dimension: int | None = None) -> plrvo.Plan:
    work = plrvo.Workload(sample_rate=0.1, steps=3, clip=1.0, dimension=dimension or dimension_of(module))
    return plrvo.Plan.certify(GAMMA, work, 1e-4)


def make_private_of(module: nn.Module, **changes: object) -> None:
    arguments = {
        "module": module,
        "optimizer": torch.optim.SGD(module.parameters(), lr=0.1),
        "data_loader": DataLoader(small_data()),
    }
    PrivacyEngine(plan_for(module, changes.pop("dimension", None))).make_private(**{**arguments, **changes})


def test_layers_that_mix_examples_are_refused_and_the_fix_is_named():
    module = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(144, 4))
    with pytest.raises(InvalidArgument, match="get_compatible_module"):
        make_private_of(module)
    make_private_of(PrivacyEngine.get_compatible_module(module))


def test_an_optimizer_of_another_module_is_refused():
    with pytest.raises(InvalidArgument, match="optimizer"):
        make_private_of(small_model(), optimizer=torch.optim.SGD(small_model().parameters(), lr=0.1))


def test_an_optimizer_that_leaves_out_trainable_parameters_is_refused():
    module = small_model()
    with pytest.raises(InvalidArgument, match="optimizer"):
        make_private_of(module, optimizer=torch.optim.SGD(module[-1].parameters(), lr=0.1))


def test_a_plan_for_fewer_parameters_is_refused():
    with pytest.raises(InvalidArgument, match="dimension"):
        make_private_of(small_model(), dimension=10)


def test_data_without_a_length_is_refused():
    class Stream(IterableDataset):
        def __iter__(self):
            yield torch.zeros(1, 8, 8), 0

    with pytest.raises(InvalidArgument, match="data_loader"):
        make_private_of(small_model(), data_loader=DataLoader(Stream()))


def test_the_loaders_own_batch_size_does_not_matter():
    sizes = []
    for batch_size in (1, 64):
        module = small_model()
        engine = PrivacyEngine(plan_for(module))
        *_, loader = engine.make_private(
            module=module,
            optimizer=torch.optim.SGD(module.parameters(), lr=0.1),
            data_loader=DataLoader(small_data(), batch_size=batch_size),
            noise_generator=seeded(0),
            sample_generator=seeded(1),
        )
        sizes.append([len(x) for x, _ in loader])
    assert sizes[0] == sizes[1]
    assert len(sizes[0]) == 3


def test_a_look_in_training_mode_does_not_stand_in_the_way_of_the_next_step():
    """A pass that nobody goes back from, and then another engine."""
    _, model, optimizer, loss, loader = private(GAMMA, steps=3)
    batches = iter(loader)
    x, y = next(batches)
    loss(model(x), y).backward()
    optimizer.step()
    optimizer.zero_grad()
    model(x)
    private(GAMMA, steps=3)
    x, y = next(batches)
    loss(model(x), y).backward()
    optimizer.step()
    assert optimizer.steps_taken == 2
