"""Sensitivities against every pattern, one by one, and the numbers of the theory page."""

import itertools

import numpy as np
import pytest
from tests.accounting.correlated.brute import block_diagonal, pair_sum, patterns, reached_by_vectors, worst_square

from plrvo.accounting.correlated import (
    Banded,
    BufferedToeplitz,
    Correlation,
    Explicit,
    Participation,
    SquareRoot,
    Tree,
    fit_banded,
    fit_blt,
)
from plrvo.validate import InvalidArgument

BLT = BufferedToeplitz((0.3, 0.2), (0.9, 0.4))
MIXED = Explicit(tuple(tuple(row) for row in np.tril(np.random.default_rng(4).standard_normal((9, 9)))))
SIGNED = Banded((1.0, -0.6, 0.4))
STRATEGIES = {
    "identity": Banded(),
    "banded": fit_banded(3, 9),
    "signed": SIGNED,
    "sqrt": SquareRoot(),
    "blt": BLT,
    "tree": Tree(),
    "completed": Tree(True),
    "explicit": MIXED,
}


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_fixed_order_costs_what_the_worst_of_all_patterns_costs(name):
    for epochs in (1, 2, 3):
        length, period = 9, -(-9 // epochs)
        participation = Participation(period, epochs)
        found = Correlation(STRATEGIES[name], participation).sensitivity(length)
        matrix = STRATEGIES[name].matrix(length)
        assert found.value**2 == pytest.approx(worst_square(matrix, participation), rel=1e-9)
        assert found.value**2 >= worst_square(matrix, participation) * (1 - 1e-14)
        touched = max(np.count_nonzero(np.abs(matrix[:, list(p)]).sum(axis=1)) for p in patterns(length, participation))
        assert touched <= found.rows <= len(matrix)


@pytest.mark.parametrize(("name", "exact"), [(n, n not in ("tree", "completed")) for n in STRATEGIES])
def test_separated_visits_cost_what_the_worst_of_all_patterns_costs(name, exact):
    for epochs, separation in ((1, 4), (2, 4), (3, 3), (2, 3)):
        participation = Participation(9, epochs, separation)
        found = Correlation(STRATEGIES[name], participation).sensitivity(9).value ** 2
        truth = worst_square(STRATEGIES[name].matrix(9), participation)
        assert found >= truth * (1 - 1e-12)
        if exact or epochs == 1:
            assert found == pytest.approx(truth, rel=1e-9)


@pytest.mark.parametrize("strategy", [SquareRoot(), BLT, fit_banded(5, 24), Banded()])
def test_the_earliest_pattern_is_the_worst_for_coefficients_that_fall(strategy):
    for separation, visits in ((2, 3), (5, 3), (7, 2)):
        matrix = strategy.matrix(14)
        worst = max(
            pair_sum(matrix, steps)
            for steps in itertools.combinations(range(14), visits)
            if min(np.diff(steps)) >= separation
        )
        assert strategy.worst(14, visits, separation) == pytest.approx(worst, rel=1e-12)


@pytest.mark.parametrize("name", ["tree", "sqrt", "signed", "explicit"])
def test_no_vectors_exceed_the_pair_sum_and_equal_ones_reach_it_where_the_gram_matrix_is_positive(name):
    matrix = STRATEGIES[name].matrix(9)
    reached = reached_by_vectors(matrix, (0, 3, 6))
    bound = pair_sum(matrix, (0, 3, 6))
    assert reached <= bound * (1 + 1e-9)
    if np.all(matrix.T @ matrix >= 0):
        assert reached == pytest.approx(bound, rel=1e-6)


@pytest.mark.parametrize(
    ("steps", "period", "plain", "completed"), [(5, 5, 3, 4), (100, 100, 7, 8), (2000, 100, 425, 926)]
)
def test_completing_a_tree_costs_what_the_theory_page_says(steps, period, plain, completed):
    participation = Participation(period, steps // period)
    for tree, square in ((Tree(), plain), (Tree(True), completed)):
        assert Correlation(tree, participation).sensitivity(steps).value ** 2 == pytest.approx(square, rel=1e-14)


@pytest.mark.parametrize("name", ["tree", "completed", "sqrt", "banded", "blt"])
@pytest.mark.parametrize("restart", [3, 4, 6])
def test_restarts_compose(name, restart):
    participation = Participation(4, 3)
    correlation = Correlation(STRATEGIES[name], participation, restart)
    truth = worst_square(block_diagonal(correlation, 12), participation)
    assert correlation.sensitivity(12).value ** 2 == pytest.approx(truth, rel=1e-9)
    separated = Participation(4, 3, 3)
    found = Correlation(STRATEGIES[name], separated, restart).sensitivity(12).value ** 2
    assert found >= worst_square(block_diagonal(correlation, 12), separated) * (1 - 1e-12)


def test_one_epoch_a_restart_adds_up_the_squares_of_single_epochs():
    one = Correlation(Tree(), Participation(16)).sensitivity(16).value ** 2
    five = Correlation(Tree(), Participation(16, 5), 16).sensitivity(80).value ** 2
    assert five == pytest.approx(5 * one)


@pytest.mark.parametrize("name", STRATEGIES)
def test_the_cost_so_far_is_that_of_the_rows_released_so_far_and_never_falls(name):
    strategy, participation, before = STRATEGIES[name], Participation(3, 3), 0.0
    for taken in range(1, 10):
        found = Correlation(strategy, participation).sensitivity(9, taken).value ** 2
        rows = (strategy if taken == 9 else strategy.unfinished).matrix(taken)
        assert found == pytest.approx(worst_square(rows, participation), rel=1e-9)
        assert found >= before * (1 - 1e-12)
        before = found


def test_a_long_banded_run_needs_no_matrix():
    participation = Participation(5000, 20)
    strategy = fit_banded(16, 1000)
    found = Correlation(strategy, participation).sensitivity(100_000)
    assert found.value**2 == pytest.approx(20 * sum(v**2 for v in strategy.values))
    assert found.rows == 20 * 16


@pytest.mark.parametrize(
    ("build", "named"),
    [
        (lambda: Correlation(Tree(), Participation(10, 2)).sensitivity(21), "steps=21"),
        (lambda: Correlation(Banded((1.0, 0.5, 0.2)), Participation(2)).sensitivity(2), "bands=3"),
        (lambda: Correlation(MIXED, Participation(8)).sensitivity(8), "steps=8"),
        (lambda: Correlation(SIGNED, Participation(9, 2, 2)).sensitivity(18), "separation=2"),
        (lambda: Participation(5, 2, 6), "separation=6"),
        (lambda: Participation(0), "steps_per_epoch=0"),
        (lambda: Participation(5, 1.5), "epochs=1.5"),
        (lambda: Banded((0.0, 1.0)), "values"),
        (lambda: Banded((1.0, float("nan"))), "values"),
        (lambda: BufferedToeplitz((0.7, 0.6), (0.1, 0.2)), "scales"),
        (lambda: BufferedToeplitz((0.5,), (1.1,)), "decays"),
        (lambda: Explicit(((1.0,), (1.0, 2.0))), "values"),
        (lambda: Explicit(((1.0,), (1.0,)), (0, 5)), "times"),
        (lambda: Correlation("tree", Participation(5)), "strategy='tree'"),
        (lambda: Correlation(Tree(), Participation(5), 0), "restart_every=0"),
        (lambda: fit_banded(9, 8), "bands=9"),
        (lambda: Tree("yes"), "completed='yes'"),
    ],
)
def test_bad_input_is_named(build, named):
    with pytest.raises(InvalidArgument, match=named.replace("(", r"\(")):
        build()


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_correlation_comes_back_from_its_description(name):
    for correlation in (
        Correlation(STRATEGIES[name], Participation(3, 3)),
        Correlation(STRATEGIES[name], Participation(3, 3, 2), 9),
    ):
        assert Correlation.from_dict(correlation.to_dict()) == correlation


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d.pop("participation"),
        lambda d: d.update(adjacency="add or remove"),
        lambda d: d["strategy"].update(strategy="magic"),
        lambda d: d["strategy"].update(colour=3),
        lambda d: d["participation"].update(colour=3),
        lambda d: d["participation"].update(epochs=-1),
        lambda d: d["strategy"].update(values=["x"]),
    ],
)
def test_a_broken_description_is_refused(change):
    description = Correlation(Banded((1.0, 0.5)), Participation(3, 3)).to_dict()
    change(description)
    with pytest.raises(InvalidArgument):
        Correlation.from_dict(description)


def test_fitted_blt_keeps_what_its_formula_needs():
    strategy = fit_blt(3, 200, Participation(50, 4))
    c = strategy.coefficients(200)
    assert c[0] == 1
    assert np.all(np.diff(c) <= 0)
    assert np.all(c >= 0)
