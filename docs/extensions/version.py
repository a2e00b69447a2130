"""A hook of mkdocs: every page says of which version it is."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any


def on_config(config: Any) -> Any:
    """Put the version into the footer."""
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    config.copyright = f"plrvo {project['version']}, {project['license']}"
    return config
