"""`plrvo audit`: try to break a claim. Exit 1 where it is refuted."""

from __future__ import annotations

import typer

from plrvo.cli.audit_clipbkd import clipbkd
from plrvo.cli.audit_mechanism import mechanism
from plrvo.cli.audit_one_run import one_run
from plrvo.cli.help import Command, Group

audit = typer.Typer(
    cls=Group, no_args_is_help=True, help="Try to break a claim: an attack measures epsilon from below."
)
audit.command(cls=Command)(mechanism)
audit.command(cls=Command)(clipbkd)
audit.command("one-run", cls=Command)(one_run)
