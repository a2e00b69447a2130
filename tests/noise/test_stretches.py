"""A tensor is cut into views whose numbers come in order, whatever its shape and its layout."""

import itertools

import pytest
import torch

from plrvo.noise.stretches import pieces, stretch

SHAPES = [(), (1,), (7,), (3, 5), (1, 12), (12, 1), (2, 3, 4), (4, 0), (2, 3, 2, 2)]
LAYOUTS = {
    "in one row": lambda t: t,
    "turned": lambda t: t.mT.contiguous().mT if t.ndim > 1 else t,
    "with gaps": lambda t: torch.stack([t, -t], dim=-1)[..., 0],
}


@pytest.mark.parametrize("laid", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_stretch_is_views_of_the_numbers_between_its_ends(shape, laid):
    count = torch.Size(shape).numel()
    tensor = laid(torch.arange(count, dtype=torch.float32).reshape(shape))
    for start, stop in itertools.combinations_with_replacement(range(count + 1), 2):
        found = list(stretch(tensor, start, stop))
        assert [float(x) for part in found for x in part.reshape(-1)] == list(range(start, stop))
        assert all(part._base is not None or part is tensor for part in found)
        assert all(part.untyped_storage().data_ptr() == tensor.untyped_storage().data_ptr() for part in found)


def test_pieces_are_all_of_a_tensor_and_none_is_longer_than_allowed():
    tensor = torch.arange(5 * 7 * 3).reshape(5, 7, 3)
    for most in (1, 2, 3, 20, 21, 22, 104, 105):
        found = list(pieces(tensor, most))
        assert torch.equal(torch.cat([part.reshape(-1) for part in found]), tensor.reshape(-1))
        assert max(part.numel() for part in found) <= most


def test_two_layouts_of_one_shape_are_cut_alike():
    tensor = torch.arange(60).reshape(6, 10)
    turned = tensor.t().contiguous().t()
    assert all(torch.equal(a, b) for a, b in zip(pieces(tensor, 7), pieces(turned, 7), strict=True))
