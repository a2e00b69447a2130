"""Which noise to use."""

from plrvo.designer.clips import ClipRange, PrivateRuns, clip_range
from plrvo.designer.comparison import Alternative, Comparison, compare, winning_map
from plrvo.designer.constraints import Constraint
from plrvo.designer.designed import Design, design, explain
from plrvo.designer.predictor import ThetaPredictor
from plrvo.designer.problem import Accountant, Limits, Point, Problem
from plrvo.designer.recommendation import Recommended, recommend
from plrvo.designer.search_space import SearchSpace

__all__ = [
    "Accountant",
    "Alternative",
    "ClipRange",
    "Comparison",
    "Constraint",
    "Design",
    "Limits",
    "Point",
    "PrivateRuns",
    "Problem",
    "Recommended",
    "SearchSpace",
    "ThetaPredictor",
    "clip_range",
    "compare",
    "design",
    "explain",
    "recommend",
    "winning_map",
]
