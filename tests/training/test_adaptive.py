"""Adaptive clipping: one more coordinate of a release, Opacus's clips, and the account that dp-accounting has."""

import copy
import math

import opacus
import pytest
import torch
from dp_accounting import dp_event
from dp_accounting.pld import PLDAccountant
from safetensors.torch import save_model
from tests.training.helpers import dimension_of, given, seeded, small_data, small_model
from torch import nn
from torch.utils.data import DataLoader

import plrvo
from plrvo.audit.receipt import verify
from plrvo.records import Receipt
from plrvo.training import PrivacyEngine, schedulers
from plrvo.training.receipts import make_receipt
from plrvo.validate import InvalidArgument

ADAPTIVE = {
    "target_unclipped_quantile": 0.5,
    "clipbound_learning_rate": 0.2,
    "max_clipbound": 50.0,
    "min_clipbound": 0.01,
    "unclipped_num_std": 1.3,
}
CLIP, MULTIPLIER, SIZE = 0.8, 1.1, 200


def made(engine=None, *, noise_multiplier=MULTIPLIER, length=1, mode="auto", noise=None, seed=1, plan=None, **changes):
    """(engine, module, model, optimizer, loader) of a run without sampling, unless told."""
    module = small_model()
    engine = engine or PrivacyEngine(plan)
    widths = {} if plan else {"noise_multiplier": noise_multiplier, "max_grad_norm": CLIP, "noise": noise}
    model, optimizer, loader = engine.make_private(
        module=module,
        optimizer=torch.optim.SGD(module.parameters(), lr=0.05),
        data_loader=DataLoader(small_data(SIZE), batch_size=SIZE // length),
        grad_sample_mode=mode,
        noise_generator=seeded(seed),
        sample_generator=seeded(seed + 1),
        steps_per_epoch=12,
        **{"clipping": "adaptive", **widths, **ADAPTIVE, **changes},
    )
    return engine, module, model, optimizer, loader


def train(model, optimizer, loader, steps):
    clips = []
    for _, (x, y) in zip(range(steps), loader, strict=False):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        clips.append(float(optimizer.max_grad_norm))
    return clips


def norms_of(module, x, y):
    """By a loop over the examples."""
    found = []
    for i in range(len(x)):
        gradients = torch.autograd.grad(
            nn.functional.cross_entropy(module(x[i : i + 1]), y[i : i + 1]), list(module.parameters())
        )
        found.append(float(torch.cat([g.flatten() for g in gradients]).norm()))
    return torch.tensor(found)


@pytest.mark.parametrize("mode", ["bookkeeping", "hooks"])
def test_clips_are_those_of_opacus_where_noise_is_next_to_none(mode):
    quiet = {"noise_multiplier": 1e-5, "unclipped_num_std": 1e-4}
    _, _, model, optimizer, loader = made(mode=mode, **quiet)
    ours = train(model, optimizer, loader, 8)
    module = small_model()
    with pytest.warns(UserWarning, match="Secure RNG"):
        engine = opacus.PrivacyEngine()
    other, theirs, batches = engine.make_private(
        module=module,
        optimizer=torch.optim.SGD(module.parameters(), lr=0.05),
        data_loader=DataLoader(small_data(SIZE), batch_size=SIZE),
        max_grad_norm=CLIP,
        poisson_sampling=False,
        clipping="adaptive",
        **{**ADAPTIVE, **quiet},
    )
    reference = [clip for _ in range(8) for clip in train(other, theirs, batches, 1)]
    assert ours == pytest.approx(reference, rel=1e-5)
    assert max(ours) > 1.2 * CLIP  # it moved


@pytest.mark.parametrize("mode", ["bookkeeping", "hooks"])
def test_the_clip_comes_to_the_quantile(mode):
    _, _, model, optimizer, loader = made(mode=mode, clipbound_learning_rate=1.0, target_unclipped_quantile=0.25)
    for group in optimizer.param_groups:
        group["lr"] = 0.0
    train(model, optimizer, loader, 12)
    x, y = small_data(SIZE)[:]
    below = float((norms_of(small_model(), x, y) <= optimizer.clip).float().mean())
    assert abs(below - 0.25) < 0.06  # the count's noise is 1.3 of 200 examples


@pytest.mark.parametrize("noise", [None, "laplace"])
def test_gradient_and_count_have_the_noise_that_is_charged(noise):
    _, _, model, optimizer, _ = made(noise=noise)
    x, y = small_data(SIZE)[:]
    gradients, counts = [], []
    for _ in range(60):
        optimizer.zero_grad()
        given(optimizer, 0)
        nn.functional.cross_entropy(model(x[:0]), y[:0], reduction="sum").backward()
        optimizer.pre_step()
        gradients.append(torch.cat([p.grad.flatten() for p in optimizer.params]) * optimizer.expected_batch_size)
        counts.append(float(optimizer._released) / (2 * optimizer._weight * optimizer.clip))
    multiplier = (MULTIPLIER**-2 - (2 * 1.3) ** -2) ** -0.5
    assert float(torch.cat(gradients).std()) == pytest.approx(multiplier * CLIP, rel=0.03)  # 38,000 of them
    assert float(torch.tensor(counts).std()) == pytest.approx(1.3, rel=0.5)  # five standard errors, also of Laplace
    if noise is None:
        assert optimizer.noise_multiplier == pytest.approx(MULTIPLIER)


def test_an_example_moves_the_joint_sum_by_no_more_than_the_ledger_charges():
    """In units of the noise: (gradient, count) of one example against clip and noise of the entry."""
    engine, _, model, optimizer, loader = made(clipbound_learning_rate=1.0)
    entries, ratios = [], []
    for _, (x, y) in zip(range(4), loader, strict=False):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        x, y = 10 * small_data(SIZE)[:1][0], small_data(SIZE)[:1][1]
        optimizer.zero_grad()
        given(optimizer, 1)
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.draws.part(1, last=True)
        optimizer.clip_and_accumulate()
        *gradient, count = optimizer.sums
        assert abs(float(count)) == pytest.approx(optimizer._weight * optimizer.clip)
        length = math.hypot(float(torch.cat([g.flatten() for g in gradient]).norm()), float(count))
        ratios.append(length / optimizer.noise.sigma)
        optimizer.sums = None
        optimizer.book.clear()
    ((noise, work),) = entries = engine.accountant.ledger.entries
    assert len(entries) == 1
    assert max(ratios) <= work.clip / noise.sigma
    assert max(ratios) == pytest.approx(work.clip / noise.sigma, rel=1e-4)  # and no less is possible


def test_the_account_is_that_of_one_gaussian_of_the_combined_multiplier():
    engine, module, model, optimizer, loader = made(length=10)
    train(model, optimizer, loader, 3)
    event = dp_event.PoissonSampledDpEvent(0.1, dp_event.GaussianDpEvent(MULTIPLIER))
    reference = PLDAccountant().compose(event, 3).get_epsilon(1e-4)
    assert engine.get_epsilon(1e-4) == pytest.approx(reference, rel=0.01)
    ((_, work),) = engine.accountant.ledger.entries
    assert work.dimension == dimension_of(module) + 1


def test_other_noise_is_charged_in_one_more_coordinate_and_claims_no_lower_bound():
    engine, module, model, optimizer, loader = made(noise="laplace")
    clips = train(model, optimizer, loader, 3)
    assert len(set(clips)) == 3
    noise = plrvo.Laplace(MULTIPLIER * CLIP / math.sqrt(2))
    work = plrvo.Workload(1.0, 3, CLIP, dimension_of(module) + 1)
    due, found = plrvo.epsilon(noise, work, 1e-4), engine.epsilon(1e-4)
    assert found.certified == pytest.approx(due.certified, rel=1e-9)
    assert found.lower == 0


def test_parts_of_a_batch_count_as_one():
    runs = [made() for _ in range(2)]
    x, y = small_data(SIZE)[:40]
    for (_, _, model, optimizer, _), cuts in zip(runs, ([slice(0, 40)], [slice(0, 15), slice(15, 40)]), strict=True):
        given(optimizer, 40)
        for cut in cuts:
            optimizer.signal_skip_step(cut is not cuts[-1])
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x[cut]), y[cut]).backward()
            optimizer.step()
    assert runs[0][3].clip == pytest.approx(runs[1][3].clip, rel=1e-12)
    assert runs[0][3].clip != CLIP


