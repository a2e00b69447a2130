"""Who is held out, and what a score says of them."""

import numpy as np
import pytest
import torch
from torch import nn

from plrvo import Gaussian, InvalidArgument
from plrvo.accounting.selection import NegativeBinomial, Search
from plrvo.noise import GridNoise, Keystream
from plrvo.tasks.preset import InMemory, Task
from plrvo.tasks.tuning.held_out import CELL, Split, score_ledger, score_noise


def task(size: int, **changes) -> Task:
    data = InMemory(torch.arange(size, dtype=torch.float32)[:, None], torch.zeros(size, dtype=torch.long))
    usual = {"evaluate": lambda module: {}, "description": {"name": "numbers"}, "loss": nn.CrossEntropyLoss()}
    return Task(data=data, size=size, **{**usual, **changes})


def split(size: int, share: float = 0.2, **changes) -> Split:
    return Split.of(task(size, **changes), share, Keystream(bytes(32)))


def members(part) -> list[float]:
    return part.__getitems__(list(range(len(part))))[0][:, 0].tolist()


def test_every_example_is_in_one_part_and_one_more_example_moves_no_other():
    before, after = split(1000), split(1001)
    held, trained = members(before.held_out), members(before.training.data)
    assert sorted(held + trained) == list(range(1000))
    assert 140 < len(held) < 260  # a fifth; fails by chance once in 1e5
    changed = {*members(after.held_out)} ^ {*held} | {*members(after.training.data)} ^ {*trained}
    assert changed == {1000.0}
    assert before.training.size == len(trained) == before.training.description["examples"]
    assert before.training.description["held_out"] == len(held)


class Says(nn.Module):
    """The right answer (0) for numbers below a limit."""

    def __init__(self, limit: float) -> None:
        super().__init__()
        self.limit = nn.Parameter(torch.tensor(limit))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([self.limit - x, x - self.limit], dim=1)


def test_a_score_is_the_number_of_right_answers_among_the_held_out_with_the_noise_that_is_charged():
    parts, noise = split(400), GridNoise(Gaussian(3.0), CELL)
    right = sum(number < 200 for number in members(parts.held_out))
    keys = Keystream(bytes(32))
    scores = np.array([parts.noisy_right(Says(200.0), noise, keys) for _ in range(400)]) * CELL
    assert abs(scores.mean() - right) < 5 * 3 / 20  # fails by chance once in 1e6
    assert 2.5 < scores.std() < 3.5
    almost_none = GridNoise(Gaussian(1e-3), CELL)
    assert parts.noisy_right(Says(200.0), almost_none, keys) * CELL == pytest.approx(right, abs=0.02)


def test_the_noise_of_a_score_is_fitted_to_the_whole_budget():
    count = NegativeBinomial.of_mean(10.0)
    ledger = score_ledger(score_noise(count, 3.0, 1e-5))
    assert 2.99 < Search(count, (ledger,)).certified(1e-5).value <= 3.0


def test_tasks_without_right_answers_and_parts_that_are_too_small_are_refused():
    with pytest.raises(InvalidArgument, match="right and wrong answers"):
        split(400, metric="loss")
    with pytest.raises(InvalidArgument, match="either part"):
        split(400, share=0.001)
