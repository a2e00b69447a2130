"""What is kept of a run: its receipt, journal and metrics, read, written and recomputed without torch."""

from plrvo.records.receipt import Receipt

__all__ = ["Receipt"]
