"""Events of an account, wherever they are kept: a list that only grows.

Every event has the digest of the one before it in its own, so that an account from which something is missing, or that
went another way after it was copied, is told apart by any digest that a receipt has. Time stamps are for the reader:
the order is that of the numbers, whatever the clock says.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol

from plrvo.files import parse_json
from plrvo.validate import InvalidArgument

PATIENCE = 60.0  # seconds to wait for others, who hold an account for milliseconds
OURS = "an account, as `plrvo budget create` writes it"


@dataclass(frozen=True)
class Event:
    """What happened, as plain data; its number, and the digest of it and of all before it."""

    number: int
    document: dict[str, Any]
    digest: str


Append = Callable[[dict[str, Any]], Event]
Changing = AbstractContextManager[tuple[list[Event], Append]]


class Home(Protocol):
    """What keeps an account: a file (`store`) or a database (`database`). `str` of it says where, and no secret."""

    def create(self, document: dict[str, Any]) -> None:
        """A new account with its first event, whole or not at all; never in the place of another."""

    def read(self) -> list[Event]:
        """All events so far."""

    def changing(self) -> Changing:
        """All events so far and a way to add to them; what is added stays if the block ends, all of it or nothing.

        Nobody else adds anything meanwhile: what is written follows from what was read.
        """

    def hold(self, account: str, entry: int) -> AbstractContextManager[None]:
        """What a run has for as long as it lives, and nobody else meanwhile: else `LockHeld`."""

    def check_proof(self, entry: int, machine: str) -> None:
        """Refuse where it proves nothing, seen from here, that nobody holds the entry of a run on that machine."""


def checked(place: object, rows: Iterable[tuple[Any, ...]]) -> list[Event]:
    """The events of rows of numbers, documents and digests, of which none may be missing or changed."""
    events: list[Event] = []
    for number, text, digest in rows:
        before = events[-1].digest if events else ""
        if number != len(events) + 1 or type(text) is not str or digest != _digest(before, text):
            raise InvalidArgument("budget", str(place), f"a whole account; event {len(events) + 1} of it is damaged")
        try:
            document = parse_json(text)
        except ValueError:
            document = None
        if not isinstance(document, dict):
            raise InvalidArgument("budget", str(place), f"a whole account; event {number} of it is damaged")
        events.append(Event(number, document, digest))
    if not events:
        raise InvalidArgument("budget", str(place), f"{OURS}; this one is empty")
    return events


def follows(last: Event | None, document: dict[str, Any]) -> tuple[Event, str]:
    """The event after another one, and its document as it is kept."""
    document = {"at": datetime.now(UTC).isoformat(timespec="seconds"), **document}
    text = json.dumps(document, allow_nan=False)
    return Event(1 if last is None else last.number + 1, document, _digest(last.digest if last else "", text)), text


def _digest(before: str, text: str) -> str:
    return hashlib.sha256(f"{before}\n{text}".encode()).hexdigest()
