"""Row i of whatever is let through depends on copy i alone, and the rest is refused."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from plrvo.training.clipping.copies import Copies, copies_of
from plrvo.validate import InvalidArgument

ROWS, LENGTH, WIDTH = 4, 3, 5
X = torch.randn(ROWS, LENGTH, WIDTH, generator=torch.Generator().manual_seed(1))

LET_THROUGH: dict[str, Any] = {
    "sum with a batch": lambda p: X + p,
    "product, the other way round": lambda p: 2 * p * X,
    "difference from a number": lambda p: 1 - p,
    "with what all share": lambda p: p + torch.ones(WIDTH),
    "power": lambda p: p**2,
    "functions": lambda p: functional.softplus(p).exp().sqrt().to(torch.float64),
    "chosen": lambda p: torch.where(X > 0, p, X),
    "indices": lambda p: p[:, 1:, None, ::2],
    "indices from the end": lambda p: p[..., 0],
    "expanded": lambda p: p[:, :1].expand(ROWS, 7, -1),
    "expanded from one": lambda p: p[:, :1].expand(1, 7, -1),
    "repeated": lambda p: p.repeat(ROWS, 2, 1),
    "another shape": lambda p: p.view(1, -1),
    "joined": lambda p: torch.cat([p, X], dim=1),
    "joined from the end": lambda p: torch.cat((p, X), -2),
    "shares": lambda p: p.softmax(-1),
    "sums": lambda p: p.sum(dim=(1, 2)),
    "turned": lambda p: p.transpose(1, 2) @ X,
    "put in order": lambda p: p.permute(0, 2, 1),
}
REFUSED: dict[str, Any] = {
    "mean": lambda p: p.mean(),
    "mean over copies": lambda p: p.mean(0, keepdim=True).expand_as(X),
    "sum over all but the last": lambda p: p.sum((0, 1)),
    "one of them": lambda p: p[0] + X,
    "some of them": lambda p: p[:ROWS],
    "indices by numbers": lambda p: p[torch.arange(ROWS - 1, -1, -1)],
    "a condition": lambda p: p[X > 0],
    "backwards": lambda p: p.flip(0),
    "rolled": lambda p: p.roll(1, 0),
    "joined with the batch": lambda p: torch.cat([p, X]),
    "shares of examples": lambda p: p.softmax(0),
    "turned": lambda p: p.transpose(0, 1),
    "turned by a property": lambda p: p.mT,
    "flat": lambda p: p.flatten(),
    "in another shape": lambda p: p.reshape(-1, WIDTH),
    "against fewer dimensions": lambda p: p[:, 0] + X,
    "a product with fewer dimensions": lambda p: X[:, 0] @ p.transpose(1, 2),
    "a layer": lambda p: functional.linear(X, p[:, 0]),
    "written to": lambda p: X.clone().__setitem__(slice(None), p),
    "sorted": lambda p: p.sort(0),
    "taken apart": lambda p: p.unbind(0),
    "looked up": lambda p: functional.embedding(torch.arange(2), p[:, 0]),
}


def copies() -> Tensor:
    return torch.rand(ROWS, LENGTH, WIDTH, generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize("name", LET_THROUGH)
def test_a_row_depends_on_its_copy_alone(name: str) -> None:
    before = LET_THROUGH[name](copies_of(copies()))
    for row in range(ROWS):
        changed = copies()
        changed[row] += 1.5
        after = LET_THROUGH[name](copies_of(changed))
        others = [i for i in range(ROWS) if i != row]
        assert len(after) == ROWS
        assert torch.equal(before.as_subclass(Tensor)[others], after.as_subclass(Tensor)[others])
        assert not torch.equal(before.as_subclass(Tensor)[row], after.as_subclass(Tensor)[row])


@pytest.mark.parametrize("name", REFUSED)
def test_what_may_mix_copies_is_refused(name: str) -> None:
    with pytest.raises(InvalidArgument, match=r'of a parameter that is used directly.*grad_sample_mode="hooks"'):
        REFUSED[name](copies_of(copies()))


def test_with_a_batch_it_is_a_plain_tensor() -> None:
    p = copies_of(copies())
    assert type(p + X) is Tensor
    assert type(p.exp()) is Copies
    assert p.shape == (ROWS, LENGTH, WIDTH)
    assert type(torch.zeros_like(p)) is Tensor
