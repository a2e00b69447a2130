"""Which noise to use."""

from plrvo.design.plan import Plan

__all__ = ["Plan"]
