"""Measured runs: the scripts that made them, and what came out."""
