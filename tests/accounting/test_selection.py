"""The best of a random number of trials, against its exact law for small mechanisms, term by term."""

import itertools
import math
from decimal import localcontext

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from scipy import stats

from plrvo import Gaussian, InvalidArgument, Laplace, Ledger, Workload
from plrvo.accounting.by_loss import coarse_deltas
from plrvo.accounting.gaussian_curve import gaussian_delta
from plrvo.accounting.selection import NegativeBinomial, PoissonCount, Search, Trial, count_from_dict
from plrvo.noise import Keystream

DELTAS = (1e-6, 1e-3, 0.05)
ORDERS = (1, 2, 3, 7, 20)
COUNTS = [
    *(NegativeBinomial(eta, gamma) for eta in (-0.9, -0.5, 0.0, 0.5, 1.0, 4.0) for gamma in (0.01, 0.2, 0.7)),
    *(PoissonCount(mu) for mu in (0.3, 1.0, 4.0, 30.0)),
]


class Explicit:
    """A trial whose two laws are known: what `Trial` is asked for, exactly, in both directions."""

    has_moments = True
    largest_order = 400

    def __init__(self, p, q):
        self.p, self.q = p, q

    def certified_delta(self, epsilon):
        return max(hockey_stick(self.p, self.q, epsilon), hockey_stick(self.q, self.p, epsilon))

    delta_by_moments = certified_delta

    def deltas(self, epsilons):
        return [self.certified_delta(epsilon) for epsilon in epsilons]

    def certified(self, delta):
        return max(exact_epsilon(self.p, self.q, delta), exact_epsilon(self.q, self.p, delta))

    quick = by_moments = certified

    def moment(self, order):
        return max(renyi_moment(self.p, self.q, order), renyi_moment(self.q, self.p, order))


def hockey_stick(p, q, epsilon):
    return float(np.maximum(p - math.exp(epsilon) * q, 0.0).sum())


def exact_epsilon(p, q, delta):
    """The smallest x = e^epsilon with P(E) - x Q(E) <= delta for the likeliest E, which are prefixes by p/q."""
    order = np.argsort(-p / q)
    return math.log(max(1.0, float(np.max((np.cumsum(p[order]) - delta) / np.cumsum(q[order])))))


def renyi_moment(p, q, order):
    return float(np.logaddexp.reduce((order + 1) * np.log(p) - order * np.log(q)))


def generating(count, x):
    """E[x^K], from the definition of the law and not from the code."""
    if isinstance(count, PoissonCount):
        return np.exp(count.mu * (x - 1))
    rest = 1 - (1 - count.gamma) * x
    if count.eta == 0:
        return np.log(rest) / math.log(count.gamma)
    return (rest**-count.eta - 1) / (count.gamma**-count.eta - 1)


def selected(count, p):
    """The exact law of the best of K draws from p, the last outcome being the best; nothing comes first."""
    below = np.concatenate([[0.0], np.cumsum(p)])
    below[-1] = 1.0
    return np.concatenate([generating(count, np.zeros(1)), np.diff(generating(count, below))])


def without_impossible(*laws):
    keep = np.minimum.reduce(laws) > 0
    return [law[keep] for law in laws]


def mechanisms():
    """Pairs of laws: random ones, two-point ones in which the rare outcome is the best or the worst, and steep ones."""
    generator = np.random.default_rng(20260)
    for size, spread in itertools.product((2, 3, 6), (0.1, 0.5, 2.0)):
        for _ in range(2):
            base = generator.dirichlet(np.ones(size))
            tilted = base * np.exp(spread * generator.standard_normal(size))
            yield base, tilted / tilted.sum()
    for rare, ratio in itertools.product((1e-3, 0.05), (1.1, 3.0)):
        pair = np.array([rare, 1 - rare]), np.array([rare * ratio, 1 - rare * ratio])
        yield pair
        yield tuple(law[::-1].copy() for law in pair)


MECHANISMS = list(mechanisms())


