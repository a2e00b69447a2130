"""An account in a database: its events in one table, through SQLAlchemy.

- Whoever writes first changes the row of the account, which every database lets one transaction do at a time; the next
  one waits, and then reads what was committed meanwhile.
- Were two to decide by the same events all the same, both would write an event of the same number: the primary key
  refuses the second, whatever the database makes of locks and isolation.
- What PostgreSQL says it has committed is on its disk: where a server or a session was set to do without, it is set
  back, or refused.
- A run of an account in PostgreSQL holds an advisory lock of its session, which ends with the process, wherever that
  ran. A connection that breaks lets go of it too early: then the run can be settled, and is refused when it wants to
  release more. Other databases have no such lock, and there a run that ended without settling is settled whole.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from sqlalchemy import (
    Column,
    Connection,
    Engine,
    ForeignKey,
    Integer,
    MetaData,
    NullPool,
    String,
    Table,
    Text,
    create_engine,
    insert,
    inspect,
    select,
    text,
    update,
)
from sqlalchemy.exc import DBAPIError, IntegrityError, NoSuchModuleError, SQLAlchemyError

from plrvo.budget.address import Url
from plrvo.budget.events import OURS, PATIENCE, Append, Event, checked, follows
from plrvo.files import LockHeld
from plrvo.validate import InvalidArgument, installing

_TABLES = MetaData()
_ACCOUNTS = Table(
    "plrvo_accounts",
    _TABLES,
    Column("name", String(64), primary_key=True),
    Column("changes", Integer, nullable=False),
)
_EVENTS = Table(
    "plrvo_events",
    _TABLES,
    Column("account", String(64), ForeignKey("plrvo_accounts.name"), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("document", Text, nullable=False),
    Column("digest", String(64), nullable=False),
)
_READ_COMMITTED = ("postgresql", "mysql", "mariadb", "mssql", "oracle")  # who waits for a row sees what came meanwhile
_POSTGRESQL = "postgresql"
_BUSY = "55P03"  # as PostgreSQL names a lock that was not had in time
_DYING = 3.0  # seconds that a server may need to see that a process is gone
_CONNECTING = 15  # seconds


@dataclass(frozen=True)
class Database:
    """The home of an account in a database."""

    url: Url

    def __str__(self) -> str:
        return str(self.url)

    def create(self, document: dict[str, Any]) -> None:
        """A new account with its first event, whole or not at all; never in the place of another."""
        with self._transaction() as connection:
            if connection.dialect.name == _POSTGRESQL:  # one after the other, where both make the tables
                connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _key("tables", 0)})
            _TABLES.create_all(connection)
            taken = "the name of an account that the database does not have yet: an account is never replaced"
            if self._rows(connection):
                raise InvalidArgument("budget", str(self), taken)
            try:
                connection.execute(insert(_ACCOUNTS).values(name=self.url.account, changes=0))
            except IntegrityError:
                raise InvalidArgument("budget", str(self), taken) from None
            self._insert(connection, None, document)

    def read(self) -> list[Event]:
        """All events so far."""
        with self._transaction() as connection:
            return self._events(connection)

    @contextmanager
    def changing(self) -> Iterator[tuple[list[Event], Append]]:
        """All events so far and a way to add to them; what is added stays if the block ends, all of it or nothing."""
        with self._transaction() as connection:
            self._check_tables(connection)
            ours = update(_ACCOUNTS).where(_ACCOUNTS.c.name == self.url.account)
            connection.execute(ours.values(changes=_ACCOUNTS.c.changes + 1))  # waits until nobody else has the row
            events = self._events(connection)

            def append(document: dict[str, Any]) -> Event:
                events.append(self._insert(connection, events[-1], document))
                return events[-1]

            yield events, append

    @contextmanager
    def hold(self, account: str, entry: int) -> Iterator[None]:
        """A lock of a session, which the server gives back when the process that holds it is gone."""
        with self._told():
            engine = _engine(self.url)
        if engine.dialect.name != _POSTGRESQL:
            yield
            return
        with self._told():
            connection = engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        with closing(connection):
            with self._told():
                waited_since = time.monotonic()
                while not connection.scalar(text("SELECT pg_try_advisory_lock(:key)"), {"key": _key(account, entry)}):
                    if time.monotonic() - waited_since > _DYING:
                        raise LockHeld("budget", str(self), f"an entry that no other process works on; {entry} has one")
                    time.sleep(0.05)
            yield

    def check_proof(self, entry: int, machine: str) -> None:
        """A lock of the server proves as much from everywhere; where there is none, nothing does."""
        with self._told():
            kind = _engine(self.url).dialect.name
        if kind != _POSTGRESQL:
            nothing = f"`whole`: {kind} has no lock that ends with its holder, so nobody can see that the run ended"
            raise InvalidArgument("entry", entry, nothing)

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        with self._told(), _engine(self.url).begin() as connection:
            if connection.dialect.name == _POSTGRESQL:
                self._make_lasting(connection)
            yield connection

    def _make_lasting(self, connection: Connection) -> None:
        """What a commit says must be true after a loss of power as well."""
        wanted = "SELECT current_setting('fsync'), current_setting('synchronous_commit')"
        fsync, commit = connection.execute(text(wanted)).one()
        if fsync != "on":
            raise InvalidArgument("budget", str(self), "a server that writes to its disk; this one has fsync off")
        if commit == "off":
            connection.execute(text("SET LOCAL synchronous_commit = on"))
        connection.execute(text(f"SET LOCAL lock_timeout = '{PATIENCE:g}s'"))

    def _check_tables(self, connection: Connection) -> None:
        if not inspect(connection).has_table(_EVENTS.name):
            raise InvalidArgument("budget", str(self), f"{OURS}; this database has none")

    def _events(self, connection: Connection) -> list[Event]:
        self._check_tables(connection)
        rows = self._rows(connection)
        if not rows:
            raise InvalidArgument("budget", str(self), f"{OURS}; this database has none called {self.url.account}")
        return checked(self, rows)

    def _rows(self, connection: Connection) -> list[tuple[Any, ...]]:
        wanted = select(_EVENTS.c.number, _EVENTS.c.document, _EVENTS.c.digest)
        found = connection.execute(wanted.where(_EVENTS.c.account == self.url.account).order_by(_EVENTS.c.number))
        return [tuple(row) for row in found]

    def _insert(self, connection: Connection, last: Event | None, document: dict[str, Any]) -> Event:
        event, words = follows(last, document)
        row = {"account": self.url.account, "number": event.number, "document": words, "digest": event.digest}
        connection.execute(insert(_EVENTS).values(**row))
        return event

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Errors of the database in one line, without the statement, and without the password."""
        try:
            yield
        except (NoSuchModuleError, ModuleNotFoundError) as error:
            missing = f"a driver for it ({self.url.without_secrets(error)}); PostgreSQL's: {installing('database')}"
            raise InvalidArgument("budget", str(self), missing) from None
        except IntegrityError:
            again = "an account that nobody else changed at this moment; nothing was written: try again"
            raise InvalidArgument("budget", str(self), again) from None
        except SQLAlchemyError as error:
            cause = error.orig if isinstance(error, DBAPIError) else error
            if getattr(cause, "sqlstate", None) == _BUSY:
                raise InvalidArgument("budget", str(self), "an account that no other program holds") from None
            said = " ".join(self.url.without_secrets(cause).split())
            raise OSError(None, f"the account cannot be read or written ({said})", str(self)) from None


@lru_cache(maxsize=32)
def _engine(url: Url) -> Engine:
    """Connections are made for each use: none is shared with a process that was forked."""
    backend = url.full.get_backend_name()
    settings: dict[str, Any] = {"isolation_level": "READ COMMITTED"} if backend in _READ_COMMITTED else {}
    if backend == _POSTGRESQL and "connect_timeout" not in url.full.query:
        settings["connect_args"] = {"connect_timeout": _CONNECTING}
    return create_engine(url.full, poolclass=NullPool, hide_parameters=True, **settings)


def _key(account: str, entry: int) -> int:
    """The number of a lock: 64 bits with a sign."""
    digest = hashlib.sha256(f"plrvo {account} {entry}".encode()).digest()
    return int.from_bytes(digest[:8], "big", signed=True)
