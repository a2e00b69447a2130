"""What can happen to a process, and to its files."""

from __future__ import annotations

import os
import resource
import signal
import stat
import sys
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

Fault = Callable[[], None]


def killed_at_call(number: int, torn: float | None, folder: Path) -> Fault:
    """SIGKILL at the so-manieth call that touches files: a file opened for writing, flushed to disk, or renamed.

    With `torn`, a call that flushes leaves that share of what had not been flushed before, as a loss of power would.
    """

    def arm() -> None:
        count = 0
        before = {path.stat().st_ino: path.stat().st_size for path in folder.glob("*")}

        def reached() -> bool:
            nonlocal count
            count += 1
            return count == number

        def hook(event: str, details: tuple[Any, ...]) -> None:
            writes = event == "open" and isinstance(details[2], int) and details[2] & (os.O_WRONLY | os.O_RDWR)
            if (writes or event in ("os.rename", "os.remove", "os.mkdir", "os.truncate")) and reached():
                os.kill(os.getpid(), signal.SIGKILL)

        flush, flushed = os.fsync, dict[int, int]()

        def fsync(descriptor: int) -> None:
            file = os.fstat(descriptor)
            if reached():
                if torn is not None and stat.S_ISREG(file.st_mode):
                    safe = flushed.get(file.st_ino, before.get(file.st_ino, 0))
                    os.ftruncate(descriptor, safe + int(torn * (file.st_size - safe)))
                os.kill(os.getpid(), signal.SIGKILL)
            flush(descriptor)
            flushed[file.st_ino] = file.st_size

        os.fsync = fsync
        sys.addaudithook(hook)

    return arm


def disk_full(limit: int) -> Fault:
    """No file may grow beyond so many bytes: writing fails in the middle, by the kernel, as on a full disk."""

    def arm() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    return arm


def without_rights() -> None:
    """Give up the rights of the superuser, to whom no folder is read-only."""
    if os.getuid() == 0:
        os.setgid(65534)
        os.setuid(65534)


def clock_backwards() -> None:
    """An hour earlier at every look at the clock."""
    now = time.time()

    def earlier() -> float:
        nonlocal now
        now -= 3600
        return now

    time.time = earlier


def shuffle_times(folder: Path, random: Random) -> None:
    """Times of change from 1970 to 2100, in any order."""
    for path in folder.iterdir():
        at = random.uniform(0, 4.1e9)
        os.utime(path, (at, at))


def damage(path: Path, random: Random) -> str:
    """Change a file in one of the ways in which files change; says which."""
    content = bytearray(path.read_bytes())
    kind = random.choice(["cut", "flipped", "flipped", "emptied", "zeroed", "garbage", "grown", "removed"])
    if kind == "cut":
        content = content[: random.randrange(max(1, len(content)))]
    elif kind == "flipped":
        for _ in range(random.choice([1, 1, 3])):
            content[random.randrange(len(content))] ^= 1 << random.randrange(8)
    elif kind == "emptied":
        content.clear()
    elif kind == "zeroed":
        start = random.randrange(len(content))
        stop = min(len(content), start + random.choice([1, 16, 4096]))
        content[start:stop] = bytes(stop - start)
    elif kind == "garbage":
        content = bytearray(random.randbytes(random.choice([1, 100, len(content)])))
    elif kind == "grown":
        content += random.randbytes(random.choice([1, 100]))
    path.unlink()
    if kind != "removed":
        path.write_bytes(content)
    return kind