@pytest.mark.parametrize("count", COUNTS, ids=str)
def test_no_bound_is_below_the_exact_law_of_the_best(count):
    for p, q in MECHANISMS:
        trial = Explicit(p, q)
        best_p, best_q = without_impossible(selected(count, p), selected(count, q))
        assert best_p.sum() == pytest.approx(1)
        exact = Explicit(best_p, best_q)
        bounds = count.moments(trial, ORDERS)
        for order, bound in zip(ORDERS, bounds, strict=True):
            assert exact.moment(order) <= bound + 1e-10, (p, q, order)
        for delta in DELTAS:
            truth = exact.certified(delta)
            assert truth <= count.certified(trial, delta) + 1e-9, (p, q, delta)
            assert truth <= count.quick(trial, delta) + 1e-9, (p, q, delta)


def test_the_exact_law_is_that_of_drawing_many_times():
    """Three trials' worth of logic in `selected`, against 10,000 searches; fails by chance once in 1e9."""
    generator, count, p = np.random.default_rng(3), NegativeBinomial(0.5, 0.3), np.array([0.5, 0.3, 0.2])
    numbers = np.arange(1, 400)
    with localcontext() as context:
        context.prec = 40
        shares = np.array([float(share) for share, _ in zip(count.probabilities(), range(400), strict=False)])[1:]
    drawn = generator.choice(numbers, 10_000, p=shares / shares.sum())
    best = np.array([generator.choice(3, number, p=p).max() for number in drawn])
    found = np.bincount(best, minlength=3) / len(best)
    assert np.abs(found - selected(count, p)[1:]).max() < 6.5 * math.sqrt(0.25 / len(best))


@pytest.mark.parametrize(
    ("count", "reached"),
    [(NegativeBinomial(1.0, 1e-3), 0.9), (NegativeBinomial(0.0, 1e-4), 0.9), (PoissonCount(20.0), 0.3)],
    ids=str,
)
def test_selection_has_a_price_and_the_worst_mechanisms_pay_most_of_it(count, reached):
    """The test above has teeth: without a price it fails. The second outcome of three, which the best one hides."""
    p, q = np.array([0.899, 0.001, 0.1]), np.array([0.948, 0.002, 0.05])
    trial, exact = Explicit(p, q), Explicit(*without_impossible(selected(count, p), selected(count, q)))
    assert exact.certified(1e-6) > trial.certified(1e-6) + 0.5
    assert exact.certified(1e-6) > reached * count.certified(trial, 1e-6)


@pytest.mark.parametrize("eta", [-0.5, 0.0, 1.0, 3.0])
def test_moments_are_at_most_those_of_papernot_and_steinke(eta):
    """Their Theorem 2 in their own words: orders alpha, divergences and not moments."""
    trial = Trial((Ledger().plus(Gaussian(6.0), Workload(0.25, 100, 1.0, 10)),))
    count = NegativeBinomial.of_mean(10.0, eta)

    def divergence(alpha):
        return trial.moment(alpha - 1) / (alpha - 1)

    for order in ORDERS:
        alpha = order + 1
        theirs = min(
            divergence(alpha)
            + (1 + eta) * (1 - 1 / other) * divergence(other)
            + (1 + eta) * math.log(1 / count.gamma) / other
            + math.log(count.mean) / (alpha - 1)
            for other in range(2, 200)
        )
        assert count.moments(trial, (order,))[0] / order <= theirs * (1 + 1e-9)
        quick = trial.moment(order) / order + (1 + eta) * count.quick_log_ratio(trial) + math.log(count.mean) / order
        assert quick <= theirs * (1 + 1e-9)


@pytest.mark.parametrize(
    ("count", "law"),
    [
        (NegativeBinomial(1.0, 0.3), lambda k: stats.geom.pmf(k, 0.3)),
        (NegativeBinomial(0.0, 0.3), lambda k: stats.logser.pmf(k, 0.7)),
        (NegativeBinomial(2.5, 0.3), lambda k: np.where(k, stats.nbinom.pmf(k, 2.5, 0.3), 0) / (1 - 0.3**2.5)),
        (PoissonCount(3.0), lambda k: stats.poisson.pmf(k, 3.0)),
    ],
    ids=["geometric", "logarithmic", "negative binomial", "poisson"],
)
def test_the_laws_are_the_known_ones(count, law):
    with localcontext() as context:
        context.prec = 40
        shares = [float(share) for share, _ in zip(count.probabilities(), range(200), strict=False)]
    k = np.arange(200)
    assert np.allclose(shares, law(k), rtol=1e-10, atol=1e-300)
    assert float(k @ shares) == pytest.approx(count.mean, rel=1e-9)
    assert shares[0] == pytest.approx(count.nothing)


