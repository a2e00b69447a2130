"""Documents that someone else may have written: every value is of the kind that is needed, or bad input."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plrvo.validate import InvalidArgument

_LARGEST = 1e100  # nothing that a page shows comes near, and charts need not care for overflow


@dataclass(frozen=True)
class Fields:
    """The mapping `content` at the place `where` of the file `path`, which should be `expected`."""

    content: Mapping[str, Any]
    path: Path
    expected: str
    where: str = ""
    argument: str = "runs"

    @staticmethod
    def of(content: Any, path: Path, expected: str, where: str = "", argument: str = "runs") -> Fields:
        if not isinstance(content, dict):
            raise InvalidArgument(argument, str(path), f"{expected}{f', with an object in {where}' if where else ''}")
        return Fields(content, path, expected, where, argument)

    def __contains__(self, key: str) -> bool:
        return self.content.get(key) is not None

    def part(self, key: str) -> Fields:
        """The mapping under the key."""
        return self._inside(self.content.get(key), self._name(key))

    def parts(self, key: str) -> list[Fields]:
        """The list of mappings under the key."""
        items = self.content.get(key)
        if not isinstance(items, list):
            raise self._refuse(key, "a list")
        return [self._inside(item, f"{self._name(key)}[{i}]") for i, item in enumerate(items)]

    def number(self, key: str) -> float:
        found = as_number(self.content.get(key))
        if found is None:
            raise self._refuse(key, "a number")
        return found

    def amount(self, key: str) -> float:
        """A number of zero or above."""
        found = self.number(key)
        if found < 0:
            raise self._refuse(key, "a number of zero or above")
        return found

    def amount_or_none(self, key: str) -> float | None:
        return self.amount(key) if key in self else None

    def text(self, key: str) -> str:
        found = self.content.get(key)
        if not isinstance(found, str):
            raise self._refuse(key, "a text")
        return found

    def text_or_none(self, key: str) -> str | None:
        return self.text(key) if key in self else None

    def texts(self, key: str) -> list[str]:
        """The list of texts under the key; an empty one if it is not there."""
        found = self.content.get(key) or []
        if not isinstance(found, list) or not all(isinstance(item, str) for item in found):
            raise self._refuse(key, "a list of texts")
        return found

    def measures(self, key: str) -> dict[str, float | None]:
        """The numbers under the key by their names; None for those that are missing."""
        items = self.part(key).content.items()
        for name, value in items:
            if value is not None and as_number(value) is None:
                raise self._refuse(f"{key}.{name}", "a number or null")
        return {name: as_number(value) for name, value in items}

    def _inside(self, content: Any, where: str) -> Fields:
        return Fields.of(content, self.path, self.expected, where, self.argument)

    def _name(self, key: str) -> str:
        return f"{self.where}.{key}" if self.where else key

    def _refuse(self, key: str, kind: str) -> InvalidArgument:
        return InvalidArgument(self.argument, str(self.path), f"{self.expected}, with {kind} in {self._name(key)}")


def as_number(value: Any) -> float | None:
    """The value as a float, if it is a number that a page can show."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    if isinstance(value, int) and abs(value) > _LARGEST:
        return None
    return float(value) if math.isfinite(value) and abs(value) <= _LARGEST else None
