"""How fast a run goes, and that its log says nothing of a batch's size."""

import logging

import pytest
import torch
from scipy.stats import binom
from torch import nn

from plrvo.training.loop import Run, train
from plrvo.training.pace import Pace, nearly_certain
from plrvo.training.plain import PlainOptimizer


class Clock:
    """Says what it is set to."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def log(caplog):
    caplog.set_level(logging.DEBUG, "plrvo")
    return caplog


def test_a_log_says_what_is_done_of_a_step_and_how_long_steps_take(log):
    clock = Clock()
    pace = Pace(64, clock)
    pace.begin(0, 4)
    pace.part(8)
    pace.part(8)
    clock.now = 30.0
    pace.stepped(1)
    clock.now = 1000.0  # tests are no training
    pace.go_on()
    pace.part(8)
    clock.now = 1010.0
    pace.stepped(2)
    assert log.messages == [
        "0 of 4 steps taken",
        "0 of 4 steps taken; step 1: 8 of about 64 examples",
        "0 of 4 steps taken; step 1: 16 of about 64 examples",
        "1 of 4 steps taken, 30 s each",
        "1 of 4 steps taken, 30 s each; step 2: 8 of about 64 examples",
        "2 of 4 steps taken, 10 s each",  # the first step has tries in it
    ]
    assert pace.examples_per_second == 6.4


def test_a_bar_hears_of_steps_that_take_long(log):
    clock, heard = Clock(), []
    pace = Pace(64, clock, heard.append)
    pace.begin(0, 4)
    pace.part(8)
    clock.now = 2.0
    pace.part(8)
    assert heard == ["step 1: 16 of about 64 examples"]


@pytest.mark.parametrize("batch", [20, 64, 90])
def test_a_log_counts_no_further_than_nearly_every_batch_goes(log, batch):
    pace = Pace(64)
    pace.begin(0, 2)
    for _ in range(batch):
        pace.part(1)
    told = [message.partition(": ")[2] for message in log.messages[1:]]
    assert told[:17] == [f"{i} of about 64 examples" for i in range(1, 18)]
    assert len(told) == 17  # and no more: how many lines there are must not tell the size


@pytest.mark.parametrize(("examples", "rate"), [(100, 0.6), (1000, 0.2), (42_061, 64 / 42_061), (60_000, 0.5)])
def test_batches_that_are_smaller_than_what_is_counted_are_rarer_than_one_in_two_to_the_forty(examples, rate):
    assert binom.cdf(nearly_certain(examples * rate) - 1, examples, rate) <= 2.0**-40


def test_nothing_is_counted_where_the_size_of_a_step_is_unknown(log):
    pace = Pace()
    pace.begin(0, 1)
    pace.part(3)
    assert log.messages == ["0 of 1 steps taken"]
    assert (pace.seconds_a_step, pace.examples_per_second) == (None, None)


def test_the_loop_tells_of_parts_and_steps(log):
    torch.manual_seed(0)
    module = nn.Linear(3, 2)
    optimizer = PlainOptimizer(torch.optim.SGD(module.parameters(), lr=0.1), 200.0)
    x, y = torch.randn(200, 3), torch.randint(0, 2, (200,))

    class Loader:
        def __iter__(self):
            for _ in range(2):
                for part in range(2):
                    optimizer.signal_skip_step(part == 0)
                    yield x[:100], y[:100]

    run = Run(
        module=module,
        optimizer=optimizer,
        loader=Loader(),
        loss=nn.CrossEntropyLoss(reduction="sum"),
        evaluate=lambda: {"loss": 0.0},
        epsilon=lambda: None,
        steps=2,
        pace=Pace(200.0),
    )
    train(run)
    assert log.messages == [
        "0 of 2 steps taken",
        "0 of 2 steps taken; step 1: 100 of about 200 examples",
        "1 of 2 steps taken",
        "1 of 2 steps taken; step 2: 100 of about 200 examples",
        "2 of 2 steps taken",
    ]
    assert run.pace.timed == 1
