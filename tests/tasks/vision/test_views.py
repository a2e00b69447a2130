import pytest
import torch

from plrvo.tasks.vision.views import Views, view_of
from plrvo.tasks.vision.words import SHIFTS, check_views
from plrvo.validate import InvalidArgument

IMAGES = torch.arange(2 * 6 * 5, dtype=torch.float32).view(2, 1, 6, 5)


def test_the_first_view_is_the_image_and_the_others_are_shifted():
    assert torch.equal(view_of(IMAGES, 0, "mnist"), IMAGES)
    for number, (down, right) in enumerate(SHIFTS):
        found = view_of(IMAGES, number, "mnist")
        inside = found[:, :, max(0, down) : 6 + min(0, down), max(0, right) : 5 + min(0, right)]
        was = IMAGES[:, :, max(0, -down) : 6 + min(0, -down), max(0, -right) : 5 + min(0, -right)]
        assert torch.equal(inside, was)
        assert set(found.unique().tolist()) <= set(IMAGES.unique().tolist())


def test_every_second_view_of_a_photograph_is_mirrored():
    assert torch.equal(view_of(IMAGES, 1, "cifar-10"), IMAGES.flip(-1))
    assert torch.equal(view_of(IMAGES, 3, "cifar-10"), view_of(IMAGES, 1, "mnist").flip(-1))


def test_a_batch_has_all_views_of_its_examples():
    data = Views(IMAGES, torch.tensor([7, 8]), 4, "mnist")
    x, y = data.__getitems__([1])
    assert x.shape == (1, 4, 1, 6, 5)
    assert torch.equal(x[0, 2], view_of(IMAGES, 2, "mnist")[1])
    assert y.tolist() == [8]
    assert torch.equal(data[1][0], x[0])


def test_more_views_than_there_are_are_refused():
    check_views("mnist", 9)
    check_views("cifar-10", 18)
    with pytest.raises(InvalidArgument, match=r"views=10: expected at most 9"):
        check_views("mnist", 10)
