"""`plrvo calibrate`: the smallest noise that certifies a budget."""

from __future__ import annotations

from plrvo.accounting import Plan
from plrvo.cli import options, show
from plrvo.cli.noise_options import NOT_GIVEN, with_noise_options
from plrvo.cli.options import read_workload
from plrvo.cli.progress import Waiting
from plrvo.cli.signs import Signs
from plrvo.noise import Gaussian, Specification

_EXAMPLE = "plrvo calibrate --epsilon 1 --sample-rate 0.01 --steps 300"


@with_noise_options(widths=False)
def calibrate(
    noise: Specification = NOT_GIVEN,
    clip: options.ClipOption = None,
    sample_rate: options.RateOption = None,
    steps: options.StepsOption = None,
    dimension: options.DimensionOption = None,
    epsilon: options.EpsilonOption = None,
    delta: options.DeltaOption = 1e-5,
    as_json: options.JsonOption = False,
) -> None:
    """The smallest noise that certifies --epsilon, Gaussian unless --noise says otherwise; it never misses the budget.

    Its width is found; what else shapes it has an option (gamma: --k, 1000 by default).

    Example: plrvo calibrate --epsilon 1 --sample-rate 0.01 --steps 300
    """
    if noise.named is None and noise.file is None:
        noise = Specification(Gaussian.kind)  # which design recommends wherever there are many parameters
    amounts = {"clip": clip, "sample_rate": sample_rate, "steps": steps, "dimension": dimension}
    options.check_complete(noise, True, _EXAMPLE, epsilon=epsilon, **amounts)
    work = read_workload(clip, sample_rate, steps, dimension, noise)
    with Signs("calibrate", after=10, doing="searching for the width of the noise"), Waiting("searching"):
        plan = Plan.fitted(noise, work, delta, epsilon)  # type: ignore[arg-type]
    fitted, bracket = plan.noise, plan.bracket
    typed = fitted.options(work.clip)
    if not as_json:
        show.bracket_table(fitted, work, bracket)
        print(" ".join(options.as_typed(name, value) for name, value in typed.items() if value is not False))
        return
    parameters = {key: value for key, value in fitted.to_dict().items() if key != "noise"}
    show.print_json({**show.bracket_result(fitted, work, bracket), **parameters, **typed})
