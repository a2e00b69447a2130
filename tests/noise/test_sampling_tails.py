"""Tails reach beyond 1e-30 in every type and on every path, and have the law that the proof says.

Nobody waits for such values: the words are chosen here. A word is deep if it leads into the tail (U < 2^-20).
"""

import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from tests.noise.catalogue import NOISES, SEEDS

from plrvo.audit.noise_attacks import tail_draws, tail_probabilities
from plrvo.noise import PLRV, GammaPLRV, Gaussian, GeneralisedGaussian, Keystream, Laplace, Noise, Seed
from plrvo.noise.keystream import Stream, Words

FALSE_ALARM = 1e-6
DEPTH = 5  # 2^-100 is below 1e-30
DEEP = 20 * math.log(2)
SINGLE, DOUBLE = np.dtype(np.float32), np.dtype(np.float64)

ALL = {**NOISES, "Gamma shared": GammaPLRV(3.0, 0.5, shared=True), "PLRV shared": PLRV(SEEDS["gamma"], shared=True)}
UNIVARIATE = [Laplace(0.6), GammaPLRV(0.3, 2.0), GammaPLRV(3.0, 0.5), GammaPLRV(100.0, 0.01), GammaPLRV(6e4, 1e-5)]
DRAWN = [*UNIVARIATE, Gaussian(1.7), GeneralisedGaussian(1.5, 0.8)]


class Chosen:
    """Gives the words of a list, one list for each time it is asked."""

    def __init__(self, *answers: list[int]) -> None:
        self._answers = list(answers)

    def words(self, count: int) -> Words:
        out = np.empty(count + 2, np.uint64)
        self.fill(out)
        return out[:count]

    def fill(self, buffer: Words) -> None:
        buffer[:-2] = np.array(self._answers.pop(0), np.uint64)


def draw(noise: Noise, dtype: Any, *answers: list[int]) -> np.ndarray:
    kernel = noise.kernels(Keystream(bytes(32)))(len(answers[0]))
    return np.array(kernel.draw(len(answers[0]), dtype, Chosen(*answers)), dtype=float)


def word(u: float, negative: bool = False) -> int:
    """The word whose uniform is u."""
    return int(u * 2**63) | 1 | negative << 63


@pytest.mark.parametrize("dtype", [SINGLE, DOUBLE], ids=str)
@pytest.mark.parametrize("noise", UNIVARIATE, ids=repr)
def test_survival_of_a_value_is_the_probability_of_its_words(noise: Noise, dtype: Any) -> None:
    """log P(|z| > value) = -(j 20 log 2 + E), j deep words and one more: from the centre to 2^-2000."""
    for depth in (0, 1, 2, 5, 20, 100):
        for u in (0.999, 0.5, 1e-3, 2.0**-19.99):
            expected = depth * DEEP - math.log(u)
            size = abs(draw(noise, dtype, *[[word(2.0**-30)]] * depth, [word(u)])[0])
            assert math.isfinite(size)
            if size == np.finfo(dtype).max:  # the true size has no place in this type
                assert isinstance(noise, GammaPLRV)
                assert expected / noise.k - math.log(noise.theta) > math.log(size) - 1e-6
                continue
            found = noise.k * math.log1p(noise.theta * size) if isinstance(noise, GammaPLRV) else size / 0.6
            assert found == pytest.approx(expected, rel=3e-6 if dtype == SINGLE else 1e-13, abs=0.0)


@pytest.mark.parametrize("dtype", [SINGLE, DOUBLE], ids=str)
def test_length_of_a_normal_pair_has_the_probability_of_its_words(dtype: Any) -> None:
    for depth in (0, 1, 5, 100):
        first, *others = [*[word(2.0**-30)] * depth, word(0.3)]
        pair = draw(Gaussian(1.7), dtype, [first, word(0.2, True)], *[[other] for other in others])
        expected = depth * DEEP - math.log(0.3)
        assert np.sum((pair / 1.7) ** 2) / 2 == pytest.approx(expected, rel=1e-6 if dtype == SINGLE else 1e-13)


@pytest.mark.parametrize("noise", DRAWN, ids=repr)
@pytest.mark.parametrize("depth", [1, 2, 5])
def test_the_law_goes_on_in_the_tail(noise: Noise, depth: int) -> None:
    """Given that the exponential is beyond j 20 log 2, down to 1e-30. False alarm 1e-6."""
    uniform = tail_probabilities(noise, 40_000, Keystream.from_seed(depth, "tails"), depth)
    if not isinstance(noise, GammaPLRV) or noise.k > 1:  # k = 0.3 has singles that overflow by then
        assert stats.kstest(uniform, "uniform").pvalue > FALSE_ALARM


