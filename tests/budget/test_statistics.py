"""Statistics with noise: charged to an account, and no example counts for more than is charged."""

import numpy as np
import pytest
from tests.budget.accounts import DELTA, account

from plrvo import Laplace
from plrvo.accounting.exact import longest_square
from plrvo.budget.statistics import Statistics, integer_sum
from plrvo.noise import GridNoise, Keystream
from plrvo.validate import InvalidArgument

NOISE = GridNoise(Laplace(1.0), 2.0**-12)
HOSTILE = [1e308, -1e308, np.inf, -np.inf, np.nan, 5e-324, 1e-200, 0.0, 1.0, 3.7]


@pytest.fixture
def statistics(tmp_path):
    return Statistics(account(tmp_path, epsilon=20.0), "gaussian", delta=DELTA, keystream=Keystream(bytes(32)))


def test_a_sum_of_short_rows_is_the_sum_to_half_a_cell_each():
    rows = np.random.default_rng(0).normal(size=(50, 3)) / 10
    assert np.abs(integer_sum(rows, NOISE, 1.0) * NOISE.cell - rows.sum(axis=0)).max() <= 50 * NOISE.cell / 2


def test_one_more_row_moves_the_sum_by_no_more_than_is_charged_and_leaves_the_others_alone():
    generator = np.random.default_rng(1)
    longest = longest_square(NOISE, 1.0, 4)
    for _ in range(200):
        rows = generator.choice(HOSTILE, size=(6, 4)) * generator.choice([1.0, 0.1, 1e-3], size=(6, 1))
        move = integer_sum(rows, NOISE, 1.0) - integer_sum(rows[1:], NOISE, 1.0)
        assert sum(int(m) ** 2 for m in move) <= longest
        assert np.array_equal(move, integer_sum(rows[:1], NOISE, 1.0))


def test_long_rows_are_clipped_and_those_that_are_none_add_nothing():
    assert integer_sum(np.array([[3.0, 4.0]]), NOISE, 1.0) * NOISE.cell == pytest.approx([0.6, 0.8], abs=NOISE.cell)
    assert integer_sum(np.array([[1e308, 1e308]]), NOISE, 1.0) * NOISE.cell == pytest.approx([0.7071] * 2, abs=1e-3)
    for wrong in (np.nan, np.inf):
        assert not integer_sum(np.array([[wrong, 1.0]]), NOISE, 1.0).any()


ROWS = np.random.default_rng(2).normal([1.0, -2.0], [0.5, 1.0], size=(4000, 2))
LABELS = np.random.default_rng(3).choice(5, p=[0.1, 0.5, 0.05, 0.3, 0.05], size=4000)


def charged(statistics):
    return [(entry.name, entry.settled) for entry in statistics.account.state().entries]


def test_a_count_is_near_the_truth_and_an_entry_of_the_account(statistics):
    assert statistics.count(ROWS, epsilon=1.0) == pytest.approx(4000, abs=40)
    assert charged(statistics) == [("count", 1)]
    standing = statistics.account.state().standing()
    assert 0.99 < standing.lower <= 1.0 < standing.spent  # the fit uses up its epsilon, the filter a little more


def test_mean_and_variance_are_near_the_truth(statistics):
    found = statistics.mean_and_variance(ROWS, bound=6.0, epsilon=1.0)
    assert found.mean == pytest.approx(ROWS.mean(axis=0), abs=0.1)
    assert found.variance == pytest.approx(ROWS.var(axis=0), abs=0.5)
    assert charged(statistics) == [("mean and variance", 1)]


def test_counts_of_labels_are_near_the_truth(statistics):
    assert statistics.histogram(LABELS, classes=5, epsilon=1.0) == pytest.approx(np.bincount(LABELS), abs=40)
    assert statistics.top_labels(LABELS, classes=5, most=2, epsilon=1.0) == [1, 3]
    assert charged(statistics) == [("histogram", 1), ("top 2 labels", 1)]


def test_a_quantile_is_near_the_truth(statistics):
    found = statistics.quantile(ROWS[:, 1], edges=np.linspace(-6, 6, 61), share=0.5, epsilon=1.0)
    assert found == pytest.approx(np.median(ROWS[:, 1]), abs=0.4)
    assert charged(statistics) == [("quantile 0.5", 1)]


def test_noise_is_as_wide_as_it_is_charged(statistics):
    sums = [statistics._sum(np.zeros((1, 400)), 1.0, 2.0, "zeros") for _ in range(2)]
    sigma = statistics.account.state().entry(1).reserved.noise.base.gaussian_sigma
    assert not np.array_equal(*sums)
    assert np.std(np.concatenate(sums)) == pytest.approx(sigma, rel=0.12)  # five standard deviations of 800


