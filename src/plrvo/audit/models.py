"""Models whose clipped per-example gradients have a closed form, many copies at a time.

A layer that maps (x, 1) to outputs with error r has the gradient (x, 1) r' of norm sqrt(|x|^2 + 1) |r|: the norm of
every example's gradient is known before any gradient is formed. So an ensemble forms nothing but clipped sums. The
parameters of M models are the rows of one (M, dimension) tensor.
"""

from __future__ import annotations

import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from plrvo.validate import InvalidArgument

ModelKind = Literal["lr", "fnn"]
Weigh = Callable[[Tensor], Tensor]
_BUFFER = 1 << 22  # bytes of gathered examples at a time, which stay in cache


class Examples:
    """The data of one world: features with a constant one beside them, labels, and squared norms."""

    def __init__(self, x: NDArray[np.float32], y: NDArray[np.int64], dtype: torch.dtype = torch.float32) -> None:
        self.x = torch.cat([torch.tensor(x, dtype=dtype), torch.ones(len(x), 1, dtype=dtype)], dim=1)
        self.y = torch.tensor(y)
        self.squared_norms = self.x.square().sum(dim=1)

    def __len__(self) -> int:
        return len(self.x)


class EnsembleModel(ABC):
    """What the ensemble asks of a model."""

    dimension: int

    def initial(self, models: int, dtype: torch.dtype = torch.float32) -> Tensor:
        """The starting parameters, the same for all models: the attacker knows them."""
        return torch.zeros(models, self.dimension, dtype=dtype)

    @abstractmethod
    def clipped_sums(
        self, parameters: Tensor, data: Examples, rate: float, clip: float | None, generator: np.random.Generator
    ) -> Tensor:
        """For each model, draw its own Poisson batch and sum the clipped gradients over it, shape (M, dimension)."""

    @abstractmethod
    def logits(self, parameters: Tensor, x: Tensor) -> Tensor:
        """Outputs of every model at one point (without the constant), shape (M, classes)."""


def make_model(kind: ModelKind, features: int, classes: int, hidden: int = 32) -> EnsembleModel:
    """`lr`, logistic regression, or `fnn`, one hidden layer of rectified units.

    >>> make_model("lr", 784, 2).dimension, make_model("fnn", 784, 2).dimension
    (1570, 25186)
    """
    if kind == "lr":
        return BinaryLogistic(features) if classes == 2 else Logistic(features, classes)
    if kind == "fnn":
        return TwoLayer(features, hidden, classes)
    raise InvalidArgument("model", kind, "lr or fnn")


def successes(trials: int, rate: float, generator: np.random.Generator) -> NDArray[np.int64]:
    """The places of the successes among so many Bernoulli trials, by the geometric gaps between them.

    Costs a draw per success and not per trial.
    """
    parts, last = [], -1
    while last < trials:
        expected = (trials - last) * rate
        gaps = generator.geometric(rate, size=int(expected + 6 * math.sqrt(expected)) + 8)
        places = last + np.cumsum(gaps)
        parts.append(places)
        last = int(places[-1])
    places = np.concatenate(parts)
    return places[: np.searchsorted(places, trials)]


def _factors(squared_norms: Tensor, clip: float | None) -> Tensor:
    """min(1, C/norm); one everywhere without clipping."""
    if clip is None:
        return torch.ones_like(squared_norms)
    return (clip / squared_norms.sqrt().clamp_min(1e-30)).clamp_max(1.0)


def _weighted(squared_norms: Tensor, clip: float | None, weights: Tensor) -> Tensor:
    return _factors(squared_norms, clip) * weights


class BinaryLogistic(EnsembleModel):
    """Two classes: the errors are (-r, r), so one number per example and model carries everything.

    Batches are drawn example by example, as a sparse (examples, models) matrix: each example is read once for all the
    models that drew it, while the models stay in cache.
    """

    def __init__(self, features: int) -> None:
        self._width = features + 1
        self.dimension = 2 * self._width

    def clipped_sums(
        self, parameters: Tensor, data: Examples, rate: float, clip: float | None, generator: np.random.Generator
    ) -> Tensor:
        models, n = len(parameters), len(data)
        example, model = np.divmod(successes(n * models, rate, generator), models)
        rows = torch.from_numpy(np.searchsorted(example, np.arange(n + 1)))
        columns, index = torch.from_numpy(model), torch.from_numpy(example)
        difference = parameters[:, self._width :] - parameters[:, : self._width]
        with warnings.catch_warnings():  # torch calls its sparse matrices a beta, once per process
            warnings.simplefilter("ignore", UserWarning)
            pattern = torch.sparse_csr_tensor(
                rows, columns, torch.zeros(len(columns), dtype=parameters.dtype), (n, models), check_invariants=False
            )
            logits = torch.sparse.sampled_addmm(pattern, data.x, difference.t(), beta=0.0).values()
            error = torch.sigmoid(logits) - data.y[index]
            error *= _factors(2 * error.square() * data.squared_norms[index], clip)
            clipped = torch.sparse_csc_tensor(rows, columns, error, (models, n), check_invariants=False)
            total = clipped @ data.x
        return torch.cat([-total, total], dim=1)

    def logits(self, parameters: Tensor, x: Tensor) -> Tensor:
        return parameters.view(-1, 2, self._width) @ torch.cat([x, x.new_ones(1)])


