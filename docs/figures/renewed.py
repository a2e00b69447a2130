"""Pages of which a script writes one section, between two comments."""

from __future__ import annotations

import re
from pathlib import Path

END = "<!-- end -->"


def renewed(page: Path, start: str, section: str) -> str:
    """The text of the page with this section between its `start` comment and the end that follows."""
    between = re.compile(re.escape(start) + r".*?" + re.escape(END), re.DOTALL)
    return between.sub(lambda _: f"{start}\n\n{section}\n\n{END}", page.read_text(encoding="utf-8"))
