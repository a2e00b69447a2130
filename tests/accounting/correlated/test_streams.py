"""The recipe for the noise is the inverse of the strategy, exactly and in the mean of draws."""

import numpy as np
import pytest
from tests.accounting.correlated.brute import block_diagonal

from plrvo.accounting.correlated import (
    Banded,
    BufferedToeplitz,
    Correlation,
    Explicit,
    Participation,
    SquareRoot,
    Tree,
    Updates,
    fit_banded,
    fit_blt,
    squared_error,
)
from plrvo.accounting.correlated.tree import ended_at

LOWER = np.tril(np.random.default_rng(2).standard_normal((11, 11))) + 3 * np.eye(11)
SQUARE = {
    "identity": Banded(),
    "banded": fit_banded(4, 11),
    "sqrt": SquareRoot(),
    "blt": BufferedToeplitz((0.3, 0.2), (0.9, 0.4)),
    "explicit": Explicit(tuple(tuple(row) for row in LOWER)),
}


def decoder(strategy, length):
    """The matrix that turns row noises into step noises, by running the recipe on unit vectors."""
    stream, unit, row, out = strategy.stream(length), np.eye(strategy.rows(length)), 0, []
    for _ in range(length):
        due = stream.due()
        out.append(np.array(stream.decode([unit[row + i].copy() for i in range(due)])))
        row += due
    assert row == strategy.rows(length)
    return np.array(out)


@pytest.mark.parametrize("name", SQUARE)
def test_the_recipe_is_the_inverse_and_so_is_the_covariance(name):
    s = SQUARE[name].matrix(11)
    w = decoder(SQUARE[name], 11)
    np.testing.assert_allclose(w @ s, np.eye(11), atol=1e-12)
    np.testing.assert_allclose(w @ w.T, np.linalg.inv(s) @ np.linalg.inv(s).T, atol=1e-12)


@pytest.mark.parametrize("name", ["banded", "sqrt", "blt", "tree"])
def test_the_covariance_of_drawn_noise_is_that_of_the_recipe(name):
    """False alarm: each of 36 entries of the covariance is within 5 of its standard errors; below 3e-5."""
    length, draws = 8, 40_000
    strategy = Tree() if name == "tree" else SQUARE[name]
    rng, stream = np.random.default_rng(8), strategy.stream(length)
    noise = np.array([stream.decode([rng.standard_normal(draws) for _ in range(stream.due())]) for _ in range(length)])
    w = decoder(strategy, length)
    truth = w @ w.T
    spread = np.sqrt((np.outer(np.diag(truth), np.diag(truth)) + truth**2) / draws)
    assert np.max(np.abs(noise @ noise.T / draws - truth) / spread) < 5


@pytest.mark.parametrize("completed", [False, True])
@pytest.mark.parametrize("length", [1, 2, 5, 8, 11, 13])
def test_a_tree_gives_back_the_sums_and_has_the_least_variance_of_its_subtrees(length, completed):
    tree = Tree(completed)
    s, w = tree.matrix(length), decoder(tree, length)
    np.testing.assert_allclose(w @ s, np.eye(length), atol=1e-12)
    prefix = np.cumsum(w, axis=0)
    for t in range(length):
        # Rows known at step t that lie in the subtrees of the prefix: the best linear unbiased estimate from them.
        known = [r for r in range(len(s)) if np.flatnonzero(s[r])[-1] <= t and np.any(prefix[t] != 0)]
        rows = s[np.array(known)][:, : t + 1]
        if completed and t == length - 1:
            best = np.linalg.pinv(rows.T @ rows)
        else:
            rows = rows[[np.flatnonzero(row)[-1] <= t for row in rows]]
            best = np.linalg.pinv(rows.T @ rows)
        assert np.sum(prefix[t] ** 2) == pytest.approx(best.sum(), rel=1e-9)


def test_the_prefix_of_i_steps_is_made_of_popcount_i_nodes():
    stream = Tree().stream(64)
    for i in range(1, 65):
        stream.decode([np.zeros(1) for _ in range(stream.due())])
        assert len(stream._estimates) == i.bit_count()
        assert [level for level, _, _ in stream._estimates] == [b for b in reversed(range(7)) if i >> b & 1]
    assert len(stream.state()) <= 2 * 7 + 1


def test_nodes_are_released_when_their_last_step_is():
    rows = Tree().matrix(13)
    last = [int(np.flatnonzero(row)[-1]) for row in rows]
    assert last == [t for t in range(13) for _ in ended_at(t, 13, False)]
    assert last == sorted(last)


@pytest.mark.parametrize("strategy", [*SQUARE.values(), Tree(), Tree(True)])
def test_encoding_is_the_strategy_and_decoding_undoes_it(strategy):
    x = np.random.default_rng(3).standard_normal((11, 4))
    stream, rows, back = strategy.stream(11), [], []
    for step in x:
        encoded = stream.encode(step.copy())
        assert len(encoded) == stream.due()
        rows += [np.array(value) for value in encoded]
        back.append(np.array(stream.decode(encoded)))
    np.testing.assert_allclose(rows, strategy.matrix(11) @ x, atol=1e-12)
    np.testing.assert_allclose(back, x, atol=1e-10)


