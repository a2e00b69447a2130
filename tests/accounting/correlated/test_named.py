"""Correlations by name: the strategy, who takes part when, and how many steps that makes."""

import pytest

from plrvo.accounting.correlated import Banded, BufferedToeplitz, CyclicPoisson, Participation, SquareRoot, Tree
from plrvo.accounting.correlated.named import named_correlation
from plrvo.validate import InvalidArgument

SIZE = 1000  # ten steps an epoch


@pytest.mark.parametrize(
    ("name", "strategy"),
    [("identity", Banded()), ("tree", Tree()), ("tree:completed", Tree(completed=True)), ("sqrt", SquareRoot())],
)
def test_names_without_numbers(name, strategy):
    correlation, steps = named_correlation(name, SIZE, 3, 100)
    assert correlation.strategy == strategy
    assert (correlation.participation, correlation.restart_every, steps) == (Participation(10, 3), None, 30)


def test_numbers_are_bands_and_buffers():
    banded, _ = named_correlation("banded:4", SIZE, 3, 100)
    assert isinstance(banded.strategy, Banded)
    assert len(banded.strategy.values) == 4
    for name, buffers in (("blt", 3), ("blt:2", 2)):
        fitted = named_correlation(name, SIZE, 1, 100)[0].strategy
        assert isinstance(fitted, BufferedToeplitz)
        assert len(fitted.decays) == buffers


def test_an_epoch_that_is_not_whole_has_one_step_more():
    assert named_correlation("tree", SIZE + 1, 2, 100)[1] == 22
    assert named_correlation("tree", SIZE, 2)[1] == 8  # 250 by default


def test_restarts_and_separations_are_those_asked_for():
    correlation, _ = named_correlation("tree", SIZE, 6, 100, restart_every=2, separation=4)
    assert correlation.restart_every == 20
    assert correlation.participation == Participation(10, 6, 4)
    assert named_correlation("tree", SIZE, 6, 100, restart_every=9)[0].restart_every == 60


def test_sampling_by_turns_has_a_group_for_each_band():
    correlation, steps = named_correlation("banded:4:cyclic", SIZE, 2, 100)
    assert correlation.participation == CyclicPoisson(4, 0.4)
    assert steps == 20


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("forest", SIZE, 1), "correlation"),
        (("banded", SIZE, 1), "correlation"),
        (("banded:0", SIZE, 1), "correlation"),
        (("banded:-1", SIZE, 1), "correlation"),
        (("banded:11", SIZE, 1, 100), "correlation"),
        (("banded:11:cyclic", SIZE, 1, 100), "correlation"),
        (("tree:cyclic", SIZE, 1), "correlation"),
        (("tree", SIZE, None), "epochs"),
        (("tree", SIZE, 0), "epochs"),
        (("tree", SIZE, 1, SIZE + 1), "batch_size"),
        (("tree", SIZE, 1, 100, 0), "restart_every"),
        (("tree", SIZE, 1, 100, None, 11), "separation"),
        (("banded:4:cyclic", SIZE, 1, 100, 1), "restart_every"),
        (("banded:4:cyclic", SIZE, 1, 100, None, 4), "separation"),
    ],
    ids=str,
)
def test_bad_input_is_named(arguments, named):
    with pytest.raises(InvalidArgument) as caught:
        named_correlation(*arguments)
    assert caught.value.argument == named
