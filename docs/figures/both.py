"""Pictures for light and for dark pages, and how a page shows the one that fits."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from PIL import Image

from plrvo.appearance import darken

_DARK = "-dark"


def write_both(figure: Any, path: Path, dpi: int = 140, colours: int = 64) -> None:
    """Write `path`, and beside it the same for dark pages; few colours keep the repository small."""
    for file in (path, path.with_stem(path.stem + _DARK)):
        if file != path:
            darken(figure)
        drawn, small = io.BytesIO(), io.BytesIO()
        figure.savefig(drawn, format="png", dpi=dpi)
        Image.open(drawn).convert("RGB").quantize(colours).save(small, format="PNG", optimize=True)
        file.write_bytes(small.getvalue())


def shown(words: str, image: str) -> str:
    """Both pictures in Markdown, of which the site shows one."""
    dark = image.replace(".png", f"{_DARK}.png")
    return f"![{words}]({image}#only-light)\n![{words}]({dark}#only-dark)"
