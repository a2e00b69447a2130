"""A torch generator whose whole state comes from the operating system.

`torch.Generator.seed()` and `manual_seed` start the CPU's Mersenne twister from 32 bits: four billion possible streams,
which someone who knows the rest of a run can try one by one. Its state has 624 words of 32 bits, and `set_state` takes
all of them. Torch does not document where they stand in what `get_state` gives, so this is checked each time against
NumPy's twister, which fills its words from a seed by the same rule.
"""

from __future__ import annotations

import secrets

import numpy as np
import torch

_WORDS = slice(24, 24 + 8 * 624)  # each in eight bytes; before them the seed, and the place in the stream


def fresh_generator() -> torch.Generator:
    """A generator for noise and batches that nobody can repeat."""
    generator = torch.Generator().manual_seed(_PROBE)
    state = generator.get_state()
    words = state.numpy()[_WORDS].view(np.uint64)
    # RandomState and not Generator: the rule from seed to words is the old one, in both libraries.
    expected = np.random.RandomState(_PROBE).get_state(legacy=False)["state"]["key"]
    if words.size != 624 or not np.array_equal(words, expected):
        raise RuntimeError("this version of torch keeps its generator's state in a form that plrvo does not know")
    words[:] = np.frombuffer(secrets.token_bytes(4 * 624), dtype=np.uint32)
    generator.set_state(state)
    return generator


_PROBE = 5489
