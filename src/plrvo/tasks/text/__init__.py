"""Sentences and pairs of sentences to classes: data sets, models, what is trained of them, and a Trainer."""
