"""Why a row is not to be taken as it is printed: flags are values, the remarks beside them are for people."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from plrvo.accounting import Epsilon
from plrvo.accounting.printed import rounded_down


class Flag(StrEnum):
    """Why a row is not to be taken as it is printed."""

    refuted = "refuted"  # an attack provably exceeds a published or claimed epsilon
    misprinted = "misprinted"  # the printed parameters do not give the printed epsilon
    differs = "differs"  # something else that is printed is not what comes out
    not_converged = "not converged"  # what was to be measured did not happen in so many steps


Flags = Mapping[Flag, str]  # with the remark, in words, to each


def flagged(flag: Flag, remark: str, when: bool = True) -> Flags:
    """One flag, or none."""
    return {flag: remark} if when else {}


def refutation(bracket: Epsilon) -> Flags:
    """A flag where the published epsilon of a noise is refuted."""
    if not bracket.published_is_refuted:
        return {}
    return {
        Flag.refuted: f"the published formula gives this noise epsilon {bracket.published:.4g}: refuted, an attack "
        f"provably reaches {rounded_down(bracket.lower)}"
    }


def remark_of(row: Mapping[str, Any]) -> str:
    """All that its flags say of a finished row."""
    return "; ".join(row["flags"].values())