@pytest.mark.parametrize("eta", [-0.5, 0.0, 1e-9, 0.5, 1.0, 10.0])
def test_a_mean_is_kept_and_rounded_upwards(eta):
    count = NegativeBinomial.of_mean(12.0, eta)
    with localcontext() as context:
        context.prec = 40
        total = mean = 0
        for number, share in enumerate(count.probabilities()):
            total, mean = total + share, mean + number * share
            if number > 12 and share < 1e-18:
                break
    assert float(total) == pytest.approx(1, abs=1e-9)
    assert float(mean) <= count.mean == pytest.approx(12.0)


def test_numbers_are_drawn_by_their_law_and_repeat_with_their_key():
    """A chi-squared test that fails by chance once in a million."""
    count, keys = NegativeBinomial.of_mean(3.0), Keystream(bytes(32))
    drawn = np.array([count.draw(keys) for _ in range(2000)])
    assert drawn.min() == 1
    expected = 2000 * np.append(stats.geom.pmf(np.arange(1, 8), 1 / 3), stats.geom.sf(7, 1 / 3))
    seen = np.append(np.bincount(drawn, minlength=8)[1:8], np.sum(drawn > 7))
    assert stats.chisquare(seen, expected * seen.sum() / expected.sum()).pvalue > 1e-6
    assert count.draw(Keystream(bytes(32))) == drawn[0]
    assert {PoissonCount(0.1).draw(keys) for _ in range(200)} >= {0, 1}


def test_a_search_costs_the_larger_of_training_and_score():
    work = Workload(0.25, 20, 1.0, 10)
    training = Ledger().plus(Gaussian(4.0), work)
    count = NegativeBinomial.of_mean(5.0)
    alone = Search(count, (training,)).certified(1e-5).value
    for sigma in (0.8, 30.0):
        score = Ledger().plus(Gaussian(sigma), Workload(1.0, 1, 1.0, 1))
        half = Search(count, (training,), score, held_out=0.5)
        assert Search.from_dict(half.to_dict()) == half
        assert half.lower(1e-5) == training.lower(2e-5)
        both = Search(count, (training,), score).certified(1e-5).value
        assert both == max(alone, Search(count, (score,)).certified(1e-5).value)
        assert (both > alone) == (sigma < 1)


def test_a_trial_of_several_settings_costs_what_the_worst_does_at_every_level():
    few, many = (Ledger().plus(Gaussian(s), Workload(q, t, 1.0, 10)) for s, q, t in ((1.2, 0.02, 20), (5.0, 0.3, 40)))
    both = Trial((few, many))
    for delta in (1e-8, 1e-3):
        assert both.certified(delta) == max(few.certified(delta).value, many.certified(delta).value)
    assert both.moment(3) == max(Trial((few,)).moment(3), Trial((many,)).moment(3))
    assert both.lower(1e-5) == min(few.lower(1e-5), many.lower(1e-5))


@pytest.mark.parametrize("noise", [Gaussian(5.0), Laplace(5.0)], ids=lambda noise: noise.kind)
def test_a_bracket_is_one_and_survives_a_file(noise):
    search = Search(NegativeBinomial.of_mean(4.0, 0.0), (Ledger().plus(noise, Workload(1.0, 3, 1.0, 50)),))
    bracket = search.epsilon(1e-5)
    assert 0 < bracket.lower <= bracket.certified <= search.quick(1e-5).value
    assert bracket.method == "selection"
    assert Search.from_dict(search.to_dict()) == search
    assert search.checked(1e-5).value == bracket.certified


def test_clips_of_layers_leave_no_lower_bound_after_a_file_either():
    """A ledger knows no layers, so that for noise other than Gaussian no attack is proved."""
    work = Workload(sample_rate=1.0, steps=3, clip=1.0, dimension=50)
    search = Search(NegativeBinomial.of_mean(4.0), (Ledger(((Laplace(1.0), work),), layered=True),))
    read = Search.from_dict(search.to_dict())
    assert read.layered
    assert read.lower(1e-5) == search.lower(1e-5) == 0.0
    assert Search(search.count, (Ledger(((Laplace(1.0), work),)),)).lower(1e-5) > 1.0


