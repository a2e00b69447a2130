"""Automatic clipping: each gradient times C/(norm + 0.01), against a loop over examples; never longer than the clip."""

import pytest
import torch
from tests.training.helpers import dimension_of, given, private, small_data, small_model
from torch import nn

import plrvo
from plrvo.training.clipping.optimizer import STABILISER
from plrvo.validate import InvalidArgument

CLIP = 0.7
MODES = pytest.mark.parametrize("mode", ["bookkeeping", "hooks", "functorch"])


def clipped_sum(mode, x, y, clip=CLIP):
    _, model, optimizer, loss, _ = private(plrvo.Gaussian(1.0), mode=mode, clipping="automatic", clip=clip)
    given(optimizer, len(x))
    loss(model(x), y).backward()
    optimizer.draws.part(len(x), last=True)
    optimizer.clip_and_accumulate()
    return torch.cat([total.flatten() for total in optimizer.sums])


def gradients(x, y):
    module = small_model()
    for i in range(len(x)):
        loss = nn.functional.cross_entropy(module(x[i : i + 1]), y[i : i + 1])
        yield torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(module.parameters()))]).double()


@MODES
@pytest.mark.parametrize("clip", [1e-3, CLIP, 1e3])
def test_sums_are_those_of_a_loop(mode, clip):
    x, y = small_data()[:9]
    due = sum(g * clip / (g.norm() + STABILISER) for g in gradients(x, y))
    torch.testing.assert_close(clipped_sum(mode, x, y, clip).double(), due, rtol=1e-4, atol=1e-5 * clip)


@MODES
@pytest.mark.parametrize("size", [1e-6, 1.0, 1e6])
def test_no_example_is_longer_than_the_clip(mode, size):
    x, y = small_data()[:1]
    assert 0 < float(clipped_sum(mode, size * x, y).double().norm()) <= CLIP


@MODES
def test_an_example_that_is_no_number_adds_nothing(mode):
    x, y = small_data()[:4]
    broken = x.clone()
    broken[2] = float("nan")
    kept = torch.tensor([0, 1, 3])
    torch.testing.assert_close(clipped_sum(mode, broken, y), clipped_sum(mode, x[kept], y[kept]), rtol=1e-4, atol=1e-5)


def test_it_costs_what_flat_clipping_costs_and_long_clips_are_refused():
    work = plrvo.Workload(1.0, 3, CLIP, dimension_of(small_model()))
    flat, automatic = (plrvo.Plan.certify(plrvo.Laplace(3.0), work, 1e-4, clipping=c) for c in ("flat", "automatic"))
    assert flat.bracket == automatic.bracket
    with pytest.raises(InvalidArgument, match=r"^clip="):
        private(plrvo.Gaussian(1e6), clipping="automatic", clip=1e5)
