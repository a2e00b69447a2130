"""A budget for the data and not for a run: accounts that runs are charged to, whatever becomes of them."""

from plrvo.budget.account import Account, Standing
from plrvo.budget.charge import Charge

__all__ = ["Account", "Charge", "Standing"]
