"""Packages whose names are imported when they are first asked for, and until then cost nothing.

Such a package tells type checkers where its names are by imports under `TYPE_CHECKING`, and Python by a table.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any


def by_name(places: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """The module of each name, from the names of each module."""
    return {name: module for module, names in places.items() for name in names}


def finder(package: str, module_of: Mapping[str, str], modules: Sequence[str] | None = None) -> Callable[[str], Any]:
    """A package's `__getattr__`: its names, kept once they are found, and its modules (these, or all that it has)."""

    def find(name: str) -> Any:
        if name in module_of:
            found = getattr(import_module(module_of[name]), name)
            setattr(sys.modules[package], name, found)
            return found
        inside = f"{package}.{name}"
        known = name in modules if modules is not None else name.isidentifier() and not name.startswith("_")
        if known and find_spec(inside):
            return import_module(inside)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return find
