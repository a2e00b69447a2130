"""The names of the files of a run."""

from __future__ import annotations

RECEIPT = "receipt.json"
WEIGHTS = "model.safetensors"
CHECKPOINT = "checkpoint.safetensors"
JOURNAL = "journal.jsonl"
METRICS = "metrics.jsonl"
GENERATIONS = "generations.jsonl"  # of a task that writes texts
DIAGNOSTICS = "unsafe-diagnostics.jsonl"
LOCK = ".lock"

# What is never the weights that a receipt is about; a checkpoint has the format of weights.
NO_WEIGHTS = (RECEIPT, CHECKPOINT, JOURNAL, METRICS, DIAGNOSTICS)
