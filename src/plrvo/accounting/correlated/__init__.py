"""Correlated noise: strategies, who takes part when, what it costs, and the recipe that streams it.

A strategy S says what is released: y_r = sum_s S_rs x_s + z_r, each row with fresh noise (theory, section 11). Nothing
here knows which noise that is, except `ledger`, which certifies any of them.
"""

from plrvo.accounting.correlated.correlation import Correlation, Sensitivity
from plrvo.accounting.correlated.fitting import Updates, fit_banded, fit_blt, squared_error
from plrvo.accounting.correlated.ledger import CorrelatedLedger, ledger_of, read_ledger
from plrvo.accounting.correlated.participation import CyclicPoisson, Participation
from plrvo.accounting.correlated.strategy import Explicit, Strategy
from plrvo.accounting.correlated.toeplitz import Banded, BufferedToeplitz, SquareRoot
from plrvo.accounting.correlated.tree import Tree

__all__ = [
    "Banded",
    "BufferedToeplitz",
    "CorrelatedLedger",
    "Correlation",
    "CyclicPoisson",
    "Explicit",
    "Participation",
    "Sensitivity",
    "SquareRoot",
    "Strategy",
    "Tree",
    "Updates",
    "fit_banded",
    "fit_blt",
    "ledger_of",
    "read_ledger",
    "squared_error",
]
