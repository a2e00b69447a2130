"""Inputs of a module are known again among what the loader gave, whatever a loop does with them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from plrvo.training.call import Call
from plrvo.training.matched import as_numbers, match, numbers_in, same

ROWS, LONG, SHORT = 4, 7, 3


def ids(length: int = LONG, rows: int = ROWS) -> Tensor:
    return 1 + torch.arange(rows * LONG).view(rows, LONG)[:, :length]


LOOPS: dict[str, Callable[[Tensor], Any]] = {
    "as it is": lambda t: t,
    "cast": lambda t: t.float(),
    "a smaller type": lambda t: t.to(torch.int32),
    "shifted": lambda t: t[:, :-1],
    "the other end": lambda t: t[:, 1:],
    "a mask": lambda t: (t != 0).long(),
    "a channel": lambda t: t[:, None].float(),
    "features": lambda t: t[..., None],
    "an array": lambda t: t.numpy(),
    "lists": lambda t: t.tolist(),
}


@pytest.mark.parametrize("how", LOOPS)
def test_the_call_of_one_example_is_made_of_what_the_loader_gives_for_it(how: str) -> None:
    loop, whole = LOOPS[how], ids()
    call = Call((loop(whole),), {"weights": torch.arange(4.0)}, ROWS)
    found = match(call, range(ROWS), [None, whole])
    assert found is not None
    one = whole[2:3, :SHORT]
    assert found.differing([None, whole], 2, [None, one], ROWS) == {LONG}
    alone = found.alone(2, [None, one], {LONG})
    assert alone is not None
    assert alone.rows == 1
    (given,), expected = alone.args, loop(one)
    assert type(given) is type(expected)
    assert np.array_equal(np.asarray(given), np.asarray(expected))
    assert alone.kwargs["weights"].tolist() == [2.0]


def test_rows_may_be_second_and_only_some_of_them_asked() -> None:
    call = Call((ids().T,), {}, ROWS, dimension=1)
    found = match(call, [0, 2], [ids()[[0, 2]]])
    assert found is not None
    alone = found.alone(2, [ids()[2:3, :SHORT]], {LONG})
    assert alone is not None
    assert torch.equal(alone.args[0], ids()[2:3, :SHORT].T)


def test_nothing_is_said_of_inputs_that_nobody_knows() -> None:
    assert match(Call((ids() / 3,), {}, ROWS), range(ROWS), [ids()]) is None
    call = Call((ids(), torch.randn(ROWS, LONG)), {}, ROWS)
    found = match(call, range(ROWS), [ids()])
    assert found is not None
    assert not found.is_complete
    assert found.alone(1, [ids()[1:2, :SHORT]], {LONG}) is None  # the other one would be as short
    squeezed = match(Call((ids(),), {}, ROWS), range(ROWS), [ids()])
    assert squeezed is not None
    assert squeezed.alone(1, [ids()[1, :SHORT]], {LONG}) is None  # one example without its dimension


def test_rows_in_another_order_are_found() -> None:
    order = [3, 1, 0, 2]
    together = [ids()[order], torch.tensor(order)]
    found = match(Call((together[0], together[1]), {}, ROWS), range(ROWS), together)
    assert found is not None
    places = [found.place_of([ids()[i : i + 1, :SHORT], torch.zeros(1).long()], i, together, ROWS) for i in order]
    assert places == [0, 1, 2, 3]


def test_what_are_numbers() -> None:
    ids, mask = [[1, 2], [3, 4]], [[1, 1], [1, 1]]
    assert [t.tolist() for t in numbers_in((ids, mask)) if t is not None] == [ids, mask]
    assert [t.tolist() for t in numbers_in([ids, mask]) if t is not None][1:] == [ids, mask]
    assert numbers_in({"a": ["one", "two"], "b": None, "c": [[1, 2], [3]]}) == [None, None, None, None]
    assert as_numbers(np.array(["a"])) is None
    nested = as_numbers([[1.0, 2.0], [3.0, 4.0]])
    assert nested is not None
    assert nested.tolist() == [[1.0, 2.0], [3.0, 4.0]]
    one = [torch.tensor([torch.nan, 1.0]), None]
    assert same(one, [one[0].clone(), None])  # type: ignore[union-attr]
    assert not same(one, [torch.zeros(2), None])
