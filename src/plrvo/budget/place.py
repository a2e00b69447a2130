"""Where an account may lie: on a disk of this machine, where a lock keeps others out.

Two processes that both believe to have the last of a budget would spend it twice. A lock that says yes to both is
found by asking twice. That another machine asks cannot be tried out from here, so folders that several machines share
are refused where the operating system tells.
"""

from __future__ import annotations

import platform
import secrets
from pathlib import Path

from plrvo.files import LockHeld, locked
from plrvo.validate import InvalidArgument, printable

_MOUNTS = Path("/proc/self/mounts")
_SHARED = {
    "nfs",
    "nfs4",
    "cifs",
    "smb3",
    "smbfs",
    "9p",
    "afs",
    "ceph",
    "lustre",
    "glusterfs",
    "gpfs",
    "beegfs",
    "ncpfs",
}
_SHARED |= {"davfs", "virtiofs", "vboxsf", "ocfs2", "gfs2", "orangefs", "coda", "prl_fs"}
_FUSE = "fuse."  # programs of users, most of which fetch files from elsewhere
_LOCAL = {"fuse.ntfs-3g", "fuse.exfat", "fuse.gocryptfs", "fuse.encfs", "fuse.ext4", "fuse.fuse-overlayfs"}


def check_place(path: Path) -> None:
    """Refuse a folder of several machines, or one where locks do not keep others out."""
    folder = path.resolve().parent  # where the file is, not a link to it
    if not folder.is_dir():
        raise InvalidArgument("budget", str(path), "a file in a folder that exists")
    kind = _file_system(folder)
    if kind is not None and (kind in _SHARED or (kind.startswith(_FUSE) and kind not in _LOCAL)):
        raise InvalidArgument("budget", str(path), f"a disk of this machine; {kind} is shared with others")
    probe = folder / f".{path.name}.{secrets.token_hex(8)}.probe"
    try:
        with locked(probe, "budget"), locked(probe, "budget"):
            pass
    except LockHeld:
        return
    raise InvalidArgument("budget", str(path), "a folder with locks that keep others out; here two were given at once")


def check_alone(path: Path) -> None:
    """Refuse a file with a second name (a hard link): locks, and what SQLite keeps beside it, go by the name."""
    if path.stat().st_nlink > 1:
        raise InvalidArgument("budget", str(path), "a file with one name; hard links to it have locks of their own")


def guard_of(path: Path) -> Path:
    """The lock file of whoever writes the account, beside the file itself: links to it share the lock."""
    path = path.resolve()
    return path.with_name(f".{path.name}.lock")


def hold_of(path: Path, entry: int) -> Path:
    """The lock file of the run that has this entry, for as long as it lives."""
    path = path.resolve()
    return path.with_name(f".{path.name}.entry-{entry}.lock")


def machine() -> str:
    """The name of this machine: that a lock is free proves a run dead where it ran, and nowhere else."""
    return printable(platform.node())[:200] or "a machine without a name"


def _file_system(folder: Path) -> str | None:
    """The kind of file system of a folder; None where the operating system does not tell."""
    try:
        rows = [line.split() for line in _MOUNTS.read_text(errors="replace").splitlines()]
    except OSError:
        return None
    real, depth, kind = folder.resolve(), 0, None
    for row in rows:
        at = Path(row[1].encode().decode("unicode_escape"))
        if real.is_relative_to(at) and len(at.parts) >= depth:  # the last of equals lies over the others
            depth, kind = len(at.parts), row[2]
    return kind
