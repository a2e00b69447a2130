"""Entropy and distortion by closed forms, and that theta and k do not control one each."""

import math

import mpmath
import pytest
from scipy import stats
from tests.paper.toy import run

from plrvo.noise import GammaPLRV
from plrvo.paper import theta_k
from plrvo.paper.entry import Context, Scale


@pytest.mark.parametrize(("k", "theta"), [(5.0, 0.05), (20.0, 0.0125), (80.0, 0.05), (2.5, 3.0)])
def test_entropy_and_distortion_have_closed_forms(k, theta):
    """log(1 + theta |z|) is exponential with mean 1/k, so that -E log p = log(2/(k theta)) + (k+1)/k."""
    noise = GammaPLRV(k, theta)
    assert theta_k.entropy(noise) == pytest.approx(math.log(2 / (k * theta)) + (k + 1) / k, rel=1e-7)
    assert theta_k.mean_of(lambda t: t, noise) == pytest.approx(1 / ((k - 1) * theta), rel=1e-6)
    assert theta_k.mean_of(lambda t: 1.0, noise) == pytest.approx(1, rel=1e-9)
    assert theta_k.seed_entropy(noise) == pytest.approx(float(stats.gamma.entropy(k, scale=theta)), rel=1e-9)


def test_the_printed_density_is_another_noise(tmp_path):
    """With b itself Gamma distributed, E|z| is E b times E|z| of Laplace noise with b = 1."""
    k, theta = 20, mpmath.mpf("0.05")
    unit = 2 * mpmath.quad(lambda z: z * mpmath.exp(-z) / 2, [0, 5, 60])
    mean = mpmath.quad(lambda b: b**k * mpmath.exp(-b / theta) / (theta**k * mpmath.gamma(k)), [0, 1, 2, 8])
    (entry,) = theta_k.ENTRIES
    (row,) = [row for row in entry.rows(Scale.quick) if row.key == "k-20"]
    found = row.measure(Context(Scale.quick, tmp_path))
    assert found.details["distortion_of_printed_density"] == pytest.approx(float(unit * mean), rel=1e-9)
    assert found.values["distortion"] == pytest.approx(1 / (19 * 0.05), rel=1e-6)


def test_both_parameters_move_both(tmp_path):
    (entry,) = theta_k.ENTRIES
    rows = run(entry, tmp_path, Scale.quick)["rows"]
    by_theta, by_k = theta_k.slopes(rows, "theta"), theta_k.slopes(rows, "k")
    assert by_theta["entropy"] == pytest.approx(-1, abs=1e-6)
    assert by_theta["distortion"] == pytest.approx(-1, abs=1e-6)
    assert by_theta["seed_entropy"] == pytest.approx(1, abs=1e-6)
    width = math.log(80 / 5)
    assert by_k["entropy"] == pytest.approx(-1 - (1 / 5 - 1 / 80) / width, abs=1e-6)
    assert by_k["distortion"] == pytest.approx(-math.log(79 / 4) / width, abs=1e-6)
    assert not any(row["flags"] for row in rows)
