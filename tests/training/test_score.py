"""What is done to a release after its noise: the score and the clamp, unbiased for small signals."""

import numpy as np
import pytest
import torch
from tests.training.helpers import GAMMA, given, private, small_data

import plrvo
from plrvo.training.score import postprocessor
from plrvo.validate import InvalidArgument

Y = torch.tensor([-3.0, -0.2, 0.1, 2.0], dtype=torch.float64)


def test_nothing_asked_for_is_nothing_done():
    assert postprocessor(None, plrvo.Laplace(0.5)) is None


def test_the_score_of_gaussian_noise_is_the_output_itself():
    torch.testing.assert_close(postprocessor("score", plrvo.Gaussian(3.0))(Y), Y)


def test_the_score_of_laplace_noise_is_a_sign():
    torch.testing.assert_close(postprocessor("score", plrvo.Laplace(0.5))(Y), 0.5 * Y.sign())


def test_the_score_of_gamma_noise_redescends():
    small, large = postprocessor("score", GAMMA)(torch.tensor([1.0, 1e6], dtype=torch.float64))
    assert 0 < large < 1e-3 * small


def test_the_clamp_is_linear_up_to_the_width_of_the_noise():
    """Laplace noise of scale 1/2 has information 4: the clamp ends at 1/2, and P(|z| < 1/2) = 1 - 1/e."""
    after = postprocessor("clamp", plrvo.Laplace(0.5))(Y)
    torch.testing.assert_close(after, torch.tensor([-0.5, -0.2, 0.1, 0.5], dtype=torch.float64) / (1 - np.exp(-1)))


@pytest.mark.parametrize("kind", ["magic", "Score", True, 1], ids=repr)
def test_anything_else_is_refused(kind):
    with pytest.raises(InvalidArgument, match=r"^postprocess="):
        postprocessor(kind, GAMMA)


@pytest.mark.parametrize("noise", [plrvo.Laplace(0.5), GAMMA, plrvo.Gaussian(0.5)], ids=lambda n: n.kind)
@pytest.mark.parametrize("kind", ["score", "clamp"])
def test_postprocessing_is_unbiased_for_small_signals(kind, noise):
    """E[f(g + z)]/g -> 1 as g -> 0: by the exact derivative of the expectation, integral f(z) score(z) p(z) dz."""
    after = postprocessor(kind, noise)

    z = np.geomspace(1e-7, 1e5, 400_001)
    integrand = after(torch.from_numpy(z)).numpy() * noise.score(z) * np.exp(noise.log_density(z))
    assert 2 * np.trapezoid(integrand, z) == pytest.approx(1.0, rel=1e-4)


def test_postprocessing_acts_at_sum_scale():
    """Laplace score: every coordinate of the update is +-b divided by the batch size."""
    _, model, optimizer, loss, _ = private(plrvo.Laplace(0.5), postprocess="score", learning_rate=1.0)
    before = torch.cat([p.detach().flatten() for p in optimizer.params])
    x, y = small_data()[:5]
    given(optimizer, 5)
    loss(model(x), y).backward()
    optimizer.step()
    moved = torch.cat([p.detach().flatten() for p in optimizer.params]) - before
    assert torch.allclose(moved.abs(), torch.tensor(0.5 / optimizer.expected_batch_size), atol=1e-6)
