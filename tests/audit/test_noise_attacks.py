"""What breaks noise that is drawn badly, and does not break ours: a cut tail, and a generator that can be predicted."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from plrvo.audit.noise_attacks import (
    LARGEST_OF_24_BITS,
    TWISTER_BITS,
    predicted_signs,
    shortest_recurrence,
    tail_draws,
    tail_probabilities,
)
from plrvo.noise import GammaPLRV, Gaussian, Keystream, Laplace, Noise

SIGMA, CLIP = 0.5, 1.0
THRESHOLD = SIGMA * LARGEST_OF_24_BITS * (1 + 1e-5)  # 2.8841


def with_randn(generator: torch.Generator):
    """The engine as it should not be: single-precision normal noise of torch."""

    def release(present: bool, runs: int) -> np.ndarray:
        sums = torch.full((runs,), CLIP if present else 0.0)
        return (sums + SIGMA * torch.randn(runs, generator=generator)).numpy()

    return release


def test_cut_tails_give_the_example_away() -> None:
    """P(N > (2.8841 - 1)/.5) = 8.2e-5: 821 of 10 million are expected beyond with the example, 0.04 without.

    torch has none without, ever. The count with it lies within six standard errors (29): false alarm 2e-9.
    """
    expected = 1e7 * stats.norm.sf((THRESHOLD - CLIP) / SIGMA)
    release = with_randn(torch.Generator().manual_seed(1))
    present, absent = (
        sum(int((release(given, 1_000_000) > THRESHOLD).sum()) for _ in range(10)) for given in (True, False)
    )
    assert expected == pytest.approx(821, abs=2)
    assert abs(present - expected) < 6 * math.sqrt(expected)
    assert absent == 0


def test_the_broken_sampler_cannot_pass_the_threshold() -> None:
    """The largest value of randn's formula at its smallest uniform, in the precision it is computed in."""
    smallest = torch.tensor(2.0**-24)
    assert float(SIGMA * torch.sqrt(-2 * torch.log(smallest))) < THRESHOLD


def test_our_tails_pass_the_threshold_as_often_as_they_should() -> None:
    """Given that the length of a pair is beyond sqrt(40 log 2) = 5.27, which 2^-20 of them are: 4 in 1000 values.

    Of 2 million, within six standard errors of the mean (the two of a pair are never both beyond): false alarm 2e-9.
    """
    z = tail_draws(Gaussian(SIGMA), 2_000_000, Keystream.from_seed(1, "tail attack"))
    chance = stats.norm.sf(THRESHOLD / SIGMA) * 2**20
    expected = len(z) * chance
    assert 8000 < expected < 9000
    assert abs(np.count_nonzero(z > THRESHOLD) - expected) < 6 * math.sqrt(expected)


@pytest.mark.parametrize("noise", [Gaussian(0.5), Laplace(0.5), GammaPLRV(3.0, 0.5), GammaPLRV(100.0, 0.01)], ids=repr)
def test_tail_probabilities_are_uniform_for_us(noise: Noise) -> None:
    """False alarm 1e-6."""
    for depth in (1, 3, 5):
        uniform = tail_probabilities(noise, 20_000, Keystream.from_seed(depth, "tail law"), depth)
        assert stats.kstest(uniform, "uniform").pvalue > 1e-6


def test_the_shortest_recurrence_of_known_sequences() -> None:
    fibonacci = [0, 1]
    while len(fibonacci) < 60:
        fibonacci.append((fibonacci[-1] + fibonacci[-2]) % 2)
    found = shortest_recurrence(fibonacci[:40])
    assert (found.length, found.taps) == (2, 0b111)
    assert found.continued(fibonacci[:40], 20) == fibonacci[40:]
    assert shortest_recurrence([0] * 10).length == 0
    assert shortest_recurrence([0] * 9 + [1]).length == 10


SEEN, LATER, STRIDE = 40_200, 64, 16  # a few more than twice the bits of a twister's state


class BrokenEngine:
    """Adds torch's noise to the gradient of an embedding that no example uses, and takes a step."""

    def __init__(self, seed: int) -> None:
        self.weights, self._generator = torch.zeros(0), torch.Generator().manual_seed(seed)

    def step(self, count: int) -> np.ndarray:
        """What the weights before and after tell of the noise."""
        before = torch.full((count,), 0.25)
        after = before - 0.1 * torch.randn(count, generator=self._generator)
        return ((before - after) / 0.1).numpy()


def test_a_twister_is_predicted_from_the_signs_of_one_step() -> None:
    """All of 1024 signs of the next step, of which a guess would have half: chance 2^-1024."""
    engine = BrokenEngine(seed=7)
    recurrence, guessed = predicted_signs(engine.step(SEEN * STRIDE), LATER * STRIDE)
    assert recurrence.length == TWISTER_BITS
    assert np.array_equal(np.signbit(engine.step(LATER * STRIDE)), guessed)


@pytest.mark.parametrize("source", ["keystream", "seeded keystream", "torch", "numpy"])
@pytest.mark.parametrize("noise", [Gaussian(1.0), Laplace(1.0), GammaPLRV(3.0, 0.5)], ids=repr)
def test_our_noise_has_no_short_recurrence(noise: Noise, source: str) -> None:
    """Length within 30 of half the number of signs (false alarm 2^-58); of 1024 guesses, half within six standard
    errors (2e-9). The generators that give a key are twisters or worse, and do not show through it.
    """
    generator = {
        "keystream": Keystream(),
        "seeded keystream": Keystream.from_seed(3, "signs"),
        "torch": torch.Generator().manual_seed(3),
        "numpy": np.random.Generator(np.random.MT19937(3)),
    }[source]
    dtype = torch.float32 if source == "torch" else np.float32
    seen = np.asarray(noise.sample(SEEN * STRIDE, generator, dtype))
    recurrence, guessed = predicted_signs(seen, LATER * STRIDE)
    assert abs(recurrence.length - SEEN / 2) < 30
    later = np.signbit(np.asarray(noise.sample(LATER * STRIDE, generator, dtype)))
    assert abs(np.count_nonzero(later == guessed) - 512) < 6 * 16
