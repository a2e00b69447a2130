"""What every noise can do. The accountant, the designer, the trainer and the auditor ask nothing else."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from plrvo.noise import sampling
from plrvo.noise.ahead import Ahead
from plrvo.noise.keystream import Keystream
from plrvo.noise.lomax import Lomax
from plrvo.noise.parameter import Parameter
from plrvo.noise.rounding import Reals
from plrvo.noise.sampling import Generator, Shape
from plrvo.noise.seeds import Seed
from plrvo.noise.spans import MakeKernel

Array = NDArray[np.float64]


class Noise(ABC):
    """Symmetric noise added to every coordinate of a clipped sum of gradients.

    One-coordinate functions (`log_density`, `cdf`, `score`, `log_moment`) describe a single coordinate. What depends on
    all of them together (`log_joint_moment`, `pure_loss`) takes the l2 clip and the dimension.
    """

    kind: ClassVar[str]
    parameters: ClassVar[tuple[Parameter, ...]] = ()  # its options on the command line; none: a file describes it

    shared: bool = False  # one random scale for all coordinates of a step
    seed: Seed | None = None  # the law of the random inverse scale; None where the scale is not random
    cell: float = 0.0  # noise and gradients are multiples of this; 0 where they are continuous
    worst_in_l1_is_one_hot: ClassVar[bool] = False  # whether an l1 clip may be accounted as an l2 clip in one dimension

    @property
    def before_rounding(self) -> Noise:
        """The continuous noise whose post-processing this is; itself, unless it lives on a grid."""
        return self

    @property
    def gaussian_sigma(self) -> float | None:
        """The standard deviation of a normal law, which has more exact curves than others; None for any other law."""
        return None

    @property
    def lomax(self) -> tuple[Lomax, float] | None:
        """The shape and the unit of two-sided Lomax (or Laplace) coordinates, which have profiles; None for others."""
        return None

    @property
    def laplace_scale(self) -> float | None:
        """b such that Laplace noise of scale b shows any shift of a coordinate at least as well as this noise does.

        At every level of the likelihood ratio, and with independent coordinates (theory, section 13). None where that
        is not proved.
        """
        return None

    def in_units(self) -> tuple[Noise, float]:
        """This shape at width 1, and the width: a shift by x is to this noise what x/width is to that one.

        Itself and 1 where the two cannot be told apart without rounding.
        """
        return self, 1.0

    def exact_sampler(self, cell: float) -> Reals | None:
        """This noise in units of `cell`, as a function of random bits that rounds exactly; None where there is none."""
        return None

    def sensitivity(self, clip: float, dimension: int) -> float:
        """The l2 norm of a clipped gradient as it enters the sum: longer than the clip if it is rounded to a grid."""
        return clip

    @property
    def largest_order(self) -> int:
        """The moment order beyond which nothing is searched; smaller where a moment is costly to compute."""
        return 1 << 17

    def sample(self, shape: Shape, generator: Generator, dtype: Any = None) -> Any:
        """A fresh draw: an ndarray for a `numpy.random.Generator`, a tensor for a `torch.Generator`.

        `dtype` is float32 or float64 of NumPy, or a floating-point type of torch; the default is NumPy's float64 and
        torch's default type. A `Keystream` gives a tensor if `dtype` is torch's, and an ndarray otherwise.
        """
        return sampling.sample(self.kernels, shape, generator, dtype)

    def add_to(self, buffers: Sequence[Any], generator: Generator, begun: Ahead | None = None) -> None:
        """Add one fresh draw to arrays or tensors in place: a shared scale is shared by all of them.

        One that `begin` has begun for tensors like these is taken, instead of another.
        """
        sampling.add(self.kernels, buffers, generator, begun=begun)

    def begin(self, buffers: Sequence[Any], generator: Generator) -> Ahead | None:
        """Begin a draw for tensors of the types and sizes of these; None where no core has nothing to do (`ahead`)."""
        is_drawn_otherwise = type(self).add_to is not Noise.add_to  # integers, or noise of a user's own
        return None if is_drawn_otherwise else sampling.begin(self.kernels, buffers, generator)

    def add_parts_to(self, buffers: Sequence[Any], parts: Sequence[tuple[int, int]], generator: Generator) -> None:
        """Add this process's part of one draw that several make together, from generators in the same state.

        Each buffer is a stretch of an array, of which `parts` gives where it starts and how long the array is. It gets
        what `add_to` would add there: a shared scale is shared by all processes, and no number is drawn for two places.
        """
        sampling.add(self.kernels, buffers, generator, parts)

    def kernels(self, keystream: Keystream) -> MakeKernel:
        """How one draw is made of random words; what all of its values share comes from the keystream first."""
        raise NotImplementedError(f"{self.kind} noise is not drawn in floating point")

    @abstractmethod
    def log_density(self, z: ArrayLike) -> Array:
        """log p(z), elementwise."""

    @abstractmethod
    def cdf(self, z: ArrayLike) -> Array:
        """The probability of at most z, elementwise."""

    @abstractmethod
    def score(self, z: Any) -> Any:
        """-p'(z)/p(z), elementwise on an ndarray or a tensor."""

    @property
    @abstractmethod
    def distortion(self) -> float:
        """E|z|, `inf` where it diverges."""

    @property
    @abstractmethod
    def variance(self) -> float:
        """E z^2, `inf` where it diverges."""

    @abstractmethod
    def fisher_information(self, dimension: int = 1) -> float:
        """Information about a shift of one coordinate, out of `dimension` (which matters for a shared scale only)."""

    @abstractmethod
    def log_moment(self, x: ArrayLike, eta: ArrayLike) -> Array:
        """h = log F(x, eta), F = integral p(z-x)^eta p(z)^(1-eta) dz, exact up to rounding; 0 at eta = 0 and 1."""

    def log_moment_scale_revealed(self, x: ArrayLike, eta: ArrayLike) -> Array | None:
        """log G(x, eta) >= log F(x, eta): the random scale is shown too. None where there is none to show."""
        return None

    @abstractmethod
    def log_joint_moment(self, clip: float, dimension: int, eta: Array, tail: float = 0.0) -> Array:
        """An upper bound on log of the supremum, over gradients g with norm at most `clip`, of prod_i F(|g_i|, eta).

        A shared scale u is averaged outside the product, over u up to its (1 - tail) quantile: who uses that charges
        `tail` per step to delta. Noises without a shared scale ignore `tail`. Integer eta >= 0.
        """

    @property
    def moment_margin(self) -> float:
        """What `log_joint_moment` may err by, relative: 2^-49 for a closed form, the rounding of a dozen operations."""
        return 2.0**-49

    def log_stream_moment(self, clip: float, dimension: int, eta: Array, tail: float = 0.0) -> Array:
        """As `log_joint_moment`, for shifts of total norm `clip` over any number of draws of `dimension` coordinates.

        For a scale that is shared by the coordinates of a draw. Without one, all draws together are one of a larger
        dimension, and `log_joint_moment` is the better question.
        """
        raise NotImplementedError(f"{self.kind} noise has no scale that a draw shares")

    @abstractmethod
    def pure_loss(self, clip: float, dimension: int) -> float:
        """The supremum of the log likelihood ratio over outputs and clipped gradients; `inf` where unbounded."""

    @property
    def pure_loss_margin(self) -> float:
        """What `pure_loss` may err by, relative: 2^-49 for a closed form, the rounding of a dozen operations."""
        return 2.0**-49

    @abstractmethod
    def scaled(self, factor: float) -> Self:
        """The same shape, `factor` times wider."""

    def options(self, clip: float) -> dict[str, Any]:
        """The options that describe this noise beside a clip (`plrvo.noise.Specification`)."""
        return {p.option: p.written(self, clip) for p in self.parameters}

    def to_dict(self) -> dict[str, Any]:
        """A plain description that `plrvo.noise.noise_from_dict` turns back into an equal object."""
        return {"noise": self.kind, **asdict(self)}  # type: ignore[call-overload]
