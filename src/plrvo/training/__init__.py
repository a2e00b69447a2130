"""Using the noise: the engine for PyTorch, on top of Opacus."""

from plrvo.records.visits import ScheduleViolated
from plrvo.training.accountant import CertifiedAccountant
from plrvo.training.draws import BudgetExhausted
from plrvo.training.engine import PrivacyEngine
from plrvo.training.sampler import PoissonSampler

__all__ = ["BudgetExhausted", "CertifiedAccountant", "PoissonSampler", "PrivacyEngine", "ScheduleViolated"]
