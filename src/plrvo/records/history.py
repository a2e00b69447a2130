"""Rows over steps, as JSON lines: the metrics of a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from plrvo.files import open_regular, parse_json, write_bytes
from plrvo.validate import InvalidArgument


def read_history(path: Path) -> list[dict[str, Any]]:
    """The metrics that `write_history` wrote."""
    try:
        with open_regular(path) as file:
            content = file.read()
    except OSError as error:
        raise InvalidArgument("metrics", str(path), f"the metrics of a run ({error.strerror})") from None
    return parse_history(content, path)


def parse_history(content: bytes, path: Path) -> list[dict[str, Any]]:
    """The metrics in what was read from `path`."""
    try:
        rows = [parse_json(line) for line in content.splitlines()]
    except ValueError:
        rows = [None]
    if not all(isinstance(row, dict) for row in rows):
        raise InvalidArgument("metrics", str(path), "the metrics of a run, a JSON object in every line")
    return rows


def write_history(path: Path, history: list[dict[str, Any]]) -> None:
    """Metrics as JSON lines, whole or not at all."""
    write_bytes(path, "".join(json.dumps(row) + "\n" for row in history).encode())
