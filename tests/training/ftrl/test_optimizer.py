"""The engine with a correlation: what it releases, when it stops, and that it can go on."""

import math

import numpy as np
import pytest
import torch
from tests.training.ftrl.correlated import FIVE_TWICE, STRATEGIES, correlated, released_sums, weights_of
from tests.training.helpers import take_steps

import plrvo
from plrvo.accounting.correlated import Banded, Correlation, Explicit, Participation, SquareRoot, Tree, fit_banded
from plrvo.training import BudgetExhausted
from plrvo.training.ftrl import NoiseStream, ScheduleViolated, keyed_draws
from plrvo.training.score import postprocessor
from plrvo.validate import InvalidArgument

LIKE = torch.zeros(1)


# How clipped sums are formed is no matter of the strategy: every strategy, and every mode.
@pytest.mark.parametrize(
    ("name", "mode"), [*((name, "hooks") for name in STRATEGIES), ("banded", "ghost"), ("tree", "bookkeeping")]
)
def test_the_noise_in_a_run_is_the_recipe_applied_to_keyed_rows(name, mode):
    noise = plrvo.Laplace(2.0)
    _, model, optimizer, loss, loader = correlated(STRATEGIES[name], noise, mode=mode)
    key, count = optimizer.noise_key, sum(p.numel() for p in optimizer.params)
    sums, out = released_sums(model, optimizer, loss, loader)
    assert len(out) == 10
    draw = keyed_draws(noise, key, count, LIKE)
    rows = torch.stack([draw(r) for r in range(STRATEGIES[name].rows(10))]).double().numpy()
    s = STRATEGIES[name].matrix(10)
    if s.shape[0] == s.shape[1]:
        expected = np.linalg.solve(s, rows)
        np.testing.assert_allclose((out - sums).double().numpy(), expected, atol=2e-4)
    # A tree's noise is no inverse: it must give back zero for rows that are sums, which the recipe's tests show. Here
    # the last prefix has the variance of Honaker's estimate, not of fresh noise.
    total = (out - sums).double().sum(0).numpy()
    weights = np.cumsum(_decoder(STRATEGIES[name], 10), axis=0)[-1]
    np.testing.assert_allclose(total, weights @ rows, atol=1e-3)


def _decoder(strategy, length):
    stream = NoiseStream(Correlation(strategy, Participation(length)), length, lambda row: np.eye(64)[row].copy())
    return np.array([np.array(stream.next_noise()) for _ in range(length)])[:, : strategy.rows(length)]


@pytest.mark.parametrize("noise", [plrvo.Laplace(3.0), plrvo.GammaPLRV(30.0, 0.01), plrvo.Gaussian(3.0)], ids=str)
def test_rows_have_the_size_that_the_noise_object_says(noise):
    """theta is a scale. As a rate it would leave 1e-4 of the noise (30 * 0.01 -> 30 / 0.01), and this test would fail.

    False alarm: the mean of 200,000 magnitudes is within 5 standard errors; below 1e-6.
    """
    draw = keyed_draws(noise, 12345, 200_000, LIKE.double())
    for row in (0, 7):
        z = draw(row).abs().numpy()
        assert abs(z.mean() - noise.distortion) < 5 * z.std() / math.sqrt(len(z))


def test_a_run_with_theta_taken_for_a_rate_would_be_noticed():
    """The size of the noise that a run really added, against the strategy and the noise object.

    False alarm: below 1e-6 (5 standard errors of the mean square of 6,080 values of light-tailed noise).
    """
    noise = plrvo.GammaPLRV(60.0, 0.005)
    _, model, optimizer, loss, loader = correlated(Tree(), noise)
    sums, out = released_sums(model, optimizer, loss, loader)
    added = (out - sums).double().numpy()
    truth = noise.variance * np.sum(_decoder(Tree(), 10) ** 2, axis=1)
    measured = (added**2).mean(axis=1)
    error = (added**2).std(axis=1) / math.sqrt(added.shape[1])
    assert np.all(np.abs(measured - truth) < 5 * error)
    as_rate = plrvo.GammaPLRV(60.0, 1 / 0.005)
    assert np.all(measured > 1e6 * as_rate.variance)


def test_rows_are_functions_of_key_and_number_alone_and_differ_from_each_other():
    draw = keyed_draws(plrvo.Laplace(1.0), 99, 1000, LIKE)
    first = draw(3)
    assert torch.equal(draw(3), first)
    assert not torch.equal(draw(4), first)
    assert not torch.equal(keyed_draws(plrvo.Laplace(1.0), 99 + (1 << 64), 1000, LIKE)(3), first)
    correlation = np.corrcoef(torch.stack([draw(r) for r in range(30)]).numpy())
    assert np.abs(correlation - np.eye(30)).max() < 0.18  # 435 pairs, 5.6 standard errors: false alarm below 1e-5


def test_a_shared_scale_is_one_for_each_row():
    draw = keyed_draws(plrvo.GammaPLRV(2.0, 0.5, shared=True), 5, 4000, LIKE.double())
    sizes = [draw(r).abs().mean().item() for r in range(40)]
    assert np.std(np.log(sizes)) > 0.3  # with a scale per coordinate the rows would differ by a few percent


