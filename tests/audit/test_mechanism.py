"""The white-box audit: honest mechanisms survive it, broken ones and the published figure do not."""

import math

import numpy as np
import pytest

import plrvo
from plrvo.accounting.lower import lower_loss
from plrvo.audit import Canary, audit_mechanism
from plrvo.audit.mechanism import simulator
from plrvo.audit.verdict import claimed_epsilon
from plrvo.noise import GammaPLRV, Gaussian, Laplace
from plrvo.validate import InvalidArgument

DELTA = 1e-5
PAPER = plrvo.Workload(sample_rate=0.01, steps=300, clip=0.5, dimension=26_010)


def certified(noise, work, delta=DELTA) -> float:
    return plrvo.Ledger().plus(noise, work).certified(delta).value


def test_the_published_figure_is_refuted_and_the_certified_one_is_not():
    """Laplace noise at half the clip: published 2.90, true value above 8.6. False alarm for certified: at most 0.01."""
    noise = GammaPLRV(k=40_000, theta=1e-4)
    published = claimed_epsilon("published", noise, PAPER, DELTA)
    result = audit_mechanism(noise, PAPER, DELTA, published, trials=400_000, seed=1)
    assert published == pytest.approx(2.901, abs=1e-3)
    assert result.epsilon_audited > published
    assert result.verdict == "refuted"
    assert audit_mechanism(noise, PAPER, DELTA, certified(noise, PAPER), trials=40_000, seed=1).verdict == "consistent"


@pytest.mark.parametrize(
    "noise",
    [Gaussian(0.7), Laplace(0.7), GammaPLRV(k=4.0, theta=0.4), GammaPLRV(k=50.0, theta=0.03, shared=True)],
    ids=["gaussian", "laplace", "gamma", "shared"],
)
@pytest.mark.parametrize("spread", [1, 400])
@pytest.mark.parametrize("rate", [0.05, 1.0])
def test_a_certified_claim_is_consistent_and_the_attack_is_not_blind(noise, spread, rate):
    """False alarm at most 0.01 for each of the sixteen cases, and far less where certified is not tight."""
    work = plrvo.Workload(sample_rate=rate, steps=20 if rate < 1 else 2, clip=1.0, dimension=400)
    claim = certified(noise, work)
    result = audit_mechanism(noise, work, DELTA, claim, trials=20_000, canary=Canary.spread(work, spread), seed=2)
    assert result.verdict == "consistent"
    if rate == 1 or spread > 1:  # one coordinate that is rarely sampled hides in its bounded likelihood ratio
        assert result.epsilon_audited > 1


@pytest.mark.parametrize("noise", [Laplace(0.4), GammaPLRV(k=6.0, theta=0.35)], ids=["laplace", "gamma"])
def test_scores_have_the_loss_distribution_that_the_accountant_composes(noise):
    """delta(epsilon) = E[(1 - e^(epsilon - score))+] with the example; the accountant's is a close lower bound.

    Both sides were written apart. False alarm: below 4e-5 for each value (four deviations).
    """
    work = plrvo.Workload(sample_rate=0.05, steps=40, clip=1.0, dimension=1024)
    composed = lower_loss([(noise, work)], DELTA)
    scores = simulator(noise, work, Canary.spread(work))(True, 100_000, np.random.default_rng(3))
    for epsilon in (0.5, 2.0, 4.0):
        gain = np.maximum(-np.expm1(np.minimum(epsilon - scores, 0.0)), 0.0)
        deviation = float(gain.std()) / math.sqrt(len(gain))
        assert abs(gain.mean() - composed.delta(epsilon)) < 4 * deviation + 0.01 * gain.mean()


def test_scores_are_likelihood_ratios():
    """E[e^score] = 1 without the example: false alarm below 1e-4 (four deviations)."""
    work = plrvo.Workload(sample_rate=0.1, steps=12, clip=1.0, dimension=64)
    for canary in (Canary.spread(work), Canary.one_hot(work)):
        ratios = np.exp(simulator(Laplace(2.0), work, canary)(False, 100_000, np.random.default_rng(4)))
        assert abs(ratios.mean() - 1) < 4 * ratios.std() / math.sqrt(len(ratios))


def test_many_steps_are_drawn_in_parts():
    """More steps than fit into a chunk: the mean score of Gaussian noise without sampling is T mu^2/2."""
    work = plrvo.Workload(sample_rate=1.0, steps=70_000, clip=1.0, dimension=1)
    scores = simulator(Gaussian(100.0), work, Canary.one_hot(work))(True, 30, np.random.default_rng(5))
    assert scores.mean() == pytest.approx(3.5, abs=4 * math.sqrt(7 / 30))


