"""The rounding of composed laws stays within its bound: against binomial laws in 40 digits."""

import numpy as np
import pytest
from mpmath import mp, mpf

from plrvo.accounting.lower import _beyond
from plrvo.accounting.transform import law_of_sum

SIZE = 1 << 16


def binomial(times, chance, k):
    """P(k successes out of `times`)."""
    return mp.exp(
        mp.loggamma(times + 1)
        - mp.loggamma(k + 1)
        - mp.loggamma(times - k + 1)
        + k * mp.log(chance)
        + (times - k) * mp.log1p(-chance)
    )


@pytest.mark.parametrize(
    ("times", "chance"),
    [(1, 0.25), (100, 0.5), (10**4, 2.0**-3), (10**6, 2.0**-12), (10**8, 2.0**-17), (10**10, 2.0**-24)],
)
def test_every_point_is_within_the_bound(times, chance):
    """The coin moves by 3, so that the law has gaps that are 0 in truth and rounding in the transform."""
    law = np.zeros(SIZE)
    law[0], law[3] = 1 - chance, chance
    found = law_of_sum([(law, times)], SIZE)
    middle = round(times * chance)
    worst, squares = mpf(0), mpf(0)
    with mp.workdps(40):
        for k in range(max(0, middle - 40), min(times, middle + 40) + 1):
            exact = binomial(mpf(times), mpf(chance), k)
            for at, true in ((3 * k, exact), (3 * k + 1, mpf(0))):
                wrong = abs(mpf(float(found.law[at])) - true) - mpf(2) ** -53 * true
                worst, squares = max(worst, wrong), squares + max(wrong, mpf(0)) ** 2
    assert worst <= found.error
    assert squares <= mpf(found.norm) ** 2
    assert found.error < 1e-15 * max(1, times / 1000)


def test_two_laws_are_bounded_together():
    law, other = np.zeros(SIZE), np.zeros(SIZE)
    law[[0, 1]], other[[0, 1]] = (0.75, 0.25), (0.5, 0.5)
    found = law_of_sum([(law, 1000), (other, 2000)], SIZE)
    with mp.workdps(40):
        first = [binomial(1000, mpf(1) / 4, k) for k in range(1001)]
        second = [binomial(2000, mpf(1) / 2, k) for k in range(2001)]
        for total in (1100, 1250, 1400):
            exact = mp.fsum(first[k] * second[total - k] for k in range(1001) if total - k <= 2000)
            assert abs(mpf(float(found.law[total])) - exact) <= found.error + mpf(2) ** -53 * exact


@pytest.mark.parametrize("end", [600, 700, 900])
def test_what_leaves_a_window_is_no_more_than_its_bound(end):
    """1000 coins, +1 with probability 1/4 and -1 (the last index) otherwise: the sum is 2 successes - 1000."""
    law = np.zeros(SIZE)
    law[1], law[-1] = 0.75, 0.25
    exact = mp.fsum(binomial(1000, mpf(3) / 4, k) for k in range((end + 1000) // 2, 1001))
    assert exact <= _beyond([(law, 1000)], end) <= 100 * exact
    assert _beyond([(law, 1000)], 1001) == 0