# Each strategy, with and without its score, in the middle of a block; the first and the last step, and between blocks.
@pytest.mark.parametrize(
    ("name", "postprocess", "at", "restart"),
    [
        *((name, None, 4, None) for name in STRATEGIES),
        *((name, "score", 7, 4) for name in STRATEGIES),
        *(("tree", "score", at, None) for at in (1, 9)),
        *(("blt", None, at, None) for at in (1, 9)),
        *((name, "score", 8, 4) for name in ("completed", "banded")),
    ],
)
def test_resumed_equals_uninterrupted_bit_for_bit(tmp_path, name, postprocess, at, restart):
    path = tmp_path / "checkpoint.safetensors"
    arguments = {"restart": restart, "postprocess": postprocess, "momentum": 0.9}
    engine, model, optimizer, loss, loader = correlated(STRATEGIES[name], **arguments)
    for i, (x, y) in enumerate(loader, start=1):
        optimizer.zero_grad()
        loss(model(x), y).backward()
        optimizer.step()
        if i == at:
            engine.save_checkpoint(path=path, module=model, optimizer=optimizer, extra=i)
    resumed, again, optimizer_again, loss, loader = correlated(STRATEGIES[name], seed=77, **arguments)
    assert resumed.load_checkpoint(path=path, module=again, optimizer=optimizer_again) == at
    assert len(take_steps(again, optimizer_again, loss, loader)) == 10 - at
    assert torch.equal(weights_of(model), weights_of(again))
    assert resumed.accountant.ledger == engine.accountant.ledger
    assert resumed.sampler.to_dict() == engine.sampler.to_dict()
    if postprocess is None:  # key and counters only: no larger than without correlation
        assert path.stat().st_size < 40_000


def test_a_checkpoint_of_other_private_data_is_refused(tmp_path):
    path = tmp_path / "checkpoint.safetensors"
    engine, model, optimizer, loss, loader = correlated(Tree())
    x, y = next(iter(loader))
    loss(model(x), y).backward()
    optimizer.step()
    engine.save_checkpoint(path=path, module=model, optimizer=optimizer)
    other, model, optimizer, _, _ = correlated(Tree(), size=70)
    with pytest.raises(InvalidArgument, match="order of batches"):
        other.load_checkpoint(path=path, module=model, optimizer=optimizer)


@pytest.mark.parametrize("name", STRATEGIES)
def test_the_score_is_applied_to_rows_and_costs_nothing(name):
    noise = plrvo.Laplace(2.0)
    engine, model, optimizer, loss, loader = correlated(STRATEGIES[name], noise, postprocess="score")
    key, count = optimizer.noise_key, sum(p.numel() for p in optimizer.params)
    sums, out = released_sums(model, optimizer, loss, loader)
    draw = keyed_draws(noise, key, count, LIKE)
    s = STRATEGIES[name].matrix(10)
    rows = s @ sums.double().numpy() + torch.stack([draw(r) for r in range(len(s))]).double().numpy()
    scored = postprocessor("score", noise)(torch.from_numpy(rows)).numpy()
    np.testing.assert_allclose(out.double().numpy(), _decoder(STRATEGIES[name], 10) @ scored, atol=1e-3)
    raw = correlated(STRATEGIES[name], noise)[0]
    assert engine.plan.bracket == raw.plan.bracket


def test_a_gaussian_score_is_no_change():
    noise = plrvo.Gaussian(2.0)
    results = []
    for postprocess in (None, "score"):
        _, model, optimizer, loss, loader = correlated(fit_banded(3, 10), noise, postprocess=postprocess)
        results.append(released_sums(model, optimizer, loss, loader)[1])
    torch.testing.assert_close(results[0], results[1], atol=1e-3, rtol=1e-3)


def test_epsilon_grows_to_the_certified_value_of_the_plan_and_no_step_goes_beyond():
    engine, model, optimizer, loss, loader = correlated(Tree(), plrvo.Laplace(9.0), epsilon=50.0)
    seen = []
    for x, y in loader:
        optimizer.zero_grad()
        loss(model(x), y).backward()
        optimizer.step()
        seen.append(engine.get_epsilon(1e-4))
    assert seen == sorted(seen)
    assert seen[-1] == engine.plan.bracket.certified
    assert seen[0] == pytest.approx(
        plrvo.epsilon(plrvo.Laplace(9.0), plrvo.Workload(1.0, 1, 1.0, optimizer.dimension), 1e-4).certified
    )
    before = weights_of(model).clone()
    optimizer.zero_grad()
    loss(model(x), y).backward()
    with pytest.raises((BudgetExhausted, ScheduleViolated)):
        optimizer.step()
    assert torch.equal(weights_of(model), before)


def test_a_step_without_a_new_batch_is_refused_before_anything_is_released():
    _, model, optimizer, loss, loader = correlated(Tree())
    x, y = next(iter(loader))
    loss(model(x), y).backward()
    optimizer.step()
    before = weights_of(model).clone()
    optimizer.zero_grad()
    loss(model(x), y).backward()
    with pytest.raises(ScheduleViolated, match="one step for each batch"):
        optimizer.step()
    assert torch.equal(weights_of(model), before)


