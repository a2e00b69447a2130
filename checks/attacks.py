"""Attacks on certificates: gradients of many shapes, exact profiles by Fourier transforms, 2,000 settings.

`python -m checks.attacks --out results/attacks.json` attacks every setting, in half an hour; the tests do a few. For
each setting the noise is certified at some delta, and no gradient may have a larger delta at that epsilon.

A step is the law of its loss on a lattice. One coordinate is cut into cells of the output, whose masses come from
distribution functions typed here and nothing of the accountant; a cell's loss is shared between two lattice points so
that its mean is kept. Coordinates are composed by powers of the transform, then a coin is tossed, then steps are
composed the same way. A scale that is shared is shown to the attack, rounded down. Lattices make losses a little
wider, which would help the attack where a loss has atoms: `outcome` has it pass epsilon by six deviations of what the
lattice adds. Its delta is good to about 0.2 %, and `TOLERANCE` allows for half a percent.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import fft

from plrvo import PLRV, GammaPLRV, Laplace, Ledger, UniformSeed, Workload
from plrvo.noise import Noise

TOLERANCE = 5e-3  # of delta
Array = NDArray[np.float64]
_POINTS = 1 << 17
_CELLS = 1500
_SMOOTH = 80.0  # shifts together, beyond which the atoms of the loss, of mass e^-40, need no place on a lattice
_SCALES = 16  # of a seed that is shared
# k of a Gamma seed, the half width of a uniform one, and whether the scale is shared.
_LAWS = (
    (math.inf, 0.0, False),
    (math.inf, 0.0, False),
    (4e4, 0.0, False),
    (10.0, 0.0, False),
    (1.5, 0.0, False),
    (math.inf, 0.1, False),
    (math.inf, 0.5, False),
    (math.inf, 0.1, True),
    (math.inf, 0.5, True),
)
_CLIPS = (0.1, 0.25, 0.4, 0.5, 0.7, 0.9, 1.2, 2.0, 3.0)
_SAMPLING = ((1.0, 1), (1.0, 12), (0.3, 4), (0.04, 300), (0.01, 300), (0.01, 3000), (0.001, 1000))
SHAPES = ("one", "equal", "sparse", "two-level", "geometric", "random", "adaptive")


@dataclass(frozen=True)
class Setting:
    """Noise of mean inverse scale 1 (k = inf: Laplace), a clip, sampling, a delta, and how the gradient looks.

    With k = inf and a `spread` the seed is uniform from 1 - spread to 1 + spread, for every coordinate or shared.
    """

    k: float
    clip: float
    rate: float
    steps: int
    dimension: int
    delta: float
    shape: str
    seed: int
    spread: float = 0.0
    shared: bool = False

    @property
    def noise(self) -> Noise:
        if self.spread:
            return PLRV(UniformSeed(1 - self.spread, 1 + self.spread), shared=self.shared)
        return Laplace(1.0) if self.k == math.inf else GammaPLRV(self.k, 1 / self.k)

    @property
    def workload(self) -> Workload:
        return Workload(self.rate, self.steps, self.clip, self.dimension)


@dataclass(frozen=True)
class Law:
    """Masses under the first hypothesis at losses (first + i) * step."""

    first: int
    step: float
    mass: Array

    @property
    def losses(self) -> Array:
        return self.step * (self.first + np.arange(len(self.mass)))

    def deltas(self, epsilons: Array) -> Array:
        """E (1 - e^(epsilon - L))_+ at many epsilons."""
        order = np.searchsorted(self.losses, epsilons, "right")
        above = np.append(np.cumsum(self.mass[::-1])[::-1], 0.0)
        other = np.append(np.cumsum((self.mass * np.exp(-self.losses))[::-1])[::-1], 0.0)
        return np.maximum(above[order] - np.exp(np.minimum(epsilons, 300.0)) * other[order], 0.0)


def certified(setting: Setting) -> float:
    """The epsilon that the library certifies."""
    return Ledger().plus(setting.noise, setting.workload).certified(setting.delta).value


def attacked(setting: Setting, epsilon: float, deviations: float = 0.0) -> float:
    """The largest delta at this epsilon: with the example removed or added, and adaptively if so told."""
    shifts = _gradient(setting)
    found = []
    for added in (False, True):
        law = _sampled(_release(setting, _kinds(shifts)), setting.rate, added, setting.steps, epsilon)
        spread = deviations * math.sqrt(setting.steps) * law.step / 2  # of losses, by their lattice
        if setting.shape == "adaptive" and setting.steps > 1:
            one = _sampled(_release(setting, ((setting.clip, 1),)), setting.rate, added, setting.steps, epsilon)
            found.append(_adaptive(law, one, setting.steps, epsilon + spread))
        else:
            found.append(float(_composed(law, setting.steps).deltas(np.array([epsilon + spread]))[0]))
    return max(found)


def _gradient(setting: Setting) -> Array:
    """Shifts of norm `clip` in at most `dimension` coordinates."""
    random = np.random.default_rng(setting.seed)
    n = 1 if setting.shape == "one" else setting.dimension
    few = int(random.integers(1, max(2, min(n, 12))))
    if setting.shape == "sparse":
        shifts = np.ones(few)
    elif setting.shape == "two-level":
        shifts = np.ones(n)
        shifts[:few] = random.uniform(1, 10) * math.sqrt(max(1, n / few) * random.uniform(0.1, 1))
    elif setting.shape == "geometric":
        shifts = random.uniform(0.3, 0.95) ** np.arange(min(n, 24))
    elif setting.shape == "random":
        shifts = np.abs(random.standard_normal(min(n, 24)) ** random.integers(1, 4))
    else:
        shifts = np.ones(n)
    return shifts * setting.clip / np.linalg.norm(shifts)


def _kinds(shifts: Array) -> tuple[tuple[float, int], ...]:
    sizes, counts = np.unique(np.round(shifts, 12), return_counts=True)
    return tuple((float(s), int(c)) for s, c in zip(sizes, counts, strict=True) if s > 0)


def _release(setting: Setting, kinds: tuple[tuple[float, int], ...]) -> Law:
    """One step without sampling: of independent coordinates, or of a scale that is shown, on the largest's lattice."""
    if not setting.shared:
        return _step(setting.k, setting.spread, kinds)
    low, width = 1 - setting.spread, 2 * setting.spread / _SCALES
    scales = [low + width * i for i in range(_SCALES)]
    largest = _step(setting.k, 0.0, tuple((scales[-1] * s, count) for s, count in kinds))
    mass = np.zeros(_POINTS)
    for u in scales:
        law = _step(setting.k, 0.0, tuple((u * s, count) for s, count in kinds))
        places = np.clip(law.losses / largest.step, -(_POINTS // 2) + 1, _POINTS // 2 - 2)
        mass += np.roll(_on_lattice(places, law.mass / _SCALES), _POINTS // 2)
    return Law(-(_POINTS // 2), largest.step, mass)


def _tail(k: float, spread: float, z: Array) -> Array:
    """P(noise > z) for z >= 0."""
    if spread:  # E e^(-uz) = e^-z sinh(spread z)/(spread z)
        y = spread * np.maximum(z, 1e-12)
        return np.asarray(np.exp(y - z) * -np.expm1(-2 * y) / (4 * y))
    return np.exp(-z) / 2 if k == math.inf else (1 + z / k) ** -k / 2


def _log_density(k: float, spread: float, z: Array) -> Array:
    """Up to a constant."""
    if spread:  # E u e^(-u|z|)
        nodes, weights = np.polynomial.legendre.leggauss(24)
        u = 1 + spread * nodes
        shrunk = np.exp(-np.multiply.outer(np.abs(z), u - 1 + spread)) @ (weights * u)
        return np.asarray(np.log(shrunk) - (1 - spread) * np.abs(z))
    return -np.abs(z) if k == math.inf else -(k + 1) * np.log1p(np.abs(z) / k)


def _coordinate(k: float, spread: float, s: float) -> tuple[Array, Array]:
    """Masses with the example and losses, of cells of one coordinate."""
    far = np.geomspace(1e-3, 1e5 if k < math.inf else 40.0 if spread else 1.0, _CELLS // 2)
    inside = np.linspace(0.0, s, _CELLS)
    edges = np.concatenate([-far[::-1], inside, s + far])
    middle = (edges[:-1] + edges[1:]) / 2
    middle = np.concatenate([[edges[0] * 1.5], middle, [edges[-1] * 1.5]])
    upper = np.where(
        edges >= s, _tail(k, spread, np.maximum(edges - s, 0.0)), 1 - _tail(k, spread, np.maximum(s - edges, 0.0))
    )
    mass = -np.diff(np.concatenate([[1.0], upper, [0.0]]))
    # A tail far out loses its digits as a difference from 1: from the other side.
    lower = _tail(k, spread, s - edges[edges < 0])
    mass[: len(lower)] = np.diff(np.concatenate([[0.0], lower]))
    return mass, _log_density(k, spread, middle - s) - _log_density(k, spread, middle)


@lru_cache(maxsize=64)
def _step(k: float, spread: float, kinds: tuple[tuple[float, int], ...]) -> Law:
    """All coordinates of one step without sampling."""
    score = 1 + (spread**2 / 3 if k == math.inf else 1 / k)  # the largest
    energy = sum(count * s * s for s, count in kinds) * score**2
    size = math.sqrt(energy)
    most = sum(count * s for s, count in kinds) * score
    half = 1.02 * min(most, energy / 2 + 9 * size)  # sharing moves every loss by up to a point
    step = half / (_POINTS // 2 - 2)
    spectrum = np.ones(_POINTS // 2 + 1, dtype=complex)
    u = 2 * np.pi * np.arange(_POINTS // 2 + 1) / (_POINTS * step)
    for s, count in kinds:
        if k == math.inf and not spread and count * s > _SMOOTH:
            # The transform of one coordinate is known: E e^(-iuL) with the example. So many have no atoms left.
            x = 0.5 - 1j * u
            one = np.exp(-s / 2) * (np.cosh(s * x) + np.sinh(s * x) / (2 * x))
        else:
            mass, losses = _coordinate(k, spread, s)
            one = fft.rfft(_on_lattice(losses / step, mass))
        spectrum *= one**count
    mass = np.maximum(fft.irfft(spectrum, _POINTS), 0.0)
    return Law(-(_POINTS // 2), step, np.roll(mass, _POINTS // 2))


def _on_lattice(places: Array, mass: Array) -> Array:
    below = np.floor(places)
    share = places - below
    index = below.astype(int) % _POINTS
    law = np.bincount(index, mass * (1 - share), _POINTS) + np.bincount((index + 1) % _POINTS, mass * share, _POINTS)
    return np.asarray(law)


def _sampled(law: Law, rate: float, added: bool, steps: int, epsilon: float) -> Law:
    """One step with its coin, on a lattice that holds all steps."""
    # Noise is symmetric: without the example a loss comes as often as its negative with it. Far below zero the masses
    # are those of a transform's rounding, and would be multiplied by e^-loss.
    mirrored = np.roll(law.mass[::-1], 1)
    keep = (law.mass > 1e-22) | (mirrored > 1e-22)
    losses, with_it = law.losses[keep], law.mass[keep]
    without = np.where(losses < 0, mirrored[keep], with_it * np.exp(-losses))
    total = np.log1p(rate * np.expm1(losses)) if rate < 1 else losses
    mass = without if added else (1 - rate) * without + rate * with_it
    total = -total if added else total
    mean = float(np.sum(mass * total))
    deviation = math.sqrt(float(np.sum(mass * (total - mean) ** 2)))
    reach = steps * abs(mean) + 10 * math.sqrt(steps) * deviation + float(np.abs(total).max()) + 3 * epsilon
    width = min(reach, steps * float(np.abs(total).max()) * 1.05)
    step = width / (_POINTS // 2 - 2)
    return Law(-(_POINTS // 2), step, np.roll(_on_lattice(total / step, mass), _POINTS // 2))


def _composed(law: Law, steps: int) -> Law:
    half = _POINTS // 2
    spectrum = fft.rfft(np.roll(law.mass, half)) ** steps
    return Law(-half, law.step, np.roll(np.maximum(fft.irfft(spectrum, _POINTS), 0.0), half))


def _adaptive(one: Law, other: Law, steps: int, epsilon: float) -> float:
    """Half of the steps with the first gradient, and then whichever is better for what has been seen."""
    seen = _composed(one, steps // 2)
    rests = [_composed(law, steps - steps // 2).deltas(epsilon - seen.losses) for law in (one, other)]
    return float(np.sum(seen.mass * np.maximum(*rests)))


def settings(count: int, seed: int = 0) -> Iterator[Setting]:
    """Settings drawn from lists, so that many of them share a certificate."""
    random = np.random.default_rng(seed)
    drawn = 0
    while drawn < count:
        k, spread, shared = _LAWS[int(random.integers(len(_LAWS)))]
        clip = float(random.choice(_CLIPS))
        rate, steps = _SAMPLING[int(random.integers(len(_SAMPLING)))]
        dimension = int(random.choice([1, 3, 16, 10**2, 10**4, 10**6 if k == math.inf and not spread else 10**4]))
        delta = float(random.choice([1e-5, 1e-5, 1e-3, 1e-6]))
        signal = clip * (1 + 1 / k) * (1 + spread if shared else 1)
        if signal <= 3.1 and signal * rate * math.sqrt(steps) <= 1.5:  # else epsilon is of no use
            yield Setting(k, clip, rate, steps, dimension, delta, SHAPES[drawn % len(SHAPES)], drawn, spread, shared)
            drawn += 1


def outcome(setting: Setting) -> dict[str, float]:
    """The certified epsilon and the delta of the attack there, as a share of the delta that was certified."""
    epsilon = certified(setting)
    return {"epsilon": epsilon, "share": attacked(setting, epsilon, deviations=6) / setting.delta}


def main(arguments: Sequence[str] | None = None) -> None:
    """Attack all settings, and write what came closest."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args(arguments)
    worst: dict[str, dict[str, object]] = {}
    above = 0
    for setting in settings(asked.count):
        found = outcome(setting)
        above += found["share"] > 1 + TOLERANCE
        if found["share"] > worst.get(setting.shape, {"share": -1.0})["share"]:  # type: ignore[operator]
            described = asdict(setting) | {"k": None if setting.k == math.inf else setting.k}
            worst[setting.shape] = {**found, "setting": described}
    document = {"settings": asked.count, "tolerance": TOLERANCE, "above": above, "worst": worst}
    asked.out.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
