"""D. Numbers that are upper bounds."""

from __future__ import annotations

import json
import math
from typing import Any

from tests.misuse.row import ANY, Section

import plrvo
from plrvo.accounting.correlated import Banded, Correlation, Participation
from plrvo.accounting.gaussian_curve import gaussian_epsilon
from plrvo.validate import InvalidArgument

D = Section("D. Numbers")
WORK = plrvo.Workload(sample_rate=0.01, steps=300, clip=1.0, dimension=64)
LAPLACE = plrvo.Ledger().plus(plrvo.Laplace(1.0), WORK)


def _narrow(seed: Any) -> Any:
    def attempt(mode: str) -> None:
        found = plrvo.epsilon(plrvo.PLRV(seed), WORK, 1e-5)
        assert found.lower <= found.certified
        # By any method, and by moments, which is what other seeds than Gamma's have.
        assert LAPLACE.certified(1e-5).value * (1 - 1e-6) <= found.certified <= LAPLACE.quick(1e-5).value * 1.02

    return attempt


for _name, _seed in (
    ("a truncated normal seed a hundred-millionth wide", plrvo.TruncatedNormalSeed(1.0, 1e-8)),
    ("a uniform seed a hundred-millionth wide", plrvo.UniformSeed(1.0 - 1e-8, 1.0 + 1e-8)),
    ("a Gamma seed with k = 1e12", plrvo.GammaSeed(1e12, 1e-12)),
):
    D.row(f"use {_name}, which is Laplace noise", "certified as Laplace noise, never below it", modes=ANY)(
        _narrow(_seed)
    )


@D.row("use a normal seed cut 1e9 widths out, its scale shared", "certified as its exponential twin", modes=ANY)
def far_cut(mode: str) -> None:
    work = plrvo.Workload(sample_rate=1.0, steps=1, clip=1e8, dimension=1)
    cut, twin = (
        plrvo.epsilon(plrvo.PLRV(seed, shared=True), work, 1e-5)
        for seed in (plrvo.TruncatedNormalSeed(-1e9, 1.0), plrvo.ExponentialSeed(1e-9))
    )
    assert abs(cut.certified / twin.certified - 1) < 1e-8


@D.row("correlate noise by a hundred thousand coefficients too small to be seen beside the first",
       "they are counted: the sensitivity is rounded up", modes=ANY)  # fmt: skip
def small_coefficients(mode: str) -> None:
    n, small = 10**5, 1e-7
    strategy = Banded((1.0,) + (small,) * (n - 1))
    found = Correlation(strategy, Participation(steps_per_epoch=n)).sensitivity(n).value
    assert found**2 - 1 >= (n - 1) * small**2 > 1e-10


@D.row("measure clip and noise in units in which squares underflow", "refused, in words", modes=ANY,
       error=InvalidArgument, match="other units")  # fmt: skip
def units(mode: str) -> None:
    plrvo.epsilon(plrvo.PLRV(plrvo.ExponentialSeed(1e-170)), plrvo.Workload(1.0, 1, 1e166, 4), 1e-5)


@D.row("ask for Gaussian noise, everybody in every batch, at delta 1e-12", "the exact curve, from above", modes=ANY)
def full_batches(mode: str) -> None:
    work = plrvo.Workload(sample_rate=1.0, steps=100_000, clip=1.0, dimension=10)
    found = plrvo.epsilon(plrvo.Gaussian(20.0), work, 1e-12).certified
    assert found >= gaussian_epsilon(math.sqrt(100_000) / 20.0, 1e-12) * (1 - 1e-12)


@D.row(
    "ask for a delta below the rounding of loss distributions", "no negative and no zero epsilon comes out", modes=ANY
)
def tiny_delta(mode: str) -> None:
    work = plrvo.Workload(sample_rate=0.01, steps=1000, clip=1.0, dimension=10)
    values = [plrvo.epsilon(plrvo.Gaussian(1.0), work, delta).certified for delta in (1e-5, 1e-13, 1e-30, 1e-100)]
    assert values == sorted(values)
    assert values[0] > 0


@D.row("give the ledger one entry for each of 4,000 equal steps", "they are one entry, in a moment", modes=ANY)
def many_entries(mode: str) -> None:
    one = plrvo.Workload(sample_rate=0.01, steps=1, clip=1.0, dimension=64)
    entries = plrvo.Ledger().plus(plrvo.Laplace(1.0), one).to_list() * 4000
    ledger = plrvo.Ledger.from_list(entries)
    assert len(ledger.entries) == 1
    assert ledger.steps == 4000


def _refused(**change: Any) -> Any:
    def attempt(mode: str) -> None:
        plrvo.Workload(**{"sample_rate": 0.01, "steps": 1, "clip": 1.0, "dimension": 64, **change})

    return attempt


for _name, _value, _text in (
    ("clip", math.nan, "nan"),
    ("clip", 0.0, "0.0"),
    ("sample_rate", 1.5, "1.5"),
    ("steps", 0, "0"),
    ("dimension", -1, "-1"),
    ("steps", 10**400, "a number of 400 digits"),
    ("dimension", 2**63, "2**63"),
):
    D.row(f"plan with {_name} = {_text}", "refused", modes=ANY, error=InvalidArgument, match=_name)(
        _refused(**{_name: _value})
    )


@D.row("add to a seed a part 1e16 times as large that comes once in 1e23 draws",
       "refused: its law is finer than what is integrated", modes=ANY, error=InvalidArgument,
       match="100 times that of their sum")  # fmt: skip
def rare_part(mode: str) -> None:
    plrvo.PLRV(plrvo.SumSeed((1.0, 1.0), (plrvo.GammaSeed(1.0, 1.0), plrvo.GammaSeed(1e-23, 1e16))))


@D.row("use a Weibull seed of shape 0.05", "refused: shapes go down to 0.2", modes=ANY, error=InvalidArgument,
       match="at least 0.2")  # fmt: skip
def heavy_weibull(mode: str) -> None:
    plrvo.WeibullSeed(0.05, 1.0)


@D.row("use generalised Gaussian noise so wide that its largest loss is no double",
       "certified: that loss is the smallest double, not zero", modes=ANY)  # fmt: skip
def wide_noise(mode: str) -> None:
    work = plrvo.Workload(sample_rate=1.0, steps=1, clip=1e-140, dimension=64)
    noise = plrvo.GeneralisedGaussian(1.0, 1e200)
    assert noise.pure_loss(work.clip, work.dimension) > 0
    assert plrvo.epsilon(noise, work, 1e-5).certified >= 0


@D.row("edit the epsilon in a plan's file", "refused: it is computed again when the plan is read", modes=ANY,
       error=InvalidArgument, match="certified epsilon of at least")  # fmt: skip
def edited_plan(mode: str) -> None:
    plan = plrvo.Plan.certify(plrvo.Laplace(1.0), WORK, 1e-5).to_dict()
    plrvo.Plan.from_dict(json.loads(json.dumps({**plan, "epsilon_certified": 0.1})))