def test_a_coarse_grid_bounds_large_deltas_nearly_as_well_as_a_fine_one():
    """Against dp-accounting's estimates from below and from above, which are other code on another grid."""
    sigma, rate, steps, epsilons = 2.4, 0.25, 12, (0.1, 0.3, 1.0)
    found = coarse_deltas([(Gaussian(sigma), Workload(rate, steps, 1.0, 5))], epsilons)
    low, high = (
        pld.from_gaussian_mechanism(
            sigma, value_discretization_interval=1e-3, sampling_prob=rate, pessimistic_estimate=above
        ).self_compose(steps)
        for above in (False, True)
    )
    for epsilon, delta in zip(epsilons, found, strict=True):
        assert low.get_delta_for_epsilon(epsilon) <= delta <= 1.001 * high.get_delta_for_epsilon(epsilon)
    shown = coarse_deltas([(Gaussian(sigma), Workload(1.0, steps, 1.0, 5))], epsilons)
    assert shown == pytest.approx([gaussian_delta(math.sqrt(steps) / sigma, epsilon) for epsilon in epsilons], rel=1e-6)
    laplace = coarse_deltas([(Laplace(3.0), Workload(0.3, 10, 1.0, 4))], epsilons)
    exact = Ledger().plus(Laplace(3.0), Workload(0.3, 10, 1.0, 4))
    for epsilon, delta in zip(epsilons, laplace, strict=True):
        assert exact.lower(min(0.99, delta * 1.0001)) <= epsilon


def test_more_trials_and_smaller_deltas_cost_more():
    ledger = Ledger().plus(Gaussian(5.0), Workload(1.0, 1, 1.0, 1))

    def cost(mean, delta=1e-5, eta=1.0):
        return Search(NegativeBinomial.of_mean(mean, eta), (ledger,)).certified(delta).value

    assert cost(2.0) < cost(10.0) < cost(100.0)
    assert cost(10.0, 1e-5) < cost(10.0, 1e-8)
    assert cost(10.0) > ledger.certified(1e-5).value


def test_a_poisson_search_below_one_trial_is_charged_for_nothing_too():
    """With log(mu) alone, as it is printed, the bound would be negative, and the exact divergence is not."""
    count, p, q = PoissonCount(0.3), np.array([0.9, 0.1]), np.array([0.89, 0.11])
    exact = Explicit(*(selected(count, law) for law in (p, q)))
    trial = Explicit(p, q)
    order = 8
    printed = trial.moment(order) + order * 0.3 * trial.certified_delta(math.log1p(1 / order)) + math.log(0.3)
    assert printed < exact.moment(order) <= count.moments(trial, (order,))[0]


@pytest.mark.parametrize(
    ("call", "argument"),
    [
        (lambda: NegativeBinomial(-1.0, 0.1), "eta"),
        (lambda: NegativeBinomial(1e-12, 0.1), "eta"),
        (lambda: NegativeBinomial(math.nan, 0.1), "eta"),
        (lambda: NegativeBinomial(1.0, 1.0), "gamma"),
        (lambda: NegativeBinomial.of_mean(1.0), "mean"),
        (lambda: NegativeBinomial.of_mean(1e9), "mean"),
        (lambda: PoissonCount(0.0), "mu"),
        (lambda: PoissonCount(1e9), "mu"),
        (lambda: count_from_dict({"kind": "poisson", "mean": 3}), "count"),
        (lambda: count_from_dict({"kind": "uniform"}), "count"),
        (lambda: Trial(()), "ledgers"),
        (lambda: Trial((Ledger(),)), "ledgers"),
        (lambda: Search.from_dict({"count": {}}), "search"),
        (
            lambda: Search(PoissonCount(2.0), (Ledger().plus(Gaussian(1.0), Workload(1, 1, 1, 1)),)).certified(0),
            "delta",
        ),
    ],
)
def test_bad_values_are_named(call, argument):
    with pytest.raises(InvalidArgument) as refused:
        call()
    assert refused.value.argument == argument
