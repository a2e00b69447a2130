"""What the bar over steps shows: numbers are whole at 80 columns, and say of which step they are."""

import io

import pytest
from rich.console import Console

from plrvo.cli.progress import StepProgress


def shown(width: int, step: int, tested: int) -> str:
    console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    with StepProgress("fashion-mnist, gaussian", None, console) as watch:
        watch(step, 3000, {"step": tested, "accuracy": 0.8512, "epsilon_certified": 2.51234})
    return console.file.getvalue()  # the bar as it was left, and as it was before


@pytest.mark.parametrize("width", [80, 120])
def test_counter_accuracy_and_epsilon_are_whole(width: int) -> None:
    text = shown(width, 1017, 1000)
    assert "1017/3000" in text
    assert "accuracy 85.1 %, epsilon 2.513 at 1000" in text
    assert "fashion" in text


def test_what_is_done_of_a_step_is_shown() -> None:
    console = Console(file=io.StringIO(), width=80, force_terminal=True, color_system=None)
    with StepProgress("e2e, gaussian", None, console) as watch:
        watch.during("step 1: 16 of about 64 examples")
    assert "step 1: 16 of about 64 examples" in console.file.getvalue()


def test_an_epsilon_of_this_step_needs_no_step_beside_it() -> None:
    assert "epsilon 2.513 " in shown(80, 1000, 1000)
    assert " at " not in shown(80, 1000, 1000)
