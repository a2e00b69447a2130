"""The plan of a training run, from the options of the command."""

from __future__ import annotations

from plrvo.accounting import Workload, calibrate
from plrvo.accounting.correlated import Correlation
from plrvo.cli import options
from plrvo.cli.options import read_noise, required
from plrvo.cli.train_options import TrainNoise
from plrvo.design import Plan
from plrvo.validate import InvalidArgument

DEFAULT_K = 1000.0  # within 0.3 % of the Laplace limit, which is the best that Gamma noise can do on raw error


def make_plan(
    noise: TrainNoise,
    work: Workload,
    epsilon: float | None,
    delta: float,
    noise_multiplier: float | None,
    scale: float | None,
    k: float | None,
    theta: float | None,
    shared: bool,
    correlation: Correlation | None,
) -> Plan:
    """The noise of the options, or the smallest one of that kind that certifies the budget."""
    kind = options.NoiseKind(noise.value)
    given = {"noise_multiplier": noise_multiplier, "scale": scale, "theta": theta}
    if epsilon is None:
        if all(value is None for value in given.values()):
            raise InvalidArgument("epsilon", None, "a budget, or the parameters of the noise")
        built = read_noise(kind, work.clip, noise_multiplier, scale, k, theta, shared, None)
        return Plan.certify(built, work, delta, None, correlation)
    for name, value in given.items():
        if value is not None:
            raise InvalidArgument(name, value, "no value beside --epsilon, which fits the noise's width")
    if kind is options.NoiseKind.gamma and k is None:
        k = DEFAULT_K
    start = read_noise(kind, work.clip, 1.0, work.clip, k, 1 / (work.clip * (k or 1.0)), shared, None)
    required(epsilon=epsilon)
    fitted = calibrate(start, work, epsilon, delta, correlation)
    return Plan.certify(fitted, work, delta, epsilon, correlation)
