"""Where an account lies: a file, or a database by its URL, of which no password is ever shown or written.

    digits.budget
    postgresql://anna@host/privacy#census        the account `census` among those of the database `privacy`

An address is made where the words come in. From there on `str` of it has no secret in it, so that errors, receipts,
checkpoints and pages cannot tell one. Whoever resumes a run gives the password anew, or leaves it to the driver
(PGPASSWORD, ~/.pgpass).
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plrvo.validate import InvalidArgument, a_path, installing

if TYPE_CHECKING:
    from sqlalchemy import URL

USUAL = "default"  # the account that a URL without a name is about
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+._-]*)://")
_LOST = re.compile(r"[A-Za-z][A-Za-z0-9+._-]+:/")  # what a path makes of it
_ACCOUNT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_FORM = "the URL of a database, KIND://USER@HOST/DATABASE#ACCOUNT"
_SECRET = re.compile(r"pass|pwd|secret|token", re.IGNORECASE)  # names of parts of a query that nobody may see


@dataclass(frozen=True)
class Url:
    """A database, and an account in it.

    >>> str(Url.of("postgresql://anna:secret@host/privacy?sslpassword=x#census"))
    'postgresql://anna@host/privacy#census'
    """

    full: Any = field(repr=False)  # of SQLAlchemy, with the password
    account: str

    @staticmethod
    def of(text: str) -> Url:
        """Refused where it is none; an error quotes no more of it than its beginning."""
        found = _SCHEME.match(text)
        if found is None:
            raise InvalidArgument("budget", "...", "the URL of a database")
        start = f"{found[1].lower()}://..."
        try:
            from sqlalchemy import make_url
            from sqlalchemy.exc import ArgumentError, NoSuchModuleError
        except ImportError:
            raise InvalidArgument("budget", start, f"SQLAlchemy: {installing('database')}") from None
        place, _, account = text.partition("#")
        if not _ACCOUNT.fullmatch(account or USUAL):  # it may be the rest of a password
            named = "the name of an account after #, of up to 64 letters, digits, dots, dashes and underscores"
            raise InvalidArgument("budget", start, f"{named} (in a password # is %23)")
        try:
            full = make_url(place)
            if full.drivername == "postgresql":  # the driver that the extra brings, not the one that SQLAlchemy expects
                full = full.set(drivername="postgresql+psycopg")
            kind = full.get_backend_name()
            full.get_dialect()
        except (NoSuchModuleError, ImportError):
            raise InvalidArgument("budget", start, "a kind of database that SQLAlchemy has a driver for here") from None
        except (ArgumentError, ValueError):
            raise InvalidArgument("budget", start, _FORM) from None
        if any("@" in (part or "") for part in (full.username, full.host, full.database)):  # of a password, perhaps
            raise InvalidArgument("budget", start, f"{_FORM} (in a password @ is %40)")
        if kind == "sqlite":
            raise InvalidArgument("budget", start, "the path of the file, without a scheme: SQLite needs no URL")
        return Url(full, account or USUAL)

    @property
    def public(self) -> URL:
        """Without what nobody may see."""
        from sqlalchemy import URL

        url: URL = self.full
        hidden = [name for name in url.query if _SECRET.search(name)]
        shown = url.difference_update_query(hidden)
        name = "postgresql" if url.drivername == "postgresql+psycopg" else url.drivername
        return URL.create(name, shown.username, None, shown.host, shown.port, shown.database, shown.query)

    def without_secrets(self, words: object) -> str:
        """What somebody else said, without the secrets of this URL."""
        text = str(words)
        values = [self.full.password, *(value for name, value in self.full.query.items() if _SECRET.search(name))]
        for value in values:
            for secret in (value,) if isinstance(value, str) else tuple(value or ()):
                text = text.replace(secret, "***") if secret else text
        return text

    def __str__(self) -> str:
        return self.public.render_as_string() + ("" if self.account == USUAL else f"#{self.account}")


Address = Path | Url


def address(value: Address | str) -> Address:
    """A URL where the words begin like one, or the path of a file, wherever it is read from later."""
    if isinstance(value, Url):
        return value
    if isinstance(value, str) and _SCHEME.match(value):
        return Url.of(value)
    if isinstance(value, os.PathLike) and _LOST.match(str(value)):
        raise InvalidArgument("budget", "...", "a URL as text: a path has lost a part of it")
    return a_path(budget=value).absolute()
