"""The rule of the one-run audit: what it may conclude from scores and coins, and how often it is wrong."""

import math

import numpy as np
import pytest

from plrvo.audit.one_run import Rule, differences, judge_one_run
from plrvo.audit.statistics import gaussian_dp_epsilon, one_run_bound
from plrvo.validate import InvalidArgument

DELTA = 1e-5


def randomised_response(epsilon: float, m: int, generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Coins, and what a mechanism that is exactly epsilon-private says of each; ties are broken at random."""
    coins = generator.integers(0, 2, m) == 1
    told = coins ^ (generator.random(m) > 1 / (1 + math.exp(-epsilon)))
    return told + 1e-9 * generator.random(m), coins


def test_coverage_with_the_best_of_several_numbers_of_guesses():
    """Randomised response is on the bound, delta 0 would be exact. False alarm: below 4e-5 (four deviations)."""
    generator, alpha, audits, epsilon = np.random.default_rng(0), 0.1, 1500, 1.0
    rule = Rule(300, 1 - alpha, delta=1e-12)
    bounds = [
        judge_one_run(*randomised_response(epsilon, 300, generator), epsilon, rule).epsilon_audited
        for _ in range(audits)
    ]
    beyond = np.mean(np.array(bounds) > epsilon)
    assert 0.005 < beyond < alpha + 4 * math.sqrt(alpha * (1 - alpha) / audits)


def test_coverage_where_scores_differ_in_how_much_they_say():
    """Gaussian scores at distance mu, whose epsilon at delta is known. False alarm: at most 1e-3 in each audit.

    Abstaining helps here, unlike with randomised response, and more than one number of guesses gets chosen.
    """
    generator, mu = np.random.default_rng(1), 2.5
    truth, chosen = gaussian_dp_epsilon(mu, DELTA), set()
    rule = Rule(600, 0.999, DELTA)
    for _ in range(100):
        coins = generator.integers(0, 2, 600) == 1
        result = judge_one_run(mu * coins + generator.standard_normal(600), coins, truth, rule)
        assert 0 < result.epsilon_audited < truth
        chosen.add(result.guesses)
    assert len(chosen) > 1


def test_a_fixed_number_of_guesses_has_the_whole_confidence():
    generator = np.random.default_rng(2)
    coins = generator.integers(0, 2, 1000) == 1
    result = judge_one_run(coins + generator.standard_normal(1000), coins, 1.0, Rule(1000, 0.95, DELTA, guesses=100))
    assert (result.guesses, result.tried) == (100, 1)
    assert result.epsilon_audited == pytest.approx(one_run_bound(1000, 100, result.correct, DELTA, 0.05), rel=1e-9)
    shared = Rule(1000, 0.95, DELTA)
    assert shared.alpha == pytest.approx(0.05 / 5)
    assert shared.numbers == (50, 100, 200, 500, 1000)


def test_guesses_are_made_at_both_ends():
    """The highest score is guessed in, the lowest out, the middle abstained from."""
    coins = np.array([True] * 20 + [False] * 60 + [True] * 20)  # the lower end is wrong altogether, the upper right
    result = judge_one_run(np.arange(100.0), coins, 0.0, Rule(100, 0.9, DELTA, guesses=40))
    assert result.correct == 20
    upside_down = judge_one_run(-np.arange(100.0), ~coins, 0.0, Rule(100, 0.9, DELTA, guesses=40))
    assert upside_down.correct == 20


def test_equal_scores_say_nothing():
    coins = np.random.default_rng(3).integers(0, 2, 500) == 1
    assert judge_one_run(np.zeros(500), coins, 0.0, Rule(500, 0.999, DELTA)).verdict == "consistent"


def test_certifiable_is_the_bound_of_perfect_guesses():
    coins = np.random.default_rng(4).integers(0, 2, 400) == 1
    result = judge_one_run(coins + 0.0, coins, 0.0, Rule(400, 0.99, DELTA))
    # The coins need not fall half and half: with every canary guessed some are on the wrong side.
    assert result.epsilon_audited <= result.epsilon_certifiable
    even = np.arange(400) % 2 == 0
    assert judge_one_run(even + 0.0, even, 0.0, Rule(400, 0.99, DELTA)).epsilon_audited == result.epsilon_certifiable


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (
            lambda: Rule(5, 0.99, DELTA),
            "canaries=5: expected more of them, .*: 5 right guesses .* certify at most epsilon 0",
        ),
        (lambda: Rule(500, 0.99, DELTA, guesses=5), "guesses=5: expected more of them, .* 5 right"),
        (lambda: Rule(500, 0.99, DELTA, guesses=501), "at most one for each of the 500"),
        (lambda: Rule(0, 0.99, DELTA), "canaries=0"),
        (lambda: Rule(100, 1.0, DELTA), "confidence"),
        (lambda: Rule(100, 0.99, 0.0), "delta"),
        (lambda: Rule(200, 0.99, DELTA).fits(100), "canaries=200: expected at most the 100 examples"),
        (lambda: judge_one_run(np.zeros(9), np.zeros(9), 1.0, Rule(50, 0.9, DELTA)), "each of the 50 canaries"),
        (lambda: judge_one_run(np.full(50, np.nan), np.zeros(50), 1.0, Rule(50, 0.9, DELTA)), "scores"),
        (lambda: judge_one_run(np.zeros(50), np.zeros(50), math.nan, Rule(50, 0.9, DELTA)), "claim"),
    ],
)
def test_bad_input_is_refused_by_name(make, named):
    with pytest.raises(InvalidArgument, match=named):
        make()


def test_an_audit_in_a_receipt_is_recomputed():
    coins = np.arange(400) % 2 == 0
    section = judge_one_run(coins + 0.0, coins, 1.5, Rule(400, 0.99, DELTA)).to_dict()
    assert differences(section, 1.5, DELTA) == []
    for change, word in (
        ({"epsilon_audited": 0.5}, "reached epsilon 0.5"),
        ({"verdict": "consistent"}, "verdict is consistent"),
        ({"correct": 200}, "recomputed"),
        ({"epsilon_claimed": 9.0}, "not the receipt's own claim"),
        ({"guesses": None}, "wrong form"),
        ({"tried": 0}, "wrong form"),
    ):
        assert any(word in sentence for sentence in differences({**section, **change}, 1.5, DELTA))