def test_a_short_account_is_refused_before_the_data_is_looked_at(tmp_path, monkeypatch):
    monkeypatch.setattr("plrvo.budget.statistics.integer_sum", lambda *_: pytest.fail("the data was looked at"))
    short = Statistics(account(tmp_path, epsilon=0.5), delta=DELTA)
    with pytest.raises(InvalidArgument, match="expected room for 1 step of gaussian noise"):
        short.count([1, 2, 3], epsilon=2.0)
    assert not short.account.state().entries


def test_labels_and_values_that_there_are_not_add_nothing(statistics):
    counts = statistics.histogram([-1, 7, np.nan, 1.5], classes=3, epsilon=8.0)
    assert np.abs(counts).max() < 4
    assert statistics.quantile([np.nan] * 500 + [0.5] * 100, edges=[0, 1, 2], share=0.9, epsilon=8.0) == 1


def test_an_example_counts_once_in_a_column_as_in_a_list(statistics):
    """Before, every entry of a row was a label of its own: 64 of them moved a count by 64 that was charged for 1."""
    assert statistics.histogram(np.zeros((500, 1), int), classes=2, epsilon=8.0) == pytest.approx([500, 0], abs=5)


@pytest.mark.parametrize(
    ("ask", "argument"),
    [
        (lambda s: s.mean_and_variance([[1.0]], bound=0.0, epsilon=1.0), "bound"),
        (lambda s: s.mean_and_variance(np.zeros((2, 2, 2)), bound=1.0, epsilon=1.0), "rows"),
        (lambda s: s.histogram([1], classes=0, epsilon=1.0), "classes"),
        (lambda s: s.histogram(["a"], classes=2, epsilon=1.0), "labels"),
        (lambda s: s.histogram(np.zeros((9, 64), int), classes=2, epsilon=1.0), "labels"),
        (lambda s: s.top_labels([[0, 1], [1, 1]], classes=2, most=1, epsilon=1.0), "labels"),
        (lambda s: s.quantile(np.zeros((9, 64)), edges=[0, 1], share=0.5, epsilon=1.0), "values"),
        (lambda s: s.quantile([1.0], edges=[1, 0], share=0.5, epsilon=1.0), "edges"),
        (lambda s: s.quantile([1.0], edges=[0, 1], share=1.5, epsilon=1.0), "share"),
        (lambda s: s.top_labels([1], classes=2, most=0, epsilon=1.0), "most"),
        (lambda s: s.count([1], epsilon=-1.0), "epsilon"),
    ],
)
def test_bad_values_are_named_and_cost_nothing(statistics, ask, argument):
    with pytest.raises(InvalidArgument) as refused:
        ask(statistics)
    assert refused.value.argument == argument
    assert not statistics.account.state().entries


def test_a_mean_alone_is_nearer_than_beside_the_variance(statistics):
    found = statistics.mean(ROWS, bound=6.0, epsilon=1.0)
    assert found == pytest.approx(ROWS.mean(axis=0), abs=0.1)
    statistics.mean_and_variance(ROWS, bound=6.0, epsilon=1.0)
    alone, beside = (entry.reserved.noise.base.gaussian_sigma for entry in statistics.account.state().entries)
    clips = [entry.reserved.work.clip for entry in statistics.account.state().entries]
    assert clips == pytest.approx([2**0.5, 3**0.5])
    assert alone * clips[0] < beside * clips[1]  # the noise in the units of the sum
    assert not np.isnan(statistics.mean([[np.nan, 1.0]], bound=1.0, epsilon=1.0)).any()


@pytest.mark.parametrize("kind", ["gaussian", "laplace", "gamma"])
def test_each_release_has_a_bracket_within_its_epsilon_and_exact_noise(tmp_path, kind):
    made = account(tmp_path, epsilon=40.0)
    asked = Statistics(made, kind, delta=DELTA)
    asked.count(LABELS, epsilon=1.0)
    asked.mean(ROWS, bound=6.0, epsilon=1.0)
    asked.top_labels(LABELS, classes=5, most=1, epsilon=1.0)
    asked.quantile(ROWS[:, 0], edges=[-6, 0, 6], share=0.5, epsilon=1.0)
    for entry in made.state().entries:
        assert 0.5 < entry.plan["epsilon_lower"] <= entry.plan["epsilon_certified"] <= 1.0
        assert entry.reserved.noise.cell > 0
        assert entry.reserved.noise.before_rounding.kind == kind
    assert len(made.state().entries) == 4
