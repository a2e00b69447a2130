"""`plrvo selftest`: attack the noise of this installation, in floating point and on a grid."""

from __future__ import annotations

import sys
import time
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from plrvo.cli import options, show
from plrvo.cli.noise_options import NOT_GIVEN, with_noise_options
from plrvo.noise import Specification
from plrvo.noise.specification import USUAL

_ATTACKS = {"mechanism": "densities", "low_bits": "last bits"}


@with_noise_options(widths=False)
def selftest(
    noise: Specification = NOT_GIVEN,
    seed: Annotated[int | None, typer.Option("--seed", help="Repeats a self-test; new by default.")] = None,
    as_json: options.JsonOption = False,
) -> int:
    """Attack the noise that this installation samples, and try out the engine that trains with it.

    The certified epsilon must survive the best test on densities in both modes. An attack on the last bits must refute
    it in floating point, where it is known to leak, and must fail on the grid of --exact. Then: tails down to 1e-30,
    prediction of the generator, forked processes, clipped sums against a loop, and what the engine must refuse. Exit
    code 1 if anything is otherwise.

    Example: plrvo selftest --json
    """
    from plrvo.audit.checkup import checkup
    from plrvo.audit.selftest import CONFIDENCE, self_test
    from plrvo.validate import non_negative

    if seed is not None:
        non_negative(seed=seed)
    start = time.perf_counter()
    attacked = (noise if noise.given else Specification(USUAL)).shape(1.0)

    def tell(part: str) -> None:
        print(f"{part} ...", file=sys.stderr, flush=True)  # stdout is for the result

    outcomes = self_test(attacked, seed, tell=tell)
    tell("tails, generator, forks and engine")
    checks = checkup(attacked, seed)
    passed = all(outcome.as_expected for outcome in outcomes.values()) and all(check.passed for check in checks)
    if as_json:
        show.print_json(
            {
                "verdict": "passed" if passed else "failed",
                "noise": attacked.kind,
                "confidence": CONFIDENCE,
                "outcomes": {name: outcome.to_dict() for name, outcome in outcomes.items()},
                "checks": {check.name: check.to_dict() for check in checks},
                "seconds": round(time.perf_counter() - start, 1),
            }
        )
        return int(not passed)
    table = Table(title=f"Attacks on the certified epsilon, {attacked.kind} noise")
    for heading in ("attack", "numbers", "delta", "certified", "shown", "verdict", "expected"):
        table.add_column(heading)
    for outcome in outcomes.values():
        table.add_row(
            _ATTACKS[outcome.attack],
            "floats" if outcome.mode == "float" else "integers",
            f"{outcome.audit.delta:g}",
            show.rounded_up(outcome.audit.epsilon_claimed),
            show.rounded_down(outcome.audit.epsilon_audited),
            outcome.audit.verdict,
            outcome.expected,
        )
    console = Console(highlight=False)
    console.print(table)
    for check in checks:
        console.print(f"- {'as it must' if check.passed else 'NOT AS IT MUST'}: {check.what}", markup=False)
    if passed:
        console.print(
            "All as expected: floating-point noise leaks through its last bits, exact noise (--exact) does not."
        )
    else:
        console.print("NOT as expected: do not rely on this installation; please report what stands above.")
    return int(not passed)