def test_a_skipped_batch_is_noticed():
    _, model, optimizer, loss, loader = correlated(Tree())
    batches = iter(loader)
    next(batches)
    x, y = next(batches)
    loss(model(x), y).backward()
    with pytest.raises(ScheduleViolated, match="step 0 with 2 batches"):
        optimizer.step()


SCHEDULES = {
    "too early": [[0, 1], [2, 3], [0, 4]],
    "too often": [[0, 1], *[[2 * i] for i in range(2, 6)], [0, 1], *[[2 * i] for i in range(2, 6)], [0]],
    "off the period": [[0], [1], [2], [3], [4], [5], [0]],
    "twice in a batch": [[3, 3]],
    "outside": [[60]],
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_schedule_that_breaks_the_plan_stops_before_the_step(name):
    batches = SCHEDULES[name]
    participation = FIVE_TWICE if name == "too often" else Participation(5, 3)
    engine, model, optimizer, loss, loader = correlated(Tree(), participation=participation, batch_sampler=batches)
    engine.sampler.steps = engine.sampler.epoch = 100  # a loader that does not know where to end
    before = []

    def step_and_remember(x, y):
        before.append(weights_of(model).clone())
        optimizer.zero_grad()
        loss(model(x), y).backward()
        optimizer.step()

    with pytest.raises(ScheduleViolated):
        [step_and_remember(x, y) for x, y in loader]
    assert optimizer.steps_taken == len(before) == len(batches) - 1 == len(engine.accountant)


def test_a_schedule_of_the_callers_that_keeps_the_plan_is_used_as_it_is():
    batches = [[0, 1, 2], [3, 4], [], [5], [6, 7, 8, 9]] * 2
    engine, model, optimizer, loss, loader = correlated(Tree(), batch_sampler=batches)
    assert take_steps(model, optimizer, loss, loader) == [len(b) for b in batches]
    said = engine.sampler.to_dict()
    assert (said["order"], said["largest_count"], said["smallest_separation"]) == ("fixed, the caller's", 2, 5)


@pytest.mark.parametrize("separation", [5, 4, 2, 1])
def test_the_own_order_visits_everyone_once_an_epoch_and_keeps_its_separation(separation):
    participation = Participation(5, 4, separation)
    engine = correlated(Banded(), participation=participation, steps=20, size=33)[0]
    batches = [list(batch) for batch in engine.sampler]
    for epoch in range(4):
        assert sorted(i for batch in batches[5 * epoch : 5 * epoch + 5] for i in batch) == list(range(33))
    last = {}
    gaps = []
    for step, batch in enumerate(batches):
        gaps += [step - last[i] for i in batch if i in last]
        last.update(dict.fromkeys(batch, step))
    assert min(gaps) >= separation
    assert engine.sampler.visits.smallest_separation == min(gaps)
    assert (set(gaps) == {5}) == (separation == 5)


def test_physical_batches_are_one_step():
    from opacus.utils.batch_memory_manager import BatchMemoryManager

    results = []
    for most in (100, 5):
        engine, model, optimizer, loss, loader = correlated(Tree())
        with BatchMemoryManager(data_loader=loader, max_physical_batch_size=most, optimizer=optimizer) as split:
            take_steps(model, optimizer, loss, split)
        assert optimizer.steps_taken == 10
        assert engine.sampler.visits.steps == 10
        results.append(weights_of(model))
    torch.testing.assert_close(results[0], results[1], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"clipping": "l1"}, "clipping"),
        ({"num_workers": 1}, "num_workers"),
        ({"size": 4}, "steps_per_epoch"),
        ({"steps": 11}, "steps=11"),
    ],
)
def test_what_is_not_covered_is_refused(arguments, named):
    with pytest.raises(InvalidArgument, match=named):
        correlated(Banded(), **arguments)


def test_a_matrix_of_another_length_is_refused():
    with pytest.raises(InvalidArgument, match="steps=10"):
        correlated(Explicit(((1.0, 0.0), (0.5, 1.0))))
    with pytest.raises(InvalidArgument, match="bands=11"):
        correlated(Banded((1.0,) * 11))


def test_per_layer_clipping_is_charged_at_the_plans_clip():
    engine, model, optimizer, loss, loader = correlated(Tree(), clipping="per_layer")
    take_steps(model, optimizer, loss, loader)
    assert engine.get_epsilon(1e-4) == engine.plan.bracket.certified


def test_rows_that_do_not_fit_are_drawn_again(monkeypatch):
    from plrvo.training.ftrl import stream

    draw = keyed_draws(plrvo.Laplace(1.0), 4, 50, LIKE)
    correlation = Correlation(SquareRoot(), Participation(12))
    whole = NoiseStream(correlation, 12, draw, 200)
    monkeypatch.setattr(stream, "ROOM", 600)
    narrow = NoiseStream(correlation, 12, draw, 200)
    for _ in range(12):
        torch.testing.assert_close(whole.next_noise(), narrow.next_noise())
    assert len(narrow._stream._rows) == 3
