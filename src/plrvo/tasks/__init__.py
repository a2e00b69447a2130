"""Real data, models and metrics."""
