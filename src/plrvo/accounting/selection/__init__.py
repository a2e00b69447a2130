"""Private selection: the best of a random number of private runs, and what it costs (docs/selection.md).

Every run is a trial: it draws its settings, trains, and gives a score. How many trials there are is drawn too, and
stays secret. Only the best trial is released.
"""

from plrvo.accounting.selection.count import Count, count_from_dict
from plrvo.accounting.selection.negative_binomial import NegativeBinomial
from plrvo.accounting.selection.poisson import PoissonCount
from plrvo.accounting.selection.search import Search
from plrvo.accounting.selection.trial import Trial

__all__ = ["Count", "NegativeBinomial", "PoissonCount", "Search", "Trial", "count_from_dict"]
