"""All rows. A new finding is a new row."""

from __future__ import annotations

import tests.misuse.calls
import tests.misuse.carried
import tests.misuse.collates
import tests.misuse.fallback
import tests.misuse.hidden
import tests.misuse.inside
import tests.misuse.kept
import tests.misuse.labels
import tests.misuse.later
import tests.misuse.lengths
import tests.misuse.loop_hooks
import tests.misuse.losses
import tests.misuse.odd_places
import tests.misuse.padded
import tests.misuse.statistics
import tests.misuse.targets  # noqa: F401 - all add their rows to B
from tests.misuse.noise import A
from tests.misuse.numbers import D
from tests.misuse.records import E
from tests.misuse.sensitivity import B
from tests.misuse.steps import C
from tests.misuse.trainer import F

SECTIONS = (A, B, C, D, E, F)
ROWS = [row for section in SECTIONS for row in section.rows]
