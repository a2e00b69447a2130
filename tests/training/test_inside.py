"""What is made inside of a pass is known as long as somebody holds it, and nothing else is."""

import gc

import torch

from plrvo.training.inside import Inside


def test_what_a_pass_makes_and_somebody_holds() -> None:
    inside, x, table = Inside(), torch.ones(4, 3), torch.zeros(3)
    before = x * 2
    inside.begin([x])
    hidden = x @ torch.ones(3, 2)
    mean = hidden.mean(dim=0)
    table.add_(hidden.sum())
    constant = torch.zeros(3) + 1
    out = hidden * 2
    view = x[:, :2]
    inside.end([out])
    after = out.sum()
    assert [inside.made(t) for t in (hidden, mean, mean[0], table)] == [True] * 4
    assert [inside.made(t) for t in (x, view, before, out, after, constant)] == [False] * 6
    del hidden
    gc.collect()
    left = inside.let_go()
    assert len(left) == 2
    assert not inside.made(mean)


def test_later_passes_are_heard_now_and_then() -> None:
    inside, heard, x = Inside(), 0, torch.ones(2)
    for _ in range(8 + 640):
        inside.begin([x])
        made = x + 1
        inside.end(())
        heard += inside.made(made)
        inside.let_go()
    # 8 for certain, and 40 in the mean of 640: fewer than 8 of these have probability below 1e-10.
    assert 16 <= heard < 200


def test_a_pass_that_fails_leaves_no_listener_behind() -> None:
    inside = Inside()
    x = torch.ones(2)
    inside.begin([x])
    inside.pause()
    made = x + 1
    assert not inside.made(made)
