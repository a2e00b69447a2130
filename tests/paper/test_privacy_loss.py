"""Golden cells of the privacy-loss figure, and the certified one from the textbook's sum."""

import math

import mpmath
import pytest

from plrvo import Gaussian, Ledger
from plrvo.paper import privacy_loss as figure
from plrvo.paper.entry import Context, Scale
from plrvo.paper.flags import Flag


def measured(kind: str, clip: float, steps: int, tmp_path):
    (entry,) = figure.ENTRIES
    (row,) = [
        row
        for row in entry.rows(Scale.quick)
        if (row.parameters["noise"], row.parameters["clip"], row.parameters["T"]) == (kind, clip, steps)
    ]
    return row.measure(Context(Scale.quick, tmp_path))


def test_the_caption_is_that_of_qnli_at_the_largest_distortion():
    assert pytest.approx(1024 / 104_743, rel=1e-5) == figure.SAMPLE_RATE
    assert math.ceil(3 * 104_743 / 1024) == figure.QNLI_STEPS
    assert figure.GAMMA.distortion == pytest.approx(10, rel=1e-4)


def test_golden_cells(tmp_path):
    at_one = measured("Gamma", 1.0, 307, tmp_path)
    assert at_one.epsilon["published"] == pytest.approx(0.14186, abs=1e-5)
    assert at_one.epsilon["certified"] == pytest.approx(0.0513, abs=1e-4)  # 0.05644 by moments
    assert 0.0501 < at_one.epsilon["lower"] < 0.0503
    assert not at_one.flags
    refuted = measured("Gamma", 10.0, 10, tmp_path)
    assert refuted.epsilon["published"] < refuted.epsilon["lower"] < refuted.epsilon["certified"]
    assert list(refuted.flags) == [Flag.refuted]
    assert measured(figure.MULTIPLIER, 1.0, 307, tmp_path).epsilon["lower"] > 500


def test_the_certified_cell_by_the_sum_over_orders(tmp_path):
    """sum_eta binom (1-q)^.. q^.. exp(eta (eta-1) I C^2/2), I = k (k+1)^2 theta^2/(k+2), in 60 digits."""
    k, theta, q = (mpmath.mpf(str(value)) for value in (414.2857, 2.4196e-4, 0.00977631))

    def epsilon(order: int) -> mpmath.mpf:
        information, n = k * (k + 1) ** 2 * theta**2 / (k + 2), order + 1
        terms = (
            mpmath.binomial(n, eta) * (1 - q) ** (n - eta) * q**eta * mpmath.exp(eta * (eta - 1) * information / 2)
            for eta in range(n + 1)
        )
        moment = 307 * mpmath.log(mpmath.fsum(terms))
        return (moment - mpmath.log(figure.DELTA) - mpmath.log(n)) / order + mpmath.log(mpmath.mpf(order) / n)

    with mpmath.workdps(60):
        best = min(epsilon(order) for order in range(195, 208))
    found = Ledger().plus(figure.GAMMA, figure.work_of(1.0, 307)).quick(figure.DELTA).value
    assert found == pytest.approx(float(best), rel=1e-9)
    assert measured("Gamma", 1.0, 307, tmp_path).epsilon["certified"] <= found


def test_the_readings_of_sigma():
    assert figure.noise_of(figure.MULTIPLIER, 10.0) == Gaussian(1.0)
    assert figure.noise_of(figure.DEVIATION, 10.0) == Gaussian(0.1)
