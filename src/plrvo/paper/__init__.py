"""The paper's tables and figures: their parameters as data."""