def test_signs_and_angles_are_as_uniform_in_the_tail_as_elsewhere() -> None:
    """False alarm 1e-6 each."""
    signs = np.signbit(tail_draws(Laplace(1.0), 40_000, Keystream.from_seed(1, "signs"), 2))
    assert stats.binomtest(int(signs.sum()), signs.size).pvalue > FALSE_ALARM
    one, other = tail_draws(Gaussian(1.0), 40_000, Keystream.from_seed(1, "angles"), 2).reshape(2, -1)
    turns = np.arctan2(one, other) / (2 * np.pi) + 0.5
    assert stats.kstest(turns, "uniform").pvalue > FALSE_ALARM


def rig(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every stream gives deep words five times and one ordinary one, again and again."""

    def fill(self: Any, buffer: Words) -> None:
        self.asked = getattr(self, "asked", -1) + 1
        buffer[:-2] = word(2.0**-30 if self.asked % (DEPTH + 1) < DEPTH else 0.3, negative=True)

    monkeypatch.setattr(Stream, "fill", fill)


def numpy_drawn(noise: Noise, dtype: Any) -> Any:
    return noise.sample(6, np.random.default_rng(0), dtype)


def torch_drawn(noise: Noise, dtype: Any) -> Any:
    return noise.sample((2, 3), torch.Generator(), dtype)


def keystream_drawn(noise: Noise, dtype: Any) -> Any:
    return noise.sample(6, Keystream(), dtype)


def added(noise: Noise, dtype: Any) -> Any:
    buffer = torch.zeros(6, dtype=dtype) if isinstance(dtype, torch.dtype) else np.zeros(6, dtype)
    noise.add_to([buffer], Keystream())
    return buffer


def added_across(noise: Noise, dtype: Any) -> Any:
    buffer = torch.zeros(2, 3, dtype=dtype).t() if isinstance(dtype, torch.dtype) else np.zeros((2, 3), dtype).T
    noise.add_to([buffer], np.random.default_rng(0))
    return buffer


NUMPY, TORCH = [np.float32, np.float64], [torch.bfloat16, torch.float32, torch.float64]
PATHS = [
    *[(numpy_drawn, dtype) for dtype in NUMPY],
    *[(torch_drawn, dtype) for dtype in TORCH],
    *[(path, dtype) for path in (keystream_drawn, added, added_across) for dtype in (*NUMPY, *TORCH)],
]


@pytest.mark.parametrize("noise", ALL.values(), ids=ALL)
def test_values_beyond_1e_30_exist_on_every_path(noise: Noise, monkeypatch: pytest.MonkeyPatch) -> None:
    rig(monkeypatch)
    for path, dtype in PATHS:
        assert reaches_beyond_1e_30(noise, path(noise, dtype), dtype), (path.__name__, dtype)


def reaches_beyond_1e_30(noise: Noise, drawn: Any, dtype: Any) -> bool:
    """Of normal pairs it is the length that is beyond 1e-30."""
    values = np.asarray(drawn.double() if isinstance(drawn, torch.Tensor) else drawn, dtype=float).ravel()
    assert np.all(np.isfinite(values))
    largest = float(torch.finfo(dtype).max if isinstance(dtype, torch.dtype) else np.finfo(dtype).max)
    if isinstance(noise, Gaussian):
        return bool(np.all(np.sum((values.reshape(2, -1) / noise.sigma) ** 2, axis=0) / 2 > 0.98 * DEPTH * DEEP))
    return bool(np.all((2 * noise.cdf(values) < 1e-30) | (values < -0.99 * largest)))


@pytest.mark.parametrize("noise", ALL.values(), ids=ALL)
def test_half_precision_ends_at_its_largest_number(noise: Noise, monkeypatch: pytest.MonkeyPatch) -> None:
    """65504 is not infinity: where the noise is beyond, that much is said of the sum."""
    rig(monkeypatch)
    buffer, array = torch.zeros(6, dtype=torch.float16), np.zeros(6, np.float16)
    noise.scaled(1e5).add_to([buffer, array], Keystream())
    assert torch.all(torch.isfinite(buffer))
    assert np.all(np.isfinite(array))
    assert buffer.abs().max() > 1e4


@pytest.mark.parametrize("noise", [Laplace(1e36), Gaussian(1e37), Gaussian(1e38), GammaPLRV(3.0, 1e-38)], ids=repr)
def test_noise_wider_than_its_type_is_cut_to_the_largest_number(noise: Noise, monkeypatch: pytest.MonkeyPatch) -> None:
    rig(monkeypatch)
    assert np.all(np.isfinite(noise.sample(6, Keystream(), np.float32)))


@pytest.mark.parametrize("name", SEEDS)
def test_both_tails_of_a_seed_reach_beyond_1e_30(name: str) -> None:
    """The quantiles at e^-E/2 from below and above: cdf and survival function say so, to five digits.

    The cdf of a truncated normal variable has no digits below 1e-16; its lower quantile is checked with mpmath.
    """
    seed: Seed = SEEDS[name]
    for tail in (0.5, 1e-3, 1e-8, 1e-31):
        x = math.log(2 * tail)
        below, above = (float(seed.draw_from_tails(np.array([side]))) for side in (x, -x))
        assert 0 < below <= above < math.inf
        if "truncated" not in name and seed.cdf(0.0) == seed.cdf(1e-40) == 0.0 and name != "uniform":
            assert float(seed.cdf(below)) == pytest.approx(tail, rel=1e-5)
        if "uniform" not in name:
            assert float(seed.survival(above)) == pytest.approx(tail, rel=1e-5)


@pytest.mark.parametrize(("mean", "std", "low"), [(1.0, 0.3, 0.0), (1.0, 0.3, 0.1), (-2.0, 0.5, 0.0), (1.0, 5.0, 0.0)])
@pytest.mark.parametrize("p", [0.4, 1e-4, 1e-31])
def test_lower_quantile_of_a_truncated_normal_variable(mean: float, std: float, low: float, p: float) -> None:
    from mpmath import mp, mpf

    from plrvo.noise import TruncatedNormalSeed

    with mp.workdps(60):
        cut = (mpf(low) - mpf(mean)) / mpf(std)
        above = mp.erfc(cut / mp.sqrt(2)) / 2

        def excess(w: mpf) -> mpf:
            return 1 - mp.erfc((cut + w) / mp.sqrt(2)) / 2 / above - mpf(p)

        w = mp.findroot(excess, (mpf(0), mpf(50)), solver="anderson", tol=1e-100, maxsteps=400)
        expected = float(low + w * mpf(std))
    assert float(TruncatedNormalSeed(mean, std, low).lower_quantile(p)) == pytest.approx(expected, rel=1e-9, abs=0.0)


@pytest.mark.parametrize("noise", UNIVARIATE, ids=repr)
def test_neighbouring_words_give_neighbouring_singles(noise: Noise) -> None:
    """No gaps: the next word is at most three singles away, over the whole range to 1e-12; below 2^-52 all is one."""
    unit = float(draw(noise, SINGLE, [word(math.exp(-1.0))])[0])
    near = [1 - 2.0**-j for j in range(2, 40)]
    for u in [*near, 0.7, 0.5, 0.1, 1e-3, 2.0**-19.9]:
        one, other = (abs(draw(noise, SINGLE, [w])[0]) for w in (word(u), word(u) - 2))
        assert abs(other - one) <= max(3 * np.spacing(np.float32(one)), 2.0**-51 * unit)
    for u in () if getattr(noise, "k", 99.0) < 1 else (1 - 2.0**-30, 0.9, 0.1, 1e-6):  # k = 0.3 overflows there
        one, other = (abs(draw(noise, SINGLE, [1], [w])[0]) for w in (word(u), word(u) - 2))
        assert abs(other - one) <= 3 * np.spacing(np.float32(one)) * max(1.0, DEEP / getattr(noise, "k", 99.0))


def test_size_grows_across_the_border_to_the_tail() -> None:
    """The last word before the border, and the nearest value beyond it: 20 log 2 from both sides."""
    (before,) = draw(Laplace(1.0), DOUBLE, [word(2.0**-20)])
    (after,) = draw(Laplace(1.0), DOUBLE, [word(2.0**-20) - 2], [(1 << 63) - 1])
    assert DEEP - 1e-12 < before < after + 1e-14 < DEEP + 1e-12


def test_neighbouring_angles_give_neighbouring_normal_singles() -> None:
    """Near 0 both coordinates of a pair have all their bits: a sine of small angles on either side of the quarter."""
    for angle in (2.0**-j for j in range(1, 45)):
        for v in (angle, 1 - angle):
            pairs = [draw(Gaussian(1.0), SINGLE, [word(0.3), w]) for w in (word(v), word(v) - 2)]
            for one, other in np.array(pairs).T:
                assert abs(other - one) <= max(3 * np.spacing(np.float32(abs(one))), 2.0**-50)
