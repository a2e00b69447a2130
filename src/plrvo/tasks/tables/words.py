"""What is asked for by name of tables: what is trained, and how texts are made. Nothing here needs torch."""

from __future__ import annotations

from plrvo.tasks.catalog import Request
from plrvo.tasks.text.words import check_trainable
from plrvo.validate import InvalidArgument, positive_integer, rate

BEAMS = 4  # of a beam search where the user says nothing


def check(request: Request) -> None:
    """Refuse what no table task has; which models there are, the hub knows."""
    check_trainable(request.options.get("trainable", "all"), request.options.get("layers"))
    check_decoding(*decoding_of(request))


def decoding_of(request: Request) -> tuple[int, float | None]:
    """Beams and `top_p` that are asked for."""
    top_p = request.options.get("top_p")
    return request.options.get("beams", BEAMS if top_p is None else 1), top_p


def check_decoding(beams: int, top_p: float | None) -> None:
    """Refuse a text that would be both searched for and drawn."""
    positive_integer(beams=beams)
    if top_p is not None:
        rate(top_p=top_p)
        if beams != 1:
            raise InvalidArgument("beams", beams, "1 beside `top_p`: a text is searched for or drawn")
