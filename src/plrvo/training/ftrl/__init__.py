"""DP-FTRL and matrix factorisation: data visited in a checked order, correlated noise, and the proof of both."""

from plrvo.records.visits import OwnOrder, ScheduleViolated, Visits
from plrvo.training.ftrl.order import OrderedBatches
from plrvo.training.ftrl.stream import NoiseStream, keyed_draws

__all__ = ["NoiseStream", "OrderedBatches", "OwnOrder", "ScheduleViolated", "Visits", "keyed_draws"]
