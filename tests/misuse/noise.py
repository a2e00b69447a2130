"""A. Noise that is what the proof says."""

from __future__ import annotations

import copy
import os
import pickle
from typing import Any

import numpy as np
import torch
from tests.misuse.row import ANY, Section
from tests.misuse.setting import Private, data, mlp
from torch.nn import functional
from torch.utils.data import DataLoader

import plrvo
from plrvo.audit.noise_attacks import tail_draws
from plrvo.noise import Keystream
from plrvo.validate import InvalidArgument

A = Section("A. Noise")
NOISES = (plrvo.Gaussian(1.0), plrvo.Laplace(1.0), plrvo.GammaPLRV(1000.0, 1e-3))


@A.row("wait for outputs that float32 noise of 24 bits cannot reach", "they come: tails go on beyond 1e-30", modes=ANY)
def tails(mode: str) -> None:
    """Given five times 20 leading zeros, exponents are beyond 100 log 2."""
    for noise in NOISES:
        z = np.abs(tail_draws(noise, 4096, Keystream(bytes(32)), depth=5).astype(np.float64))
        pairs = isinstance(noise, plrvo.Gaussian)  # whose length is in the tail, not each of the two
        size = np.hypot(*z.reshape(2, -1)) if pairs else z
        beyond = np.exp(-(size**2) / 2) if pairs else 2 * noise.cdf(-size)
        assert beyond.max() < 2.0**-99


@A.row("draw gamma noise with k = 1e44 in float32", "it has its law: nothing underflows on the way", modes=ANY)
def large_k(mode: str) -> None:
    noise = plrvo.GammaPLRV(1e44, 3e-39)
    z = np.abs(noise.sample(100_000, Keystream(bytes(32)), np.float32).astype(np.float64))
    assert abs(z.mean() / noise.distortion - 1) < 0.02  # six standard errors
    assert len(np.unique(z)) > 99_000


@A.row("predict the noise from a generator's earlier outputs", "unseeded runs draw from a cipher's keystream")
def predictable(mode: str) -> None:
    run = Private(mode)
    work = run.engine.plan.workload
    engine = plrvo.PrivacyEngine(plrvo.Plan.certify(plrvo.Gaussian(1.0), work, 1e-4), exact=mode == "exact")
    module = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))
    _, optimizer, _ = engine.make_private(
        module=module,
        optimizer=torch.optim.SGD(module.parameters(), lr=0.1),
        data_loader=torch.utils.data.DataLoader(data()),
    )
    assert isinstance(optimizer.generator, Keystream)
    assert not optimizer.generator.fixed
    assert isinstance(engine.sampler.generator, Keystream)
    assert not engine.seeded


@A.row(
    "fork a process that holds a generator", "its noise is its own: parent and children take different keys", modes=ANY
)
def forked(mode: str) -> None:
    from plrvo.audit.checkup import _forks

    assert hasattr(os, "fork")
    (check,) = _forks()
    assert check.passed


@A.row(
    "copy or pickle a keystream, to draw the same noise twice",
    "refused",
    modes=ANY,
    error=TypeError,
    match="not pickled",
)
def copied(mode: str) -> None:
    copy.deepcopy(Keystream())


@A.row("send a keystream to another process by pickle", "refused", modes=ANY, error=TypeError, match="not pickled")
def pickled(mode: str) -> None:
    pickle.dumps(Keystream())


@A.row(
    "pass a seeded generator",
    "taken, and the run says that it is not private: `engine.seeded`, receipt, terminal",
    modes=ANY,
)
def seeded(mode: str) -> None:
    run, other = Private("bookkeeping"), mlp()
    assert run.engine.seeded
    optimizer = torch.optim.SGD(other.parameters(), lr=0.1)
    run.engine.make_private(module=other, optimizer=optimizer, data_loader=DataLoader(data()))
    assert run.engine.seeded  # whatever else it trains without a seed


@A.row("pass a torch generator in exact mode", "refused: its bits can be predicted", modes=ANY, error=InvalidArgument,
       match="Keystream")  # fmt: skip
def twister_in_exact(mode: str) -> None:
    from plrvo.training.randomness import generator_for

    generator_for(True, torch.Generator(), "noise_generator")


def _added(dtype: torch.dtype, make: Any) -> Any:
    def attempt(mode: str) -> None:
        for noise in NOISES:
            buffer = make(dtype)
            noise.add_to([buffer], Keystream(bytes(32)))
            assert bool(torch.isfinite(buffer).all())
            assert float((buffer == 0).double().mean()) < 0.05  # every element got its noise

    return attempt


for _name, _dtype, _make in (
    ("bfloat16", torch.bfloat16, lambda d: torch.zeros(4096, dtype=d)),
    ("float16", torch.float16, lambda d: torch.zeros(4096, dtype=d)),
    ("float64", torch.float64, lambda d: torch.zeros(4096, dtype=d)),
    ("a tensor that is not contiguous", torch.float32, lambda d: torch.zeros(64, 64, dtype=d).t()[::2]),
):
    A.row(f"add noise to {_name}", "every element gets it, rounded once", modes=ANY)(_added(_dtype, _make))


@A.row("take the noise of an empty batch for granted", "an empty batch releases noise like any other")
def empty(mode: str) -> None:
    run = Private(mode, noise=plrvo.Laplace(1.0))
    x, y = (t[:0] for t in data().tensors)
    out = run.released(x, y, loss=functional.cross_entropy)
    assert float(out.abs().mean()) > 0.5
