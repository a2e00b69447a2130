"""Outputs and gradients of an example, in its batch and alone; what cannot be compared is refused by nobody."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from plrvo.training.call import Call
from plrvo.training.compared import PaddingShows, compare

LENGTHS = [9, 4, 6, 5]


class Pooled(nn.Module):
    def __init__(self, how: str) -> None:
        super().__init__()
        self.how, self.one, self.drop, self.head = how, nn.Linear(3, 5), nn.Dropout(0.3), nn.Linear(5, 2)
        if how == "gate":
            nn.init.zeros_(self.head.weight)

    def forward(self, x: Tensor) -> Tensor:
        there = (x != 0).any(dim=2, keepdim=True).float()
        masked = {"masks": True, "states": True, "in eval": not self.training, "in training": self.training}
        there = there if masked.get(self.how) else torch.ones_like(there)
        found = self.drop(self.one(x).tanh()) * there
        if self.how == "states":
            return self.head(found)  # type: ignore[no-any-return]
        if self.how == "short" and x.shape[1] < 9:
            raise ValueError("a kernel of nine")
        out = self.head(found.sum(dim=1) / there.sum(dim=1))
        return out + {"offset": 1e5}.get(self.how, 0) + (torch.randn_like(out) if self.how == "random" else 0)  # type: ignore[no-any-return]


def compared(how: str, in_depth: bool = True, left: bool = False) -> Any:
    torch.manual_seed(0)
    items = [torch.randn(n, 3) for n in LENGTHS]
    x = nn.utils.rnn.pad_sequence(items, batch_first=True, padding_side="left" if left else "right")
    alone = {row: Call((items[row][None],), {}, 1) for row in (1, 2)}
    return compare(Pooled(how), Call((x,), {}, len(items)), alone, (True, False), {}, in_depth=in_depth)


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("how", ["masks", "states"])
def test_masked_rows_are_what_they_are_alone(how: str, left: bool) -> None:
    found = compared(how, left=left)
    assert [padded.row for padded in found] == [1, 2]
    if how == "states":
        outside = found[0].outside(0, torch.zeros(1, 9, 2))
        assert outside is not None
        assert outside[0, :, 0].tolist() == [i < 5 if left else i >= 4 for i in range(9)]


@pytest.mark.parametrize("how", ["nothing", "in training"])
def test_outputs_show_padding(how: str) -> None:
    with pytest.raises(PaddingShows):
        compared(how, in_depth=False)


@pytest.mark.parametrize("how", ["gate", "offset", "in eval"])
def test_what_outputs_in_eval_mode_hide_shows_in_depth(how: str) -> None:
    assert compared(how, in_depth=False)
    with pytest.raises(PaddingShows):
        compared(how)


def test_what_cannot_be_compared_is_not_refused() -> None:
    assert compared("short") is None
    assert compared("random") is None


class Frozen(Pooled):
    """A part that the user keeps in eval mode: in training it would look at padding."""

    def __init__(self) -> None:
        super().__init__("masks")
        self.norm = nn.BatchNorm1d(3, affine=False)

    def forward(self, x: Tensor) -> Tensor:
        there = (x != 0).any(dim=2, keepdim=True)
        return super().forward(self.norm((x + 0.1 * there).transpose(1, 2)).transpose(1, 2) * there)


def test_parts_in_eval_mode_stay_so() -> None:
    torch.manual_seed(0)
    module = Frozen().train()
    module.norm.eval()
    x = torch.randn(2, 9, 3)
    x[1, 4:] = 0
    alone = {1: Call((x[1:, :4],), {}, 1)}
    assert compare(module, Call((x,), {}, 2), alone, (True,), {}, in_depth=True)
    module.norm.train()
    with pytest.raises(PaddingShows):
        compare(module, Call((x,), {}, 2), alone, (True,), {}, in_depth=True)


def test_the_module_is_left_as_it_was() -> None:
    module = Pooled("masks").train()
    module.drop.eval()
    x, before = torch.randn(2, 5, 3), torch.get_rng_state()
    compare(module, Call((x,), {}, 2), {1: Call((x[1:],), {}, 1)}, (True,), {}, in_depth=True)
    assert torch.equal(torch.get_rng_state(), before)
    assert (module.training, module.drop.training) == (True, False)
    assert all(p.grad is None for p in module.parameters())
