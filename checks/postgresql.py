"""A PostgreSQL server for a test or a campaign: on a socket in a folder, from Debian's binaries."""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

PASSWORD = "hush " + secrets.token_hex(4) + "#/@:"  # of the kind that has to be quoted in a URL
USER = "plrvo"


def binaries() -> Path | None:
    """The folder of the newest server that is installed, or None."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    return found[-1].parent if found else None


def missing() -> str | None:
    """Why no server can be started here, or None."""
    if binaries() is None:
        return "no PostgreSQL server is installed (apt-get install postgresql)"
    if os.getuid() == 0 and owner() is None:
        return "PostgreSQL refuses to run as root, and there is no user `postgres` or `nobody`"
    return None


def owner() -> pwd.struct_passwd | None:
    """Whom the server runs as, where we are root."""
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    return None


@contextmanager
def server(port: int = 5432) -> Iterator[Path]:
    """The folder of a running server, where its socket is."""
    root = os.getuid() == 0
    folder = Path(tempfile.mkdtemp(prefix="plrvo-pg-", dir="/tmp"))  # short: a socket's path has 107 characters at most
    as_owner = {"user": owner().pw_uid, "group": owner().pw_gid, "extra_groups": []} if root else {}
    if root:
        os.chown(folder, owner().pw_uid, owner().pw_gid)
    folder.chmod(0o755)

    def run(*command: Any) -> None:
        environment = {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "HOME": str(folder)}
        subprocess.run(
            list(map(str, command)), check=True, capture_output=True, cwd=folder, env=environment, **as_owner
        )

    secret = folder / "secret"
    secret.write_text(PASSWORD)
    if root:
        os.chown(secret, owner().pw_uid, owner().pw_gid)
    data = folder / "data"
    try:
        run(binaries() / "initdb", "-D", data, "-U", USER, "--auth=scram-sha-256", f"--pwfile={secret}", "-E", "UTF8")
        settings = f"-c listen_addresses='' -c unix_socket_directories={folder} -p {port} -c max_connections=60"
        run(binaries() / "pg_ctl", "-D", data, "-w", "-l", folder / "log", "-o", settings, "start")
        try:
            yield folder
        finally:
            run(binaries() / "pg_ctl", "-D", data, "-m", "immediate", "-w", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def url(
    folder: Path | str, account: str | None = None, database: str = "postgres", password: str | None = PASSWORD
) -> str:
    """As it is typed, with the password."""
    secret = "" if password is None else ":" + quote(password, safe="")
    name = "" if account is None else f"#{account}"
    return f"postgresql://{USER}{secret}@/{database}?host={folder}{name}"
