"""`plrvo calibrate`: the smallest noise that certifies a budget."""

from __future__ import annotations

from plrvo.accounting import calibrate as fit
from plrvo.accounting import epsilon as bracket_of
from plrvo.cli import options, show
from plrvo.cli.options import NoiseKind, read_noise, read_workload, required
from plrvo.noise import Gaussian


def calibrate(
    noise: options.NoiseOption = None,
    k: options.KOption = None,
    shared: options.SharedOption = False,
    noise_file: options.NoiseFileOption = None,
    clip: options.ClipOption = None,
    sample_rate: options.RateOption = None,
    steps: options.StepsOption = None,
    dimension: options.DimensionOption = None,
    epsilon: options.EpsilonOption = None,
    delta: options.DeltaOption = 1e-5,
    as_json: options.JsonOption = False,
) -> None:
    """The smallest noise of a shape that certifies --epsilon; it never misses the budget.

    gamma needs --k (theta is found); the other noises need nothing but their name.

    Example: plrvo calibrate --noise gamma --k 100 --epsilon 1 --clip 0.1 --sample-rate 0.01 --steps 300
    --dimension 26010
    """
    required(epsilon=epsilon)
    work = read_workload(clip, sample_rate, steps, dimension)
    if noise is NoiseKind.gamma:
        required(k=k)
    start = read_noise(noise, work.clip, 1.0, work.clip, k, 1 / (work.clip * (k or 1.0)), shared, noise_file)
    fitted = fit(start, work, epsilon, delta)  # type: ignore[arg-type]
    bracket = bracket_of(fitted, work, delta)
    multiplier = {"noise_multiplier": fitted.sigma / work.clip} if isinstance(fitted, Gaussian) else {}
    if not as_json:
        show.bracket_table(fitted, work, bracket)
        for value in multiplier.values():
            print(f"--noise-multiplier {value!r} (sigma / clip)")
        return
    parameters = {key: value for key, value in fitted.to_dict().items() if key != "noise"}
    show.print_json({**show.bracket_result(fitted, work, bracket), **parameters, **multiplier})
