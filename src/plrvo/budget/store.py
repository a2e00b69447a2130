"""An account in a file: its events in one SQLite table.

SQLite of the standard library, and nothing above it: there is one table, one statement that reads and one that writes,
which is less code than the description of the same table to an object mapper.

- Whoever writes holds a lock file and then the database (`BEGIN IMMEDIATE`): what was read cannot change before what is
  written follows from it. Both are given back by the operating system when their holder dies.
- What is written is on the disk, the folder's entry included, before the call returns (`synchronous=EXTRA`). A crash
  before that leaves the file as it was.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from plrvo.budget.events import OURS, PATIENCE, Append, Event, checked, follows
from plrvo.budget.place import check_alone, check_place, guard_of, hold_of
from plrvo.budget.place import machine as this_machine
from plrvo.files import locked, write_bytes
from plrvo.validate import InvalidArgument

_APPLICATION = 0x706C7276  # "plrv", in the header of the file
_TABLE = "CREATE TABLE events (number INTEGER PRIMARY KEY, document TEXT NOT NULL, digest TEXT NOT NULL) STRICT"
_NO_FILE = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN)


@dataclass(frozen=True)
class File:
    """The home of an account in a file."""

    path: Path

    def __str__(self) -> str:
        return str(self.path)

    def create(self, document: dict[str, Any]) -> None:
        """A new file with its first event, whole or not at all; never in the place of another."""
        path = self.path
        check_place(path)
        with locked(guard_of(path), "budget", PATIENCE):
            if path.exists() or path.is_symlink():
                raise InvalidArgument(
                    "budget", str(path), "a file that does not exist yet: an account is never replaced"
                )
            with closing(sqlite3.connect(":memory:", isolation_level=None)) as memory:
                memory.execute(f"PRAGMA application_id = {_APPLICATION}")
                memory.execute(_TABLE)
                _insert(memory, None, document)
                write_bytes(path, memory.serialize())

    def read(self) -> list[Event]:
        """All events so far."""
        with self._opened() as database:
            return self._events(database)

    @contextmanager
    def changing(self) -> Iterator[tuple[list[Event], Append]]:
        """All events so far and a way to add to them; what is added stays if the block ends, all of it or nothing."""
        check_place(self.path)
        with locked(guard_of(self.path), "budget", PATIENCE), self._opened() as database:
            database.execute("BEGIN IMMEDIATE")
            events = self._events(database)

            def append(document: dict[str, Any]) -> Event:
                events.append(_insert(database, events[-1], document))
                return events[-1]

            yield events, append
            database.execute("COMMIT")

    def hold(self, account: str, entry: int) -> AbstractContextManager[None]:
        """A lock file beside the account, which the operating system gives back when its holder dies."""
        return locked(hold_of(self.path, entry), "budget")

    def check_proof(self, entry: int, machine: str) -> None:
        """That a lock is free proves a run dead where it ran, and nowhere else."""
        if machine != this_machine():
            there = f"to be settled on {machine}, where it ran, or `whole`: nobody can see from here that it ended"
            raise InvalidArgument("entry", entry, there)

    @contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        path = self.path
        if not path.is_file():  # a pipe would wait for ever
            raise InvalidArgument("budget", str(path), OURS)
        check_alone(path)
        try:
            where = f"file:{quote(str(path.absolute()))}?mode=rw"
            with closing(sqlite3.connect(where, uri=True, timeout=PATIENCE, isolation_level=None)) as database:
                for setting in ("synchronous = EXTRA", "trusted_schema = OFF", "cell_size_check = ON"):
                    database.execute(f"PRAGMA {setting}")
                known = (*database.execute("PRAGMA application_id"), *database.execute("PRAGMA journal_mode"))
                if known != ((_APPLICATION,), ("delete",)):  # another mode would keep a part in another file
                    raise InvalidArgument("budget", str(path), OURS)
                yield database
        except (sqlite3.Error, UnicodeDecodeError) as error:  # a message of SQLite's may quote what is damaged
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # without what is said beside it
            if code in _NO_FILE:
                raise OSError(None, f"the account cannot be read or written ({error})", str(path)) from None
            busy = "an account that no other program holds" if code == sqlite3.SQLITE_BUSY else f"{OURS} ({error})"
            raise InvalidArgument("budget", str(path), busy) from None

    def _events(self, database: sqlite3.Connection) -> list[Event]:
        return checked(self.path, database.execute("SELECT number, document, digest FROM events ORDER BY number"))


def _insert(database: sqlite3.Connection, last: Event | None, document: dict[str, Any]) -> Event:
    event, text = follows(last, document)
    database.execute("INSERT INTO events VALUES (?, ?, ?)", (event.number, text, event.digest))
    return event
