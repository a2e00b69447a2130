"""Files that are either whole or absent, and JSON that is read with one clear line when it is not what it should be."""

from __future__ import annotations

import json
import os
import secrets
from pathlib import Path
from typing import Any

from plrvo.validate import InvalidArgument


def write_bytes(path: Path, content: bytes) -> None:
    """Write to a temporary file beside `path`, flush it to disk, and rename it into place."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        with beside.open("xb") as file:  # with the permissions that any new file of the user has
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def write_json(path: Path, value: Any) -> None:
    """One JSON document, indented for people; infinities are refused, not written as non-standard words."""
    write_bytes(path, (json.dumps(value, indent=2, allow_nan=False) + "\n").encode())


def read_json(path: Path, argument: str, expected: str) -> Any:
    """The document in `path`; a missing or broken file is bad input of `argument`."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidArgument(argument, str(path), f"{expected} ({error.strerror})") from None
    except ValueError:
        raise InvalidArgument(argument, str(path), f"{expected} (the file is not JSON)") from None
