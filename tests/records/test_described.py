"""Which option is blamed for a noise that cannot be."""

from __future__ import annotations

import pytest

from plrvo.noise import Specification
from plrvo.noise.specification import DESCRIBED
from plrvo.records.described import blaming, check_described
from plrvo.validate import InvalidArgument

WIDTHS = [(kind, p.option) for kind, noise in DESCRIBED.items() for p in noise.parameters if p.is_width]


@pytest.mark.parametrize(("kind", "option"), WIDTHS)
def test_a_width_beside_a_budget_is_refused_by_its_own_name(kind: str, option: str) -> None:
    with pytest.raises(InvalidArgument, match=f"^{option}=1.0: expected no value beside `epsilon`"):
        check_described(kind, {option: 1.0}, fitted=True)


def test_a_missing_option_is_told_beside_the_one_that_was_given() -> None:
    with pytest.raises(InvalidArgument, match=r"^k=3.0: expected `theta` \(missing\), for gamma noise$"):
        check_described(None, {"k": 3.0}, fitted=False)


def test_a_kind_that_was_named_keeps_the_blame() -> None:
    with pytest.raises(InvalidArgument, match=r"^noise='gamma': expected `theta`"):
        check_described("gamma", {"k": 3.0}, fitted=False)


def test_other_refusals_pass() -> None:
    with pytest.raises(InvalidArgument, match=r"^steps=0"), blaming(Specification(None, {"k": 3.0})):
        raise InvalidArgument("steps", 0, "more")


def test_what_is_described_in_full_is_taken() -> None:
    check_described(None, {"noise_multiplier": 1.0}, fitted=False)
    check_described("gaussian", {}, fitted=True)
