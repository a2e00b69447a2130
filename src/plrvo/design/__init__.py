"""Which noise to use."""

from plrvo.design.clip_range import ClipRange, PrivateRuns, clip_range
from plrvo.design.compare import Alternative, Comparison, compare, winning_map
from plrvo.design.constraints import Constraint
from plrvo.design.designed import Design, design, explain
from plrvo.design.plan import Plan
from plrvo.design.predictor import ThetaPredictor
from plrvo.design.problem import Accountant, Limits, Point, Problem
from plrvo.design.search_space import SearchSpace

__all__ = [
    "Accountant",
    "Alternative",
    "ClipRange",
    "Comparison",
    "Constraint",
    "Design",
    "Limits",
    "Plan",
    "Point",
    "PrivateRuns",
    "Problem",
    "SearchSpace",
    "ThetaPredictor",
    "clip_range",
    "compare",
    "design",
    "explain",
    "winning_map",
]
