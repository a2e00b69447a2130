"""Noise between Laplace and Gaussian: it is one of them at the ends, and its bound is that of the Lemma in between."""

import math

import numpy as np
import pytest
from mpmath import mp, mpf
from tests.reference import density

from plrvo.accounting import Workload, calibrate, epsilon
from plrvo.noise import Gaussian, GeneralisedGaussian, Keystream, Laplace, Noise
from plrvo.noise.exponentials import SignedKernel
from plrvo.noise.generalised_gaussian import _Size
from plrvo.validate import InvalidArgument

ENDS: list[tuple[GeneralisedGaussian, Noise]] = [
    (GeneralisedGaussian(1.0, 1.3), Laplace(1.3)),
    (GeneralisedGaussian(2.0, 1.3 * math.sqrt(2)), Gaussian(1.3)),
]
SHAPES = [1.0, 1.01, 1.2, 1.5, 1.9, 1.999, 2.0]
each_end = pytest.mark.parametrize(("noise", "known"), ENDS, ids=["Laplace", "Gaussian"])


@each_end
def test_at_its_ends_it_is_a_known_noise(noise: Noise, known: Noise) -> None:
    z = np.array([-9.0, -1.0, 1e-6, 0.3, 2.0, 30.0])
    for of in (lambda n: n.log_density(z), lambda n: n.cdf(z), lambda n: n.score(z)):
        assert of(noise) == pytest.approx(of(known), rel=1e-13, abs=0.0)
    for name in ("distortion", "variance"):
        assert getattr(noise, name) == pytest.approx(getattr(known, name), rel=1e-14)
    assert noise.fisher_information() == pytest.approx(known.fisher_information(), rel=1e-14)
    assert noise.pure_loss(2.0, 9) == pytest.approx(known.pure_loss(2.0, 9), rel=1e-15)


@each_end
def test_at_its_ends_its_moments_are_in_closed_form(noise: Noise, known: Noise) -> None:
    """From shifts of a millionth to thirty widths, and to the largest order."""
    x, eta = np.geomspace(1e-6, 40.0, 30)[:, None], np.array([1.5, 2.0, 5.0, 64.0, 2049.0])
    assert noise.log_moment(x, eta) == pytest.approx(known.log_moment(x, eta), rel=1e-13, abs=0.0)
    assert noise.log_moment(x, 0.7) == pytest.approx(known.log_moment(x, 0.7), rel=1e-9, abs=0.0)
    for dimension in (1, 40, 10**9):
        bound, expected = (n.log_joint_moment(2.0, dimension, eta[1:]) for n in (noise, known))
        assert np.all(bound >= expected)
        assert bound == pytest.approx(expected, rel=1e-9, abs=0.0)


def definition(noise: GeneralisedGaussian, x: float, eta: float) -> float:
    """log F by mpmath from p(y)^eta p(y+x)^(1-eta), cut where it has a kink and around its peak."""
    with mp.workdps(20):
        p, x, eta = density(noise), mpf(x), mpf(eta)
        ratio = ((eta - 1) / eta) ** (1 / (mpf(noise.shape) - 1))
        peak = x * ratio / (1 - ratio)
        steps = [mpf(step) * noise.width for step in (0, 0.1, 1, 3, 8, 20, 60)]
        marks = sorted({*(-x - step for step in steps), -x / 2, mpf(0), peak / 2, *(peak + step for step in steps)})
        return float(mp.log(mp.quad(lambda y: p(abs(y)) ** eta * p(abs(y + x)) ** (1 - eta), marks)))


@pytest.mark.parametrize("shape", [1.2, 1.5, 1.9])
@pytest.mark.parametrize(("x", "eta"), [(0.5, 2.0), (2.0, 3.5), (1.0, 20.0)])
def test_log_moment_is_the_integral_that_defines_it(shape: float, x: float, eta: float) -> None:
    noise = GeneralisedGaussian(shape, 0.8)
    assert float(noise.log_moment(x, eta)) == pytest.approx(definition(noise, x, eta), rel=1e-12)


