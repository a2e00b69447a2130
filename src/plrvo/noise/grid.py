"""Noise on an integer grid: exact, and accounted as the continuous noise that it is rounded from.

A gradient on a grid of width gamma plus continuous noise X, rounded to the grid, is the gradient plus round(X): the
integers that are released are a function of what the continuous mechanism would release (post-processing). So every
bound for the continuous noise holds, at every order, for loss distributions and for the pure loss; only the gradients
are longer, since each is rounded to the grid before it is summed:

    ||round(g)||_2 <= ||g||_2 + gamma sqrt(n)/2.

The noises that are discrete by definition (proportional to exp(-z^2/2 sigma^2) or exp(-|z|/b) at the integers) need
proofs of their own, and lose those that rest on the continuous law: a Gaussian's loss distribution, the saving of
Laplace noise in few dimensions. On a grid a millionth of the noise wide there is nothing else to tell them apart.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from plrvo import validate
from plrvo.noise.ahead import Ahead
from plrvo.noise.base import Array, Noise
from plrvo.noise.integers import add_integers
from plrvo.noise.keystream import Keystream
from plrvo.noise.rounding import Reals
from plrvo.noise.sampling import Shape, flat_integers, loaded_torch
from plrvo.validate import InvalidArgument

FINEST = 2.0**32  # cells in the width of the noise: beyond, too many draws would need more than a double


@dataclass(frozen=True)
class GridNoise(Noise):
    """`base` noise rounded to multiples of `cell`; `base` is one that has an exact sampler.

    `sample` and `add_to` take a `Keystream`; `add_to` adds integers, numbers of cells, to arrays of 64-bit integers.
    Densities, moments and scores are those of `base`, and bound or approximate those of the rounded noise.

    >>> from plrvo import Laplace
    >>> noise = GridNoise(Laplace(b=1.0), cell=0.25)
    >>> round(noise.sensitivity(clip=1.0, dimension=16), 9)
    1.5
    >>> noise.integers(5, Keystream(bytes(32)))  # a fixed key is for tests
    array([ 3, -9,  3, -2, -3])
    """

    base: Noise
    cell: float
    kind: ClassVar[str] = "grid"

    def __post_init__(self) -> None:
        validate.positive(cell=self.cell)
        noise: object = self.base
        if not isinstance(noise, Noise) or noise.exact_sampler(self.cell) is None:
            raise InvalidArgument(
                "noise",
                self.base,
                "one that has an exact sampler, such as gaussian, laplace or gamma that is not shared",
            )
        if not 1e-150 <= self.width <= 1e150:
            raise InvalidArgument("noise", self.base, "a width between 1e-150 and 1e150: clip and noise in other units")
        if self.width / self.cell > FINEST:
            raise InvalidArgument("grid", self.cell, f"at least {self.width / FINEST:.3g}, 2^-32 of the noise's width")

    @property
    def width(self) -> float:
        """1/sqrt(I) of the continuous noise: its standard deviation if Gaussian, its scale if Laplace."""
        information = self.base.fisher_information()
        return 1 / math.sqrt(information) if information else math.inf

    @cached_property
    def reals(self) -> Reals:
        """The continuous noise in cells, as a function of random words."""
        sampler = self.base.exact_sampler(self.cell)
        assert sampler is not None  # noqa: S101  (__post_init__ refuses others)
        return sampler

    def integers(self, shape: Shape, keystream: Keystream) -> NDArray[np.int64]:
        """A fresh draw in cells."""
        out = np.zeros(shape, np.int64)
        add_integers([out.reshape(-1)], self.reals, _keystream(keystream))
        return out

    def sample(self, shape: Shape, generator: Any, dtype: Any = None) -> Any:
        """A fresh draw as floating-point multiples of the cell (an ndarray): for looking at, not for adding to sums."""
        return (self.integers(shape, generator) * self.cell).astype(dtype or np.float64, copy=False)

    def add_to(self, buffers: Sequence[Any], generator: Any, begun: Ahead | None = None) -> None:
        """Add one fresh draw, in cells, to arrays or tensors of 64-bit integers in place."""
        views = [flat_integers(buffer) for buffer in buffers]
        add_integers([view for view, _ in views], self.reals, _keystream(generator))
        for buffer, (view, in_place) in zip(buffers, views, strict=True):
            if not in_place:
                buffer.copy_(loaded_torch().from_numpy(view).view(buffer.shape))

    @property
    def before_rounding(self) -> Noise:
        return self.base

    def sensitivity(self, clip: float, dimension: int) -> float:
        """C + gamma sqrt(n)/2, rounded up."""
        return math.nextafter((clip + self.cell * math.sqrt(dimension) / 2) * (1 + 2.0**-50), math.inf)

    @property
    def largest_order(self) -> int:
        return self.base.largest_order

    def log_density(self, z: ArrayLike) -> Array:
        return self.base.log_density(z)

    def cdf(self, z: ArrayLike) -> Array:
        """That of `base`; at the borders between cells, odd multiples of half a cell, also the rounded noise's."""
        return self.base.cdf(z)

    def score(self, z: Any) -> Any:
        return self.base.score(z)

    @property
    def distortion(self) -> float:
        """That of `base`, from which it differs by half a cell at most."""
        return self.base.distortion

    @property
    def variance(self) -> float:
        return self.base.variance

    def fisher_information(self, dimension: int = 1) -> float:
        return self.base.fisher_information(dimension)

    def log_moment(self, x: ArrayLike, eta: ArrayLike) -> Array:
        """An upper bound for shifts of whole cells: the continuous noise's."""
        return self.base.log_moment(x, eta)

    def log_moment_scale_revealed(self, x: ArrayLike, eta: ArrayLike) -> Array | None:
        return self.base.log_moment_scale_revealed(x, eta)

    def log_joint_moment(self, clip: float, dimension: int, eta: Array, tail: float = 0.0) -> Array:
        return self.base.log_joint_moment(self.sensitivity(clip, dimension), dimension, eta, tail)

    @property
    def moment_margin(self) -> float:
        return self.base.moment_margin

    def pure_loss(self, clip: float, dimension: int) -> float:
        return self.base.pure_loss(self.sensitivity(clip, dimension), dimension)

    def scaled(self, factor: float) -> Self:
        """Noise and grid together."""
        return replace(self, base=self.base.scaled(factor), cell=self.cell * factor)

    def to_dict(self) -> dict[str, Any]:
        return {"noise": self.kind, "base": self.base.to_dict(), "cell": self.cell}


def _keystream(generator: Any) -> Keystream:
    if not isinstance(generator, Keystream):
        raise InvalidArgument("generator", type(generator).__name__, "a plrvo.noise.Keystream: exact noise needs one")
    return generator
