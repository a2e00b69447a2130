"""Numbers in the page of sharp edges are those of the code."""

from pathlib import Path

from plrvo.training import watch
from plrvo.training.retries import RAREST, SHARE

PAGE = Path(__file__).parents[2] / "docs" / "sharp-edges.md"


def test_how_often_losses_and_modules_are_tried_again_is_what_the_page_says() -> None:
    assert SHARE == 0.01
    module, loss = watch._MODULE_AGAIN, watch._AGAIN
    (said,) = (line for line in PAGE.read_text(encoding="utf-8").splitlines() if "{ #again }" in line)
    assert f"a module in one batch of {module}, a loss in one of {loss}" in said
    assert f"rows that have changed places in one of {loss}" in said
    assert f"never more than {RAREST} times as rare, one in {module * RAREST:,} and one in {loss * RAREST:,}" in said
