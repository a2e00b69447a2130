"""Generators from the operating system have more than the 32 bits that torch takes from a seed."""

import numpy as np
import torch

from plrvo.tasks.experiment import Streams
from plrvo.training.randomness import fresh_generator


def words(generator: torch.Generator) -> np.ndarray:
    return generator.get_state().numpy()[24 : 24 + 8 * 624].view(np.uint64).copy()


def test_torch_takes_32_bits_of_a_seed() -> None:
    """The reason for this module: should torch ever take all 64, it can go."""
    draws = [torch.rand(4, generator=torch.Generator().manual_seed(seed)) for seed in (5, 5 + (1 << 32))]
    assert torch.equal(*draws)


def test_the_state_is_one_that_no_seed_gives() -> None:
    """From a seed, word 1 is a function of word 0 (Knuth's multiplier): not so here, but with probability 2^-32."""
    for generator in (fresh_generator(), *vars(Streams.from_seed(None)).values()):
        first, second = (int(word) for word in words(generator)[:2])
        assert second != (1812433253 * (first ^ (first >> 30)) + 1) % (1 << 32)


def test_no_two_generators_agree() -> None:
    states = [words(fresh_generator()) for _ in range(3)]
    # Each word agrees with probability 2^-32.
    assert all(np.mean(a == b) < 0.01 for a in states for b in states if a is not b)


def test_draws_are_those_of_a_twister_with_these_words() -> None:
    """The state is really used from its first word on: NumPy's twister continues it with the same numbers."""
    generator = fresh_generator()
    twin = np.random.MT19937()
    twin.state = {"bit_generator": "MT19937", "state": {"key": words(generator).astype(np.uint32), "pos": 624}}
    ours = torch.randint(0, 1 << 31, (700,), generator=generator).numpy()
    # Torch joins two words into 64 bits, of which the low 31 are left here.
    assert np.array_equal(ours, twin.random_raw(1400)[1::2] % (1 << 31))


def test_seeded_streams_stay_what_they_were() -> None:
    streams = Streams.from_seed(0)
    expected = [int(word >> np.uint64(1)) for word in np.random.SeedSequence(0).generate_state(3, np.uint64)]
    assert [g.initial_seed() for g in vars(streams).values()] == expected