class _Gathered(EnsembleModel):
    """Models whose batches are gathered into padded blocks, a few models at a time."""

    def clipped_sums(
        self, parameters: Tensor, data: Examples, rate: float, clip: float | None, generator: np.random.Generator
    ) -> Tensor:
        models, n = len(parameters), len(data)
        model, example = np.divmod(successes(n * models, rate, generator), n)
        starts = np.searchsorted(model, np.arange(models + 1))
        longest = max(1, int(np.diff(starts).max()))
        index = np.zeros((models, longest), dtype=np.int64)
        weight = np.zeros((models, longest), dtype=np.float32)
        place = np.arange(len(model)) - starts[model]
        index[model, place], weight[model, place] = example, 1.0
        rows, weights = torch.from_numpy(index), torch.from_numpy(weight).to(parameters.dtype)
        width = data.x.shape[1]
        group = max(1, _BUFFER // (longest * width * parameters.element_size()))
        buffer = torch.empty(min(group, models) * longest, width, dtype=parameters.dtype)
        out = torch.empty_like(parameters)
        for start in range(0, models, group):
            part = slice(start, min(start + group, models))
            flat = rows[part].reshape(-1)
            x = torch.index_select(data.x, 0, flat, out=buffer[: len(flat)]).view(-1, longest, width)
            out[part] = self._sums(
                parameters[part],
                x,
                data.y[rows[part]],
                data.squared_norms[rows[part]],
                partial(_weighted, clip=clip, weights=weights[part]),
            )
        return out

    @abstractmethod
    def _sums(self, parameters: Tensor, x: Tensor, y: Tensor, squared: Tensor, weigh: Weigh) -> Tensor:
        """Clipped sums over x of shape (models, batch, width); `weigh` turns squared norms into factors."""


class Logistic(_Gathered):
    """Softmax regression with any number of classes."""

    def __init__(self, features: int, classes: int) -> None:
        self._shape = (features + 1, classes)
        self.dimension = math.prod(self._shape)

    def _sums(self, parameters: Tensor, x: Tensor, y: Tensor, squared: Tensor, weigh: Weigh) -> Tensor:
        error = _errors(torch.bmm(x, parameters.view(-1, *self._shape)), y)
        error *= weigh(squared * error.square().sum(dim=2)).unsqueeze(2)
        return torch.bmm(x.transpose(1, 2), error).reshape(len(parameters), -1)

    def logits(self, parameters: Tensor, x: Tensor) -> Tensor:
        return torch.cat([x, x.new_ones(1)]) @ parameters.view(-1, *self._shape)


class TwoLayer(_Gathered):
    """One hidden layer of rectified units, started at He's random weights from a fixed seed."""

    def __init__(self, features: int, hidden: int, classes: int) -> None:
        self._first, self._second = (features + 1, hidden), (hidden + 1, classes)
        self._cut = math.prod(self._first)
        self.dimension = self._cut + math.prod(self._second)

    def initial(self, models: int, dtype: torch.dtype = torch.float32) -> Tensor:
        generator = np.random.default_rng(784_32)
        layers = []
        for rows, columns in (self._first, self._second):
            layer = generator.standard_normal((rows, columns)) * math.sqrt(2 / (rows - 1))
            layer[-1] = 0.0
            layers.append(layer.ravel())
        return torch.from_numpy(np.concatenate(layers)).to(dtype).repeat(models, 1)

    def _split(self, parameters: Tensor) -> tuple[Tensor, Tensor]:
        return parameters[:, : self._cut].view(-1, *self._first), parameters[:, self._cut :].view(-1, *self._second)

    def _sums(self, parameters: Tensor, x: Tensor, y: Tensor, squared: Tensor, weigh: Weigh) -> Tensor:
        first, second = self._split(parameters)
        hidden = torch.bmm(x, first).relu_()
        hidden_one = torch.cat([hidden, hidden.new_ones(*hidden.shape[:2], 1)], dim=2)
        error = _errors(torch.bmm(hidden_one, second), y)
        back = torch.bmm(error, second[:, :-1].transpose(1, 2)) * (hidden > 0)
        norms = squared * back.square().sum(dim=2) + hidden_one.square().sum(dim=2) * error.square().sum(dim=2)
        factors = weigh(norms).unsqueeze(2)
        back *= factors
        error *= factors
        lower, upper = torch.bmm(x.transpose(1, 2), back), torch.bmm(hidden_one.transpose(1, 2), error)
        return torch.cat([lower.flatten(1), upper.flatten(1)], dim=1)

    def logits(self, parameters: Tensor, x: Tensor) -> Tensor:
        first, second = self._split(parameters)
        hidden = (torch.cat([x, x.new_ones(1)]) @ first).relu()
        return torch.bmm(torch.cat([hidden, hidden.new_ones(len(hidden), 1)], dim=1).unsqueeze(1), second).squeeze(1)


def _errors(logits: Tensor, y: Tensor) -> Tensor:
    """softmax(logits) minus the label's indicator."""
    errors = torch.softmax(logits, dim=2)
    errors.scatter_add_(2, y.unsqueeze(2), errors.new_full((*y.shape, 1), -1.0))
    return errors