@pytest.mark.parametrize("shape", SHAPES)
def test_log_moment_is_convex_in_the_shift(shape: float) -> None:
    """What the hull of `envelope` rests on."""
    x, eta = np.linspace(0.0, 12.0, 60)[:, None], np.array([2.0, 3.0, 12.0, 200.0])
    h = GeneralisedGaussian(shape, 1.0).log_moment(x, eta)
    assert np.all(np.diff(h, 2, axis=0) >= -1e-12 * h[2:])


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("x0", [1e-5, 1e-3, 0.02])
def test_the_lemma_bounds_the_moment_of_short_shifts(shape: float, x0: float) -> None:
    noise, eta = GeneralisedGaussian(shape, 1.0), np.array([2.0, 3.0, 12.0, 40.0])
    bound = noise._initial_slope(x0, eta)
    x = x0 * np.geomspace(1e-3, 1.0, 12)[:, None]
    ratio = noise.log_moment(x, eta) / x**2 / bound
    assert np.all(ratio <= 1 + 1e-12)
    if x0 == 1e-5:  # and it is not far above: this is what many coordinates cost
        assert np.all(ratio > 0.99)


def test_the_lemma_has_nothing_to_say_where_its_integral_diverges() -> None:
    assert GeneralisedGaussian(2.0, 1.0)._initial_slope(0.1, np.array([10.0])).tolist() == [math.inf]


@pytest.mark.parametrize("shape", SHAPES)
def test_certified_stays_between_the_lower_bound_and_a_per_cent_above_the_gaussian_limit(shape: float) -> None:
    """In high dimension, at the same information, no shape costs more moment than Gaussian noise by much."""
    noise = GeneralisedGaussian(shape, 1.0)
    clip = 0.8 / math.sqrt(noise.fisher_information())
    bracket = epsilon(noise, Workload(0.01, 300, clip, 26_010), 1e-5)
    limit = GeneralisedGaussian(2.0, math.sqrt(2)).log_joint_moment(0.8, 26_010, np.array([8.0]))
    assert bracket.lower <= bracket.certified
    assert noise.log_joint_moment(clip, 26_010, np.array([8.0])) <= 1.01 * limit


def test_calibration_finds_the_width() -> None:
    work = Workload(0.01, 300, 1.0, 100)
    fitted = calibrate(GeneralisedGaussian(1.5, 1.0), work, epsilon=2.0, delta=1e-5)
    assert fitted.shape == 1.5
    assert 1.999 < epsilon(fitted, work, 1e-5).certified <= 2.0


@pytest.mark.parametrize("shape", SHAPES)
def test_size_of_an_exponential_has_its_probability(shape: float) -> None:
    """P(|z| > size(E)) = e^-E from 1e-12 to e^-700, to twelve digits."""
    e = np.array([1e-12, 1e-6, 0.1, 0.69, 0.7, 3.0, 70.0, 300.0, 700.0])
    out = np.empty(e.shape)
    _Size(shape, 0.8).write(-e, out)
    with mp.workdps(30):
        for size, expected in zip(out, e, strict=True):
            scaled, order = (mpf(float(size)) / mpf(0.8)) ** mpf(shape), 1 / mpf(shape)
            if expected < 0.5:
                found = float(-mp.log1p(-mp.gammainc(order, 0, scaled, regularized=True)))
            else:
                found = float(-mp.log(mp.gammainc(order, scaled, regularized=True)))
            assert found == pytest.approx(expected, rel=1e-12)


def test_sizes_beyond_all_doubles_are_finite() -> None:
    kernel = SignedKernel(_Size(1.5, 1e300), 4)
    (stream,) = Keystream(bytes(32)).streams(1)
    assert np.all(np.isfinite(kernel.draw(4, np.dtype(np.float32), stream)))


@pytest.mark.parametrize("shape", [0.99, 2.01, math.nan, "1.5"])
def test_shapes_without_a_proof_are_refused(shape: float) -> None:
    with pytest.raises(InvalidArgument, match=r"^shape=.*from 1 to 2"):
        GeneralisedGaussian(shape, 1.0)


def test_the_largest_loss_at_shape_one_is_never_zero() -> None:
    assert 0 < GeneralisedGaussian(1.0, 1e200).pure_loss(1e-140, 4) < 1e-300
    assert GeneralisedGaussian(1.5, 1e200).pure_loss(1e-140, 4) == math.inf
