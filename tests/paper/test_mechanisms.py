"""Table 1 as printed, and the numbers that decide its cells by other ways."""

import math
from dataclasses import replace

import dp_accounting
import pytest
from dp_accounting.rdp import RdpAccountant

from plrvo.accounting import Ledger
from plrvo.paper import mechanisms as table
from plrvo.paper.entry import Context, Scale
from plrvo.paper.flags import Flag


def test_the_printed_cells():
    said = {kind: [capability.printed[kind] for capability in table.CAPABILITIES] for kind in table.KINDS}
    assert said["gaussian"] == [False, False, False, True, True, True, True]
    assert said["laplace"] == [False, False, False, False, True, False, False]
    assert said["gamma"] == [True] * 7


def test_only_gamma_noise_has_a_shape():
    """I E[|z|]^2 is 2/pi, 1, and k (k+1)^2/((k+2) (k-1)^2)."""

    def shape(k: float) -> float:
        return k * (k + 1) ** 2 / ((k + 2) * (k - 1) ** 2)

    assert table.freedom("gaussian") == pytest.approx(1)
    assert table.freedom("laplace") == pytest.approx(1)
    assert table.freedom("gamma") == pytest.approx(shape(3) / shape(6e4))


def test_moments_grow_as_the_formulas_say():
    """Gaussian: eta (eta - 1). One coordinate of Laplace noise: (eta-1)/b + log(eta/(2 eta - 1)) for large orders."""
    assert table.moment_growth("gaussian") == pytest.approx(math.log2(256 * 255 / (128 * 127)))
    b = table.noise_for("laplace").distortion
    log_f = [(eta - 1) / b + math.log(eta / (2 * eta - 1)) for eta in (128, 256)]
    assert table.moment_growth("laplace", 1) == pytest.approx(math.log2(log_f[1] / log_f[0]))
    assert table.moment_growth("gamma", 10**12) == pytest.approx(table.moment_growth("gaussian"), abs=1e-3)


def test_laplace_noise_is_certified_for_the_l2_clip_in_any_dimension():
    """By Theorem 1 it costs at most the moments of the subsampled Gaussian with sigma = b, here by dp-accounting."""
    noise = table.noise_for("laplace")
    accountant = RdpAccountant(orders=range(2, 64))
    gaussian = dp_accounting.GaussianDpEvent(noise.distortion)
    accountant.compose(dp_accounting.PoissonSampledDpEvent(0.01, gaussian), 300)
    limit = accountant.get_epsilon(1e-5)
    found = [
        Ledger().plus(noise, replace(table.WORK, dimension=dimension)).quick(1e-5).value
        for dimension in (1, 100, table.SMALL, table.LARGE)
    ]
    assert found == sorted(found)
    assert found[-1] <= limit * (1 + 1e-9)
    assert found[-1] == pytest.approx(limit, rel=1e-3)
    assert table.growth_with_dimension("laplace") == pytest.approx(1.0, abs=2e-3)


def test_a_cell_that_differs_says_so(tmp_path):
    (entry,) = table.ENTRIES
    rows = {row.key: row for row in entry.rows(Scale.quick)}
    assert len(rows) == 21
    differs = rows["laplace-subsampling"].measure(Context(Scale.quick, tmp_path))
    assert differs.values == {"supported": 1.0}
    assert differs.flags[Flag.differs].startswith("the paper says no")
    assert 1 - 4e-4 < differs.epsilon["certified"] <= 1
    same = rows["gamma-l2-clip"].measure(Context(Scale.quick, tmp_path))
    assert (same.values, same.flags) == ({"supported": 1.0}, {})