@pytest.mark.parametrize("strategy", [*SQUARE.values(), Tree(), Tree(True)])
@pytest.mark.parametrize("at", [1, 4, 7, 10])
def test_a_restored_stream_goes_on_as_if_it_had_not_stopped(strategy, at):
    x = np.random.default_rng(3).standard_normal((11, 4))
    stream, again = strategy.stream(11), strategy.stream(11)

    def step(stream, t):
        return np.array(stream.decode([np.sin(row) for row in stream.encode(x[t].copy())]))

    for t in range(at):
        step(stream, t)
    again.restore([np.array(array) for array in stream.state()], at)
    for t in range(at, 11):
        assert np.array_equal(step(stream, t), step(again, t))


def test_rows_beyond_the_room_of_a_convolution_are_drawn_again():
    rows = np.random.default_rng(1).standard_normal((20, 3))
    whole, narrow = SquareRoot().stream(20), SquareRoot().stream(20)
    narrow.draw_again(lambda r: rows[r].copy(), 4)
    for row in rows:
        np.testing.assert_allclose(whole.decode([row.copy()]), narrow.decode([row.copy()]), rtol=1e-12)
    assert len(narrow._rows) == 4


def test_the_square_root_has_its_known_error():
    """||A S^-1||_F^2 = sum (T-j) c_j^2, sens^2 = sum c_j^2, and that sum tends to (log T + gamma + 4 log 2)/pi."""
    length = 300
    c = SquareRoot().coefficients(length)
    np.testing.assert_allclose(np.convolve(c, c)[:length], np.ones(length), rtol=1e-12)
    known = float(np.sum(c**2)) * float(np.sum(np.arange(length, 0, -1) * c**2)) / length
    assert squared_error(Correlation(SquareRoot(), Participation(length)), length) == pytest.approx(known, rel=1e-9)
    many = SquareRoot().coefficients(100_000)
    limit = (np.log(100_000) + np.euler_gamma + 4 * np.log(2)) / np.pi
    assert float(np.sum(many**2)) == pytest.approx(limit, abs=1e-5)


@pytest.mark.parametrize("updates", [Updates(), Updates(0.9), Updates(0.5, tuple(np.linspace(1, 0.1, 40)))])
def test_the_cost_of_a_response_and_its_slope_are_those_of_the_matrices(updates):
    s = Banded((1.0, 0.6, 0.3)).matrix(40)
    inverse = np.linalg.inv(s)
    response = (
        np.linalg.inv(s)[:, 0]
        @ np.tril(updates.momentum ** np.maximum(np.subtract.outer(np.arange(40), np.arange(40)), 0.0)).T
    )
    cost, slope = updates.cost(response)
    assert cost == pytest.approx(float(np.sum((updates.matrix(40) @ inverse) ** 2)), rel=1e-10)
    direction = np.random.default_rng(0).standard_normal(40)
    up, down = updates.cost(response + 1e-5 * direction)[0], updates.cost(response - 1e-5 * direction)[0]
    assert float(slope @ direction) == pytest.approx((up - down) / 2e-5, rel=1e-6)


@pytest.mark.parametrize(("bands", "length"), [(2, 20), (4, 40)])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_fitted_bands_are_as_good_as_a_search_without_gradients(bands, length, momentum):
    from scipy import optimize

    a = Updates(momentum).matrix(length)

    def objective(tail):
        s = Banded((1.0, *tail)).matrix(length)
        return np.log(np.sum((a @ np.linalg.inv(s)) ** 2) * (1 + np.sum(np.square(tail))))

    search = optimize.minimize(
        objective,
        np.full(bands - 1, 0.3),
        method="Nelder-Mead",
        options={"maxiter": 4000, "xatol": 1e-9, "fatol": 1e-13},
    )
    assert objective(fit_banded(bands, length, Updates(momentum)).values[1:]) <= search.fun + 1e-6


def test_better_strategies_have_smaller_errors_in_the_known_order():
    once = Participation(64)
    error = {
        name: squared_error(Correlation(strategy, once), 64)
        for name, strategy in {
            "identity": Banded(),
            "tree": Tree(),
            "banded:8": fit_banded(8, 64),
            "sqrt": SquareRoot(),
            "blt": fit_blt(3, 64),
            "banded:64": fit_banded(64, 64),
        }.items()
    }
    assert error["identity"] == pytest.approx(32.5)
    order = ["banded:64", "blt", "sqrt", "banded:8", "tree", "identity"]
    assert sorted(error, key=error.__getitem__) == order


def test_restarts_start_the_recipe_anew():
    correlation = Correlation(Tree(True), Participation(4, 3), 5)
    s = block_diagonal(correlation, 12)
    assert len(s) == sum(strategy.rows(length) for _, length, strategy in correlation.parts(12, 12))
    assert [length for _, length, _ in correlation.parts(12, 12)] == [5, 5, 2]
    assert [strategy.completed for _, _, strategy in correlation.parts(7, 12)] == [True, False]
