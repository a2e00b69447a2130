"""Plans and accounts that tests of budgets have in common."""

from functools import cache

from plrvo import Gaussian, Plan, Workload
from plrvo.budget import Account

DELTA = 1e-5


@cache
def plan(sigma=6.0, steps=100):
    """About epsilon 1.7 alone, and a third of an account of epsilon 5."""
    return Plan.certify(Gaussian(sigma), Workload(0.25, steps, 1.0, 2730), DELTA)


def account(folder, epsilon=5.0, name="a", **given):
    return Account.create(folder / "a.budget", name=name, epsilon=epsilon, delta=DELTA, **given)
