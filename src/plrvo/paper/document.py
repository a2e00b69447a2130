"""`reproduction.json`: what its digest covers, and the one way to read it.

The digest is over parameters, rows and numbers. Titles, labels, remarks and findings are words, which a later version
may choose better: they are no part of it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from plrvo.files import json_digest, read_json
from plrvo.paper.entry import Group
from plrvo.paper.flags import Flag
from plrvo.validate import InvalidArgument

FILE, FORMAT = "reproduction.json", 2
_WORDS = ("title", "paper", "stand_in", "findings")  # of the document
_REMARKS = re.compile(r"; (?=the published formula gives this noise)")  # format 1 had all of them in one text


def sealed(found: Mapping[str, Any]) -> dict[str, Any]:
    """The document with its format and its digest."""
    content = {"format": FORMAT, **found}
    return {**content, "digest": json_digest(_covered(content))}


def read_reproduction(path: Path, argument: str) -> dict[str, Any]:
    """What a `reproduction.json`, or that of a folder, holds; refused if it is not what was written."""
    path = path / FILE if path.is_dir() else path
    found = read_json(path, argument, f"a {FILE} of `plrvo reproduce`")
    try:
        if "format" not in found and found["digest"] == json_digest(_without_digest(found)):
            return sealed(_of_first_format(_without_digest(found)))
        if found["format"] == FORMAT and found["digest"] == json_digest(_covered(_without_digest(found))):
            return dict(found)
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError):  # a document of another kind
        pass
    raise InvalidArgument(
        argument, str(path), f"a {FILE} as it was written: this one is damaged; remove it, and rows are measured again"
    )


def _without_digest(found: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in found.items() if name != "digest"}


def _covered(content: Mapping[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in content.items() if name not in _WORDS}
    return {**kept, "rows": [_row_without_words(row) for row in content["rows"]]}


def _row_without_words(row: Mapping[str, Any]) -> dict[str, Any]:
    return {**{name: value for name, value in row.items() if name != "label"}, "flags": sorted(map(Flag, row["flags"]))}


def _of_first_format(found: dict[str, Any]) -> dict[str, Any]:
    """The document as the present format has it; the first had one text in place of flags, and no groups."""
    group = Group.fair if found["name"].startswith("fair-") else Group.paper
    rows = [{name: value for name, value in row.items() if name != "flag"} for row in found["rows"]]
    for row, before in zip(rows, found["rows"], strict=True):
        row["flags"] = {_flag_of(remark): remark for remark in _REMARKS.split(before["flag"] or "") if remark}
    return {**found, "group": group.value, "paper": found["paper"].removeprefix("not in the paper: "), "rows": rows}


def _flag_of(remark: str) -> Flag:
    """What a text of the first format stood for."""
    words = {
        "the printed parameters": Flag.misprinted,
        "not converged": Flag.not_converged,
        "the published formula gives this noise": Flag.refuted,
        "the claim of": Flag.refuted,
    }
    return next((flag for start, flag in words.items() if remark.startswith(start)), Flag.differs)
