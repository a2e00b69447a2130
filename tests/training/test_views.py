"""Views: the sum that is released is that of a loop in which each example's mean gradient is clipped once."""

import copy

import pytest
import torch
from tests.training.helpers import CLASSES, private, seeded, small_data, small_model
from torch import nn
from torch.utils.data import TensorDataset

import plrvo
from plrvo.training.views import EachView, MeanOverViews

VIEWS, CLIP = 3, 0.02


def data_of_views() -> TensorDataset:
    images, labels = small_data(40).tensors
    factors = torch.tensor([1.0, -0.5, 0.3]).view(1, VIEWS, 1, 1, 1)
    return TensorDataset(images[:, None] * factors, labels)


def linear() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(6)
        return nn.Sequential(nn.Flatten(-3), nn.Linear(64, CLASSES))


def clipped_by_loop(module: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Every view by itself, their gradients averaged, the mean clipped."""
    total = torch.zeros(sum(p.numel() for p in module.parameters()))
    for views, label in zip(x, y, strict=True):
        gradients = []
        for view in views:
            loss = nn.functional.cross_entropy(module(view[None]), label[None])
            found = torch.autograd.grad(loss, list(module.parameters()))
            gradients.append(torch.cat([g.flatten() for g in found]))
        mean = torch.stack(gradients).mean(dim=0)
        total += mean * min(1.0, CLIP / float(mean.norm()))
    return total


@pytest.mark.parametrize("kind", ["linear", "convolution"])
def test_an_example_is_clipped_once_whatever_its_views(kind):
    module = linear() if kind == "linear" else EachView(small_model(), dimensions=4)
    plain = copy.deepcopy(module if kind == "linear" else module.module)  # without the engine's hooks
    before = [p.detach().clone() for p in module.parameters()]
    engine, model, optimizer, _, loader = private(
        plrvo.Gaussian(1e-7), mode="auto", clip=CLIP, data=data_of_views(), module=module, steps=1, sample_rate=0.5
    )
    assert engine.grad_sample_mode == ("bookkeeping" if kind == "linear" else "functorch")
    x, y = next(iter(loader))
    assert 5 < len(x) < 35
    optimizer.zero_grad()
    MeanOverViews()(model(x), y).backward()
    optimizer.step()
    moved = torch.cat([(b - p.detach()).flatten() for b, p in zip(before, module.parameters(), strict=True)])
    released = moved / 0.1 * optimizer.expected_batch_size
    expected = clipped_by_loop(plain, x, y)
    assert expected.norm() > 2 * CLIP  # more than one example's worth
    assert torch.allclose(released, expected, atol=1e-4 * float(expected.norm()))


def test_the_loss_is_the_mean_over_views_and_each_reduction_follows():
    logits, targets = torch.randn(5, VIEWS, CLASSES, generator=seeded(1)), torch.tensor([0, 1, 2, 3, 0])
    by_view = [nn.functional.cross_entropy(logits[:, k], targets, reduction="none") for k in range(VIEWS)]
    each = torch.stack(by_view).mean(dim=0)
    assert torch.allclose(MeanOverViews("none")(logits, targets), each)
    assert torch.allclose(MeanOverViews("sum")(logits, targets), each.sum())
    assert torch.allclose(MeanOverViews()(logits, targets), each.mean())
    assert torch.allclose(MeanOverViews()(logits[:, 0], targets), by_view[0].mean())


def test_each_view_goes_through_the_module_by_itself():
    module, x = small_model(), data_of_views().tensors[0][:4]
    found = EachView(module, dimensions=4)(x)
    assert found.shape == (4, VIEWS, CLASSES)
    for k in range(VIEWS):
        assert torch.allclose(found[:, k], module(x[:, k]), atol=1e-6)
    assert torch.equal(EachView(module, dimensions=4)(x[:, 0]), module(x[:, 0]))