def test_a_plan_with_a_budget_keeps_it_and_its_receipt_verifies(tmp_path):
    module = small_model()
    work = plrvo.Workload(1.0, 4, CLIP, dimension_of(module))
    plan = plrvo.Plan.fitted("gaussian", work, 1e-4, 3.0, clipping="adaptive")
    assert plan.charged.dimension == work.dimension + 1
    engine, module, model, optimizer, loader = made(plan=plan, unclipped_num_std=20.0)
    train(model, optimizer, loader, 3)
    engine.save_checkpoint(path=tmp_path / "c", module=model, optimizer=optimizer)
    resumed, again, model2, optimizer2, loader2 = made(plan=plan, unclipped_num_std=20.0, seed=9)
    resumed.load_checkpoint(path=tmp_path / "c", module=model2, optimizer=optimizer2)
    assert optimizer2.clip == optimizer.clip != CLIP
    assert train(model, optimizer, loader, 1) == train(model2, optimizer2, loader2, 1)
    for p, q in zip(module.parameters(), again.parameters(), strict=True):
        assert torch.equal(p, q)
    other = made(plan=plan, unclipped_num_std=21.0)
    with pytest.raises(InvalidArgument, match="adaptive clipping"):
        other[0].load_checkpoint(path=tmp_path / "c", module=other[2], optimizer=other[3])
    save_model(module, tmp_path / "model.safetensors")
    receipt = make_receipt(engine, optimizer, tmp_path / "model.safetensors", {"model": "small", "examples": SIZE}, {})
    receipt.write(tmp_path / "receipt.json")
    assert verify(tmp_path / "receipt.json") == []
    assert receipt["epsilon"]["certified"] <= 3.0
    assert receipt["run"]["adaptive"]["clip"] == optimizer.clip
    changed = copy.deepcopy(receipt.document)
    del changed["run"]["adaptive"]
    found = Receipt(changed, tmp_path / "receipt.json").verify().differences
    assert any("run.adaptive" in line for line in found)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"unclipped_num_std": None}, r"^unclipped_num_std=None"),
        ({"unclipped_num_std": MULTIPLIER / 2}, r"^unclipped_num_std=.*half of the noise multiplier"),
        ({"min_clipbound": 60.0}, r"^max_clipbound=50"),
        ({"target_unclipped_quantile": 1.0}, r"^target_unclipped_quantile="),
        ({"clipping": "flat"}, r"^target_unclipped_quantile="),
        ({"unheard_of": 1}, r"^unheard_of="),
    ],
)
def test_arguments_that_mean_nothing_are_refused(changes, named):
    with pytest.raises(InvalidArgument, match=named):
        made(**changes)


def test_exact_sums_and_schedules_have_no_adaptive_clip():
    with pytest.raises(InvalidArgument, match=r"^clipping=.*exact"):
        made(PrivacyEngine(exact=True))
    with pytest.raises(InvalidArgument, match="adaptive"):
        schedulers.ExponentialNoise(made()[3], gamma=0.9)


@pytest.mark.parametrize("mode", ["bookkeeping", "hooks"])
def test_a_step_without_a_pass_counts_nobody(mode):
    """The batch before it has had its step: it must not be counted in this one too."""
    *_, model, optimizer, _ = made(mode=mode)
    x, y = small_data(SIZE).tensors
    heard, add_noise = [], type(optimizer).add_noise
    optimizer.add_noise = lambda: (heard.append(float(optimizer.sums[-1])), add_noise(optimizer))
    for rows in (7, 0):
        optimizer.zero_grad()
        optimizer.draws.drawn(range(rows))
        if rows:
            nn.functional.cross_entropy(model(x[:rows]), y[:rows]).backward()
        optimizer.step()
    assert heard[0] != 0.0
    assert heard[1] == 0.0
