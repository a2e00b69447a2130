"""All rows. A new finding is a new row."""

from __future__ import annotations

from tests.misuse.sensitivity import B
from tests.misuse.steps import C

SECTIONS = (B, C)
ROWS = [row for section in SECTIONS for row in section.rows]