def test_threads_do_not_change_the_result():
    work = plrvo.Workload(sample_rate=0.1, steps=5, clip=1.0, dimension=20)
    results = [audit_mechanism(Laplace(1.0), work, DELTA, 1.0, trials=60_000, seed=6, jobs=jobs) for jobs in (1, 3)]
    assert results[0] == results[1]


# One test for each way to break an engine. Each claim is what the honest mechanism certifies.


def test_no_noise_is_refuted():
    work = plrvo.Workload(sample_rate=0.1, steps=20, clip=1.0, dimension=100)
    claim = certified(Laplace(2.0), work)
    assert audit_mechanism(Laplace(1e-9), work, DELTA, claim, trials=4000, seed=7).verdict == "refuted"


def test_no_clipping_is_refuted():
    """A gradient of norm 5 against noise for norm 1: what the example moves is what the canary's clip says."""
    work = plrvo.Workload(sample_rate=0.1, steps=20, clip=1.0, dimension=100)
    unclipped = plrvo.Workload(sample_rate=0.1, steps=20, clip=5.0, dimension=100)
    noise = Laplace(2.0)
    claim = certified(noise, work)
    assert audit_mechanism(noise, unclipped, DELTA, claim, trials=4000, seed=8).verdict == "refuted"


def test_theta_used_as_a_rate_is_refuted():
    noise = GammaPLRV(k=40_000, theta=6e-5)
    claim = certified(noise, PAPER)
    broken = GammaPLRV(k=noise.k, theta=1 / noise.theta)
    assert audit_mechanism(broken, PAPER, DELTA, claim, trials=4000, seed=9).verdict == "refuted"


def test_shuffled_batches_with_the_claim_of_poisson_batches_are_refuted():
    """One epoch of 100 batches, Gaussian noise as large as the clip: certified for Poisson 0.72, found above 1.2."""
    work = plrvo.Workload(sample_rate=0.01, steps=100, clip=1.0, dimension=10)
    noise = Gaussian(1.0)
    claim = certified(noise, work)
    shuffled = audit_mechanism(noise, work, DELTA, claim, trials=200_000, seed=10, sampler="shuffled")
    assert shuffled.epsilon_audited > 1.2 > claim
    assert shuffled.verdict == "refuted"
    assert audit_mechanism(noise, work, DELTA, claim, trials=40_000, seed=10).verdict == "consistent"


def test_shuffled_laplace_batches_are_refuted_too():
    work = plrvo.Workload(sample_rate=0.01, steps=200, clip=1.0, dimension=1)
    claim = certified(Laplace(0.4), work)
    result = audit_mechanism(Laplace(0.4), work, DELTA, claim, trials=100_000, seed=11, sampler="shuffled")
    assert result.verdict == "refuted"


def test_noise_sized_for_the_mean_and_added_to_the_sum_is_refuted():
    """Noise a batch too small. The reverse, noise for the sum on the mean, is a batch too much: no false claim."""
    work, batch = plrvo.Workload(sample_rate=0.1, steps=20, clip=1.0, dimension=100), 25
    noise = Laplace(2.0)
    claim = certified(noise, work)
    too_small, too_large = noise.scaled(1 / batch), noise.scaled(batch)
    assert audit_mechanism(too_small, work, DELTA, claim, trials=4000, seed=12).verdict == "refuted"
    assert audit_mechanism(too_large, work, DELTA, claim, trials=4000, seed=12).verdict == "consistent"


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"trials": 20}, "trials=20: expected at least 32: .* 5 perfect tests certify at most epsilon 0"),
        ({"trials": 0}, "trials"),
        ({"confidence": 1.0}, "confidence"),
        ({"claim": math.nan}, "claim"),
        ({"claim": -1.0}, "claim"),
        ({"seed": -3}, "seed"),
        ({"jobs": 0}, "jobs"),
        ({"sampler": "sorted"}, "sampler"),
    ],
)
def test_bad_input_is_refused_before_any_run(change, named):
    work = plrvo.Workload(sample_rate=0.1, steps=5, clip=1.0, dimension=20)
    arguments = {"claim": 1.0, "trials": 4000, "seed": 1, **change}
    with pytest.raises(InvalidArgument, match=named):
        audit_mechanism(Laplace(1.0), work, DELTA, **arguments)


def test_shuffled_batches_need_whole_epochs_and_one_coordinate():
    work = plrvo.Workload(sample_rate=0.1, steps=25, clip=1.0, dimension=20)
    with pytest.raises(InvalidArgument, match="whole epochs"):
        audit_mechanism(Laplace(1.0), work, DELTA, 1.0, trials=4000, sampler="shuffled")
    even = plrvo.Workload(sample_rate=0.1, steps=20, clip=1.0, dimension=20)
    with pytest.raises(InvalidArgument, match="one, with shuffled batches"):
        audit_mechanism(Laplace(1.0), even, DELTA, 1.0, trials=4000, canary=Canary.spread(even), sampler="shuffled")
